"""What holds a job back, on a CUDA device. Skipped without one; run with `pytest -m gpu`."""

import itertools
import time

import pytest
import torch

from autotune.config import ProbeConfig, WorkloadSpec
from autotune.diagnosis import Bottleneck, diagnose
from autotune.launch.local import LocalLauncher
from autotune.measure.device import synchronize
from autotune.measure.launch import queueing_s
from autotune.measure.timers import EventTimer
from autotune.measure.trace import record_trace
from autotune.measure.window import StopRule, run_window
from autotune.measurement import Measurement, Phase
from autotune.request import TrialRequest
from autotune.settings import Settings
from autotune.trial.job import TrainingJob
from autotune.workloads.workload import Workload

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

DEVICE = torch.device("cuda")


class TinyOps(torch.nn.Module):
    """Two hundred products of small matrices: each is done before the next is queued."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(8))

    def forward(self, batch):
        rows = batch[:, :8]
        for _ in range(200):
            rows = rows @ self.weight
        return rows.mean()


class LargeProducts(torch.nn.Module):
    """A few products so large that the host is far ahead of the device."""

    def __init__(self, products=8, size=8192):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(size) / size)
        self._products = products

    def forward(self, batch):
        product = self.weight
        for _ in range(self._products):
            product = product @ self.weight
        return product.mean() + batch.mean()


def job_of(model):
    workload = Workload(
        dataset=None,
        collate=None,
        build_model=model,
        loss=None,
        build_optimizer=lambda parameters, fused: torch.optim.SGD(parameters, lr=1e-6),
        shuffle=False,
        drop_last=True,
        resident=False,
    )
    return TrainingJob(workload, Settings(batch_size=64), DEVICE, seed=0)


def wait():
    synchronize(DEVICE)


def timed(job, batches, blocks=6):
    rule = StopRule(
        rel_halfwidth=1e-9, cap_s=0.5, min_blocks=blocks, min_steps=3, steps_per_block=4
    )
    for _ in range(3):
        job.step(batches, EventTimer(DEVICE))
    return run_window(
        lambda timer: job.step(batches, timer),
        timer=EventTimer(DEVICE),
        rule=rule,
        synchronize=wait,
    )


def queueing_share(model):
    job = job_of(model)
    resident = itertools.repeat(torch.randn(64, 64, device=DEVICE))
    window = timed(job, resident)
    seconds = queueing_s(
        lambda: job.step(resident, EventTimer(DEVICE)), synchronize=wait, cap_s=1.0
    )
    return 1e3 * seconds / window.step_ms


def test_small_kernels_keep_the_host_busy_and_large_ones_do_not():
    assert queueing_share(TinyOps) > 0.8
    assert queueing_share(LargeProducts) < 0.5


def recorded(job, batches, tmp_path, steps=3):
    for _ in range(3):
        job.step(batches, EventTimer(DEVICE))
    trace = record_trace(
        lambda timer: job.step(batches, timer),
        device=DEVICE,
        steps=steps,
        file=tmp_path / "trace.json.gz",
        max_bytes=25e6,
    )
    assert trace.note is None
    return trace.activity


def test_kernels_of_a_step_are_counted(tmp_path):
    batch = torch.randn(64, 64, device=DEVICE)
    few = recorded(job_of(LargeProducts), itertools.repeat(batch), tmp_path)
    many = recorded(job_of(TinyOps), itertools.repeat(batch), tmp_path)
    # 200 products forward, two for each of them backward.
    assert many.kernels_per_step >= 600
    assert few.kernels_per_step < 100
    assert few.kernel_ms > many.kernel_ms
    assert few.copy_pinned is None
    assert few.copy_ms == 0


def test_kernels_fill_a_resident_step_of_large_products(tmp_path):
    batches = itertools.repeat(torch.randn(64, 64, device=DEVICE))
    job = job_of(LargeProducts)
    window = timed(job, batches)
    activity = recorded(job, batches, tmp_path)
    assert activity.kernel_ms == pytest.approx(window.step_ms, rel=0.15)


@pytest.mark.parametrize("pinned", [True, False])
def test_copies_tell_which_memory_they_came_from(tmp_path, pinned):
    batch = torch.randn(4096, 1024)
    batches = itertools.repeat(batch.pin_memory() if pinned else batch)
    activity = recorded(job_of(TinyOps), batches, tmp_path)
    assert activity.copy_pinned is pinned
    assert activity.copy_ms > 0


class Asking(torch.nn.Module):
    """Looks at a number on the device in every step."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 1)

    def forward(self, batch):
        loss = self.layer(batch).mean()
        loss.item()
        return loss


