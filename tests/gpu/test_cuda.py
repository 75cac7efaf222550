"""What only a CUDA device can show. Skipped without one; run with `pytest -m gpu`."""

import time
from dataclasses import replace

import pytest
import torch

from autotune.config import LoaderConfig, ProbeConfig, WorkloadSpec
from autotune.launch.local import LocalLauncher
from autotune.measure.device import device_info, synchronize
from autotune.measure.memory import memory_use
from autotune.measure.timers import EventTimer, Mark
from autotune.measure.trace import record_trace
from autotune.measure.window import StepSeen, StopRule, run_window
from autotune.measurement import FailureKind, JobFacts, Measurement, Phase, TrialFailure
from autotune.request import TrialRequest
from autotune.settings import CompileMode, Precision, Settings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

TINY = WorkloadSpec(
    model={"_target_": "autotune.workloads.tiny.tiny_model"},
    data={"_target_": "autotune.workloads.tiny.tiny_images"},
    collate=None,
    loss={"_target_": "torch.nn.functional.cross_entropy"},
    optimizer={"_target_": "torch.optim.SGD", "lr": 0.01},
)
QUICK = ProbeConfig(window_s=1.0, warmup_s=1.0, ceiling_s=0.3, min_blocks=3)


class MatmulJob:
    """Steps of known make-up: a wait on the host, then products on the device."""

    def __init__(self, wait_s, products):
        self.device = torch.device("cuda")
        self._wait_s = wait_s
        self._products = products
        self._matrix = torch.randn(4096, 4096, device=self.device)

    def step(self, timer):
        time.sleep(self._wait_s)
        timer.mark(Mark.FETCHED)
        timer.mark(Mark.COPIED)
        for _ in range(self._products):
            self._matrix @ self._matrix
        timer.mark(Mark.FORWARD)
        timer.mark(Mark.BACKWARD)
        timer.mark(Mark.OPTIMIZER)
        return StepSeen(8, self._wait_s)

    def window(self, blocks=6):
        rule = StopRule(
            rel_halfwidth=0.5, cap_s=3, min_blocks=blocks, min_steps=3, steps_per_block=4
        )
        return run_window(
            self.step,
            timer=EventTimer(self.device),
            rule=rule,
            synchronize=lambda: synchronize(self.device),
        )


def test_phases_agree_with_the_window():
    window = MatmulJob(0.0, 20).window()
    parts = sum(sum(seconds) for seconds in window.phase_s.values())
    assert parts == pytest.approx(window.elapsed_s, rel=0.02)
    assert window.phase_ms(Phase.FORWARD) > 10 * window.phase_ms(Phase.BACKWARD)


def test_a_wait_that_starves_the_device_is_stall_and_not_forward():
    window = MatmulJob(0.03, 1).window()
    assert window.stall_share > 0.5
    assert window.phase_ms(Phase.DATA) > 5 * window.phase_ms(Phase.FORWARD)


def test_a_wait_behind_queued_work_is_host_wait_without_stall():
    busy = MatmulJob(0.0, 200).window(blocks=2)
    hidden = MatmulJob(busy.step_ms / 1e3 / 4, 200).window(blocks=2)
    assert hidden.host_wait_ms > busy.step_ms / 8
    assert hidden.stall_share < 0.05


def test_device_and_its_memory():
    info = device_info(torch.device("cuda"))
    assert info.kind == "cuda"
    assert info.memory_bytes > 1 << 30
    keep = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    use = memory_use(keep.device)
    assert use.peak_allocated_bytes >= 1 << 28
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    assert memory_use(keep.device).oom_count == use.oom_count + 1


def test_a_trace_has_the_steps_and_kernels(tmp_path):
    job = MatmulJob(0.0, 2)
    trace = record_trace(
        job.step, device=job.device, steps=2, file=tmp_path / "trace.json.gz", max_bytes=25e6
    )
    assert trace.note is None
    assert trace.file.stat().st_size > 1000


@pytest.fixture(scope="module")
def launcher():
    launcher = LocalLauncher()
    yield launcher
    launcher.close()


def request_for(tmp_path, settings, workload=TINY, **changes):
    values = {
        "workload": workload,
        "settings": settings,
        "probe": QUICK,
        "device": "cuda",
        "seed": 0,
        "folder": str(tmp_path),
        "limit_s": 120.0,
    }
    return TrialRequest(**{**values, **changes})


def test_the_job_is_seen_on_the_device(launcher, tmp_path):
    facts = launcher.inspect(request_for(tmp_path, Settings(batch_size=1)))
    assert isinstance(facts, JobFacts), facts
    assert facts.device.kind == "cuda"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"precision": Precision.TF32, "cudnn_benchmark": True, "channels_last": True},
        {"precision": Precision.BF16, "pin_memory": True, "num_workers": 2, "prefetch_factor": 2},
        {"precision": Precision.FP16, "fused_optimizer": True},
        {"precision": Precision.FP32},
        {"compile": CompileMode.REDUCE_OVERHEAD, "precision": Precision.BF16},
        {"compile": CompileMode.DEFAULT},
    ],
    ids=str,
)
def test_every_kind_of_setting_is_measured(launcher, tmp_path, changes):
    settings = Settings(batch_size=16, **changes)
    seen = launcher.run(request_for(tmp_path, settings, profile_above=0.0), lambda stage: None)
    assert isinstance(seen, Measurement), seen
    assert seen.settings == settings
    assert seen.window.samples_per_s > 0
    assert seen.memory.peak_reserved_bytes > 0
    assert seen.trace == "trace.json.gz", seen.notes


def test_lack_of_memory_is_told_and_the_next_trial_is_unharmed(launcher, tmp_path):
    huge = WorkloadSpec(
        model={"_target_": "autotune.workloads.tiny.tiny_model"},
        data={"_target_": "autotune.workloads.resident.resident", "image_size": 2048},
        collate=None,
        loss={"_target_": "torch.nn.functional.cross_entropy"},
        optimizer={"_target_": "torch.optim.SGD", "lr": 0.01},
    )
    failed = launcher.run(
        request_for(tmp_path, Settings(batch_size=1500), huge), lambda stage: None
    )
    assert isinstance(failed, TrialFailure)
    assert failed.failure is FailureKind.OUT_OF_MEMORY, failed
    after = launcher.run(request_for(tmp_path, Settings(batch_size=16)), lambda stage: None)
    assert isinstance(after, Measurement), after


def test_the_tail_batch_is_trained_without_a_search_for_its_shape(launcher, tmp_path):
    spec = replace(TINY, loader=LoaderConfig(drop_last=False))  # 2048 samples
    settings = Settings(batch_size=60, cudnn_benchmark=True)
    outcome = launcher.run(request_for(tmp_path, settings, spec), print)
    assert isinstance(outcome, Measurement), outcome
    assert outcome.memory.tail_batch == 2048 % 60
    assert outcome.memory.oom_count == 0
    assert outcome.memory.largest_batch_bytes == 60 * (3 * 32 * 32 * 4 + 8)
