"""What only a CUDA device can show. Skipped without one; run with `pytest -m gpu`."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

from autotune.config import LoaderConfig, ProbeConfig, WorkloadSpec
from autotune.errors import NonFiniteLoss
from autotune.launch.local import LocalLauncher
from autotune.measure.compilation import CompileObserver
from autotune.measure.device import device_info, synchronize
from autotune.measure.machine import MachineWatch
from autotune.measure.memory import memory_use
from autotune.measure.nvml import device_name, open_gauges
from autotune.measure.timers import EventTimer, Mark
from autotune.measure.trace import record_trace
from autotune.measure.window import StepSeen, StopRule, run_window
from autotune.measurement import FailureKind, JobFacts, Measurement, Phase, TrialFailure
from autotune.request import TrialRequest
from autotune.settings import CompileMode, Precision, Settings
from autotune.trial.probe import Probe
from autotune.workloads.tiny import tiny_images, tiny_model
from autotune.workloads.workload import Workload

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


def test_the_machine_is_watched_over_a_busy_window():
    job = MatmulJob(0.0, 20)
    watch = MachineWatch(job.device)
    job.window()  # the first calls are slow
    watch.begin()
    ends = time.perf_counter() + 2.0
    while time.perf_counter() < ends:
        for _ in range(50):
            job._matrix @ job._matrix
        synchronize(job.device)
    state = watch.end()
    if state.sm_clock_mhz is None:
        pytest.skip("NVML tells nothing of this device")
    assert 0 < state.sm_clock_mhz <= state.sm_clock_max_mhz
    assert 0 < state.temperature_c < 120
    if state.power_w is None:
        pytest.skip("NVML tells no power of this device")
    assert state.power_w > 50
    assert state.energy_j > 100
    # Over the same time, NVML's own reading of the power is of the same size.
    gauges = open_gauges(device_name(job.device))
    assert 0.3 < state.power_w / gauges.power_w() < 3


def test_a_second_process_on_the_device_is_seen_or_not_told():
    torch.empty(1, device="cuda")
    busy = (
        "import torch; a = torch.randn(4096, 4096, device='cuda'); print('on', flush=True)\n"
        "while True:\n    for _ in range(20): a @ a\n    torch.cuda.synchronize()"
    )
    shell = f'{sys.executable} -c "{busy}" & echo $!'
    with subprocess.Popen(["sh", "-c", shell], stdout=subprocess.PIPE, text=True) as started:
        pid = int(started.stdout.readline())
        try:
            assert started.stdout.readline().strip() == "on"
            watch = MachineWatch(torch.device("cuda"))
            watch.begin()
            ends = time.perf_counter() + 2.0
            matrix = torch.randn(4096, 4096, device="cuda")
            while time.perf_counter() < ends:
                matrix @ matrix
                synchronize(matrix.device)
            state = watch.end()
        finally:
            os.kill(pid, signal.SIGKILL)
    assert state.device_processes is None or state.device_processes >= 1
    if state.device_other_share is not None:
        assert any("another process used the device" in text for text in state.disturbances)


def test_a_trace_has_the_steps_and_kernels(tmp_path):
    job = MatmulJob(0.0, 2)
    trace = record_trace(
        job.step, device=job.device, steps=2, file=tmp_path / "trace.json.gz", max_bytes=25e6
    )
    assert trace.note is None
    assert trace.file.stat().st_size > 1000


class Overflowing(torch.nn.Module):
    """Its activations pass 65504, the largest number of fp16; in fp32 and bf16 they are finite."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.last = torch.nn.Linear(16, 10)

    def forward(self, images):
        large = self.first(images) * 1e6
        return self.last(large.relu().mean((2, 3)) * 1e-6)


def sum_of_losses(output, labels):
    """Return a loss so large that GradScaler's first scales overflow in fp16."""
    return 10 * torch.nn.functional.cross_entropy(output, labels, reduction="sum")


