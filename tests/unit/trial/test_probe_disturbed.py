"""A probe on a machine that others disturb: what it repeats, and what it keeps."""

from dataclasses import replace

import pytest
import torch

from autotune.config import ProbeConfig, WorkloadSpec
from autotune.measurement import MachineState
from autotune.request import TrialRequest
from autotune.settings import Settings
from autotune.trial import probe, score
from autotune.workloads.build import build_workload

QUIET = MachineState(affinity_cores=2, usable_cores=2, other_cpu_cores=0.05)
BUSY = replace(QUIET, other_cpu_cores=1.7)
LESS_BUSY = replace(QUIET, other_cpu_cores=0.8)
REQUEST = TrialRequest(
    workload=WorkloadSpec(
        model={"_target_": "autotune.workloads.tiny.tiny_model"},
        data={"_target_": "autotune.workloads.tiny.tiny_images"},
        collate=None,
        loss={"_target_": "torch.nn.functional.cross_entropy"},
        optimizer={"_target_": "torch.optim.SGD", "lr": 0.01},
    ),
    settings=Settings(batch_size=2),
    probe=ProbeConfig(window_s=0.05, warmup_s=0.05, ceiling_s=0.05, min_blocks=2),
    device="cpu",
    seed=0,
    folder="",
    limit_s=180.0,
    measure_ceiling=False,
)


class ScriptedWatch:
    """Tells given states, one a window."""

    def __init__(self, states):
        self.left = list(states)

    def begin(self):
        assert self.left, "a window more than there may be"

    def end(self):
        return self.left.pop(0)


@pytest.fixture
def measure(monkeypatch):
    def run(*states, **changes):
        watch = ScriptedWatch(states)
        monkeypatch.setattr(score, "MachineWatch", lambda device: watch)
        request = replace(REQUEST, **changes)
        room = probe.Probe(request, torch.device("cpu"), 0.0, lambda stage: None)
        measured = room.run(build_workload(request.workload))
        assert not watch.left
        return measured

    return run


def test_a_quiet_window_is_measured_once(measure):
    measured = measure(QUIET)
    assert measured.window.machine == QUIET
    assert measured.repeated_windows == 0
    assert not any("disturbed" in note for note in measured.notes)


def test_a_disturbed_window_is_measured_again(measure):
    measured = measure(BUSY, QUIET)
    assert measured.window.machine == QUIET
    assert measured.repeated_windows == 1
    (note,) = [note for note in measured.notes if "disturbed" in note]
    assert "first was disturbed: other processes used 1.7 of 2 cores" in note


@pytest.mark.parametrize("states", [(BUSY, LESS_BUSY), (LESS_BUSY, BUSY)])
def test_of_two_disturbed_windows_the_less_disturbed_is_kept_and_flagged(measure, states):
    measured = measure(*states)
    assert measured.window.machine == LESS_BUSY
    assert measured.repeated_windows == 1
    (note,) = [note for note in measured.notes if "disturbed" in note]
    assert "other processes used 0.8 of 2 cores" in note


@pytest.mark.parametrize("changes", [{"repeat_disturbed": False}, {"limit_s": 0.01}])
def test_nothing_is_repeated_when_asked_not_to_or_without_time(measure, changes):
    measured = measure(BUSY, **changes)
    assert measured.window.disturbances
    assert measured.repeated_windows == 0
    assert sum("disturbed" in note for note in measured.notes) == 1