def test_a_look_at_the_loss_is_a_synchronisation(tmp_path):
    batches = itertools.repeat(torch.randn(64, 64, device=DEVICE))
    assert recorded(job_of(Asking), batches, tmp_path).synchronizations_per_step >= 1
    assert recorded(job_of(TinyOps), batches, tmp_path).synchronizations_per_step == 0


def delayed(batch, delay_s):
    while True:
        time.sleep(delay_s)
        yield batch


def delayed_window(share):
    """Return a window of steps whose loader takes that share of the device's time for a step."""
    job = job_of(LargeProducts)
    batch = torch.randn(64, 64, device=DEVICE)
    alone = timed(job, itertools.repeat(batch))
    return alone, timed(job, delayed(batch, share * alone.step_ms / 1e3), blocks=10)


def test_a_delay_that_the_devices_work_hides_is_host_wait_without_stall():
    alone, hidden = delayed_window(0.25)
    assert hidden.host_wait_ms > 0.2 * alone.step_ms
    assert hidden.stall_share < 0.05
    assert hidden.phase_ms(Phase.FORWARD) < 1.2 * alone.phase_ms(Phase.FORWARD)


def test_a_longer_delay_is_stall_and_not_forward():
    alone, seen = delayed_window(3.0)
    assert seen.stall_ms > 1.5 * alone.step_ms
    assert seen.phase_ms(Phase.FORWARD) < 1.5 * alone.phase_ms(Phase.FORWARD)


def test_phases_agree_with_the_window_within_1_percent():
    _, seen = delayed_window(0.25)
    assert abs(seen.untimed_share) < 0.01


@pytest.fixture(scope="module")
def launcher():
    launcher = LocalLauncher()
    yield launcher
    launcher.close()


def test_a_trial_has_both_ceilings_and_the_devices_activity(launcher, tmp_path):
    workload = WorkloadSpec(
        model={"_target_": "autotune.workloads.tiny.tiny_model"},
        data={"_target_": "autotune.workloads.tiny.tiny_images", "delay_ms": 2.0},
        collate=None,
        loss={"_target_": "torch.nn.functional.cross_entropy"},
        optimizer={"_target_": "torch.optim.SGD", "lr": 0.01},
    )
    request = TrialRequest(
        workload=workload,
        settings=Settings(batch_size=16, num_workers=2, prefetch_factor=2, pin_memory=True),
        probe=ProbeConfig(window_s=2.0, warmup_s=2.0, ceiling_s=0.3, min_blocks=3),
        device="cuda",
        seed=0,
        folder=str(tmp_path),
        limit_s=120.0,
        profile_above=0.0,
        loader_above=0.0,
    )
    seen = launcher.run(request, lambda stage: None)
    assert isinstance(seen, Measurement), seen
    assert seen.activity is not None, seen.notes
    assert seen.activity.copy_pinned is True
    assert seen.launch_s > 0
    assert seen.loader_ceiling is not None, seen.notes
    # Two workers that sleep 2 ms a sample give 1,000 samples/s at most.
    assert seen.loader_ceiling.value < 1100
    assert diagnose(seen).bottleneck in (Bottleneck.INPUT_BOUND, Bottleneck.SLOWED)