def probed(tmp_path, settings, *, model=tiny_model, loss=None, lr=0.01):
    """Measure in this process a job of the models above, held against fp32."""
    built = Workload(
        dataset=tiny_images(),
        collate=None,
        build_model=model,
        loss=loss or torch.nn.functional.cross_entropy,
        build_optimizer=lambda parameters, fused: torch.optim.SGD(
            # Fused SGD with momentum does not get along with a GradScaler (autotune/precision.py).
            # The reference that a setting is held against is never fused, and has to be the same.
            parameters,
            lr=lr,
            momentum=0.0 if settings.fused_optimizer else 0.9,
            fused=fused,
        ),
        shuffle=True,
        drop_last=True,
        resident=False,
    )
    folder = tmp_path / "0000"
    folder.mkdir()
    request = request_for(folder, settings, check_above=0.0)
    return Probe(request, torch.device("cuda", 0), 0.0, lambda stage: None).run(built)


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": Precision.BF16, "channels_last": True},
        {"precision": Precision.FP16},
        {"precision": Precision.FP16, "fused_optimizer": True},
        {"precision": Precision.TF32, "cudnn_benchmark": True},
        {"precision": Precision.BF16, "compile": CompileMode.REDUCE_OVERHEAD},
        {},
    ],
    ids=str,
)
def test_a_sane_setting_learns_what_fp32_learns(tmp_path, changes):
    measured = probed(tmp_path, Settings(batch_size=32, **changes))
    found = measured.numerics
    assert found.failed is None, found
    assert found.unchecked is None
    assert len(found.reference) >= 2
    assert found.difference < found.tolerance
    assert found.gradient_norm == pytest.approx(found.reference_norm, rel=0.2)
    fp16 = changes.get("precision") is Precision.FP16
    assert (measured.skipped_steps is not None) is fp16


def test_an_overflow_in_fp16_never_wins(tmp_path):
    settings = Settings(batch_size=32, precision=Precision.FP16)
    with pytest.raises(NonFiniteLoss):
        probed(tmp_path, settings, model=Overflowing)
    bf16 = probed(tmp_path / "0000", replace(settings, precision=Precision.BF16), model=Overflowing)
    assert bf16.numerics.failed is None


@pytest.mark.parametrize("fused", [False, True])
def test_steps_that_grad_scaler_skips_are_counted(tmp_path, fused):
    settings = Settings(batch_size=32, precision=Precision.FP16, fused_optimizer=fused)
    measured = probed(tmp_path, settings, loss=sum_of_losses, lr=1e-7)
    found = measured.numerics
    assert found.skipped_steps >= 1
    assert measured.skipped_steps == 0, "the scale has settled long before the window"
    assert found.failed is None, found


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
    assert (seen.compilation is not None) == (settings.compile is not CompileMode.OFF)
    assert seen.memory.peak_reserved_bytes > 0
    assert seen.trace == "trace.json.gz", seen.notes


class CountedOnTheHost(torch.nn.Module):
    """A part of the model runs on the CPU: no CUDA graph can hold that."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)
        self.register_buffer("scale", torch.ones(64, device="cpu"), persistent=False)

    def forward(self, x):
        on_host = self.layer(x).cpu() * self.scale.cpu()
        return self.layer(on_host.to(x.device))


def test_what_cuda_graphs_are_left_out_for_is_told():
    from torch._inductor import config

    device = torch.device("cuda")
    torch._dynamo.reset()
    # Without partitions, one operation on the CPU costs the whole graph its CUDA graph.
    with config.patch(graph_partition=False):
        observer = CompileObserver(CompileMode.REDUCE_OVERHEAD, device)
        model = torch.compile(CountedOnTheHost().to(device), mode="reduce-overhead")
        for _ in range(3):
            torch.compiler.cudagraph_mark_step_begin()
            model(torch.randn(32, 64, device=device)).sum().backward()
    observer.warmed_up(1.0, 0.5)
    observer.window_begins()
    assert observer.window_ended() == 0
    report = observer.report()
    assert report.graphs == 1
    assert report.fell_back is not None
    assert "without CUDA graphs because of" in report.fell_back
    assert "cpu" in report.fell_back


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
