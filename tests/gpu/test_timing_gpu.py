"""StepTimer and compare on a CUDA device. Skipped without one; run with `pytest -m gpu`."""

import time

import pytest
import torch

import autotune
from autotune.errors import TimingError
from autotune.statistics import Verdict

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture
def matrix():
    return torch.randn(4096, 4096, device="cuda")


def train(timer, matrix, steps, *, wait_s=0.0, products=10):
    def batches():
        for _ in range(steps):
            time.sleep(wait_s)
            yield matrix

    for batch in timer.iterate(batches()):
        with timer.phase("forward"):
            for _ in range(products):
                with timer.phase("product"):
                    batch @ batch
        with timer.phase("backward"):
            batch @ batch
        timer.step()


def test_no_step_or_phase_synchronises(matrix, monkeypatch):
    calls = []
    for owner in (torch.cuda, torch.accelerator):
        monkeypatch.setattr(owner, "synchronize", lambda *given: calls.append(given))
    monkeypatch.setattr(torch.cuda.Stream, "synchronize", lambda *given: calls.append(given))
    timer = autotune.StepTimer()
    train(timer, matrix, 2)
    torch.cuda.current_stream().query()
    torch.cuda.set_sync_debug_mode("error")
    try:
        train(timer, matrix, 20)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert not torch.cuda.current_stream().query()  # the host ran ahead of the device
    assert timer.report().steps == 22
    assert calls == []


def test_phases_agree_with_the_time_between_synchronisations(matrix):
    timer = autotune.StepTimer()
    train(timer, matrix, 20)
    torch.cuda.synchronize()
    started = time.perf_counter()
    timer.step()  # the next step begins here
    train(timer, matrix, 60)
    torch.cuda.synchronize()
    elapsed_s = time.perf_counter() - started
    report = timer.report()
    steps_s = report.step_s[-60:].sum()
    assert steps_s == pytest.approx(elapsed_s, rel=0.01)
    parts_s = {path: seconds[-60:].sum() for path, seconds in report.parts_s.items()}
    assert sum(parts_s.values()) == pytest.approx(steps_s, rel=0.01)
    assert parts_s["forward"] + parts_s["backward"] > 0.9 * steps_s
    shares = {phase.path: phase.share for phase in report.phases}
    assert shares["forward/product"] == pytest.approx(shares["forward"], rel=0.05)
    assert shares["forward"] > 5 * shares["backward"]


def test_a_wait_is_a_stall_only_where_the_device_has_nothing_to_do(matrix):
    hidden, seen = autotune.StepTimer(), autotune.StepTimer()
    train(hidden, matrix, 20, wait_s=0.01, products=100)
    torch.cuda.synchronize()
    train(seen, matrix, 20, wait_s=0.05, products=1)
    hidden, seen = hidden.report(), seen.report()
    assert hidden.host_wait_s > 0.009
    assert hidden.stall_s < 0.2 * hidden.host_wait_s
    assert seen.stall_s > 0.8 * seen.host_wait_s > 0.04
    assert "the device stood still" in str(seen)


def test_events_are_used_again(matrix):
    timer = autotune.StepTimer()
    train(timer, matrix, 10, products=2)
    timer.report()
    for _ in range(20):
        train(timer, matrix, 10, products=2)
        timer.report()
    assert len(timer._clock._free) < 200  # of the 2,500 that were recorded


def test_a_phase_in_a_graph_capture_is_refused(matrix):
    timer = autotune.StepTimer()
    matrix @ matrix
    torch.cuda.synchronize()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        matrix + 1
        with pytest.raises(TimingError, match=r"around graph\.replay"):
            timer.phase("forward").__enter__()


def five(x):
    return (((x + 1) * 2) - 3).relu().sigmoid()


def test_five_small_ops_against_one():
    x = torch.randn(2**24, device="cuda")
    result = autotune.compare({"five": five, "one": torch.sigmoid, "again": five}, (x,))
    assert [one.kernels for one in result.candidates] == [5, 1, 5]
    assert result["one"].verdict is Verdict.FASTER
    assert result["again"].verdict not in (Verdict.FASTER, Verdict.SLOWER)
    # Two outputs of 64 MiB are alive at a time, or one.
    assert [one.memory_bytes for one in result.candidates] == [2**27, 2**26, 2**27]
    assert not result["one"].launch_bound
    assert result["five"].busy_s == pytest.approx(result["five"].time_s.value, rel=0.3)
    assert not result["one"].outputs.close
    assert result["again"].outputs.max_difference == 0


def test_backward_runs_more_kernels():
    layer = torch.nn.Linear(256, 256, device="cuda")
    x = torch.randn(64, 256, device="cuda")
    calls = {"module": layer, "function": lambda x: layer(x)}
    forward = autotune.compare(calls, x, max_seconds=1)
    both = autotune.compare(calls, x, backward=True, max_seconds=1)
    assert both["module"].kernels > forward["module"].kernels
    assert both["module"].kernels == both["function"].kernels
    assert both["function"].outputs.close
    assert layer.weight.grad is None


def test_many_tiny_kernels_are_launch_bound():
    def many(x):
        for _ in range(50):
            x = x + 1
        return x

    x = torch.zeros(8, device="cuda")
    result = autotune.compare({"many": many, "again": many}, (x,), max_seconds=2)
    assert result["many"].launch_bound
    assert "many: launch-bound" in str(result)


def test_out_of_memory_is_a_row(matrix):
    def greedy(x):
        return torch.empty(2**45, device=x.device)

    result = autotune.compare(
        {"fine": torch.relu, "greedy": greedy, "other": torch.neg}, (matrix,), max_seconds=1
    )
    assert result["greedy"].failure == "out of memory"
    assert result["other"].speedup is not None


def test_flushing_the_caches_is_not_part_of_a_call():
    x = torch.randn(2**20, device="cuda")  # 4 MiB: fits into the L2 cache
    calls = {"a": lambda x: x.sum(), "b": lambda x: x.sum()}
    warm = autotune.compare(calls, x, max_seconds=2)
    cold = autotune.compare(calls, x, max_seconds=2, flush_cache=True)
    assert cold["a"].time_s is not None
    assert warm["a"].calls_per_block > 1
    assert cold["a"].kernels == warm["a"].kernels
