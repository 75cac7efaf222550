"""Faults of the user's dataset, put to a real trial."""

from autotune.measurement import Measurement
from autotune.settings import Settings


def test_a_healthy_job_leaves_nothing_either(launcher, ask, workload):
    settings = Settings(batch_size=8, num_workers=1)
    seen = launcher.run(ask(workload(), settings), lambda stage: None)
    assert isinstance(seen, Measurement), seen
