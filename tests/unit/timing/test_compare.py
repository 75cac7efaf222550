"""compare: with candidates that move a clock by hand, and with real small ones."""

import gc

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

import autotune
from autotune.errors import ConfigError, TimingError
from autotune.statistics import Verdict
from autotune.timing.candidate import agreement
from autotune.timing.contest import BLOCK_S, LOOKS, Contest


class Bench:
    """Candidates that take made-up times on a clock that only they move."""

    def __init__(self, seed=0):
        self.now_s = 0.0
        self.rng = np.random.default_rng(seed)
        self.order = []

    def __call__(self):
        return self.now_s

    def candidate(self, name, ms, *, spread=0.02, first_ms=None):
        waiting = [] if first_ms is None else [first_ms]

        def call(*_):
            self.order.append(name)
            took = waiting.pop() if waiting else ms * self.rng.lognormal(0, spread)
            self.now_s += took / 1e3
            return torch.ones(2)

        return call

    def compare(self, times, **options):
        candidates = {name: self.candidate(name, ms) for name, ms in times.items()}
        return autotune.compare(candidates, device="cpu", clock=self, **options)


def test_the_verdict_against_the_first():
    result = Bench().compare({"a": 1.0, "twice as fast": 0.5, "slower": 1.2, "same": 1.0})
    assert [one.verdict for one in result.candidates] == [
        None,
        Verdict.FASTER,
        Verdict.SLOWER,
        Verdict.SAME,
    ]
    assert result.reference == "a"
    assert result.unmet is None
    assert result.rounds in LOOKS
    fast = result["twice as fast"]
    assert fast.speedup.low < 2 < fast.speedup.high
    assert fast.speedup.relative_halfwidth < 0.01
    assert fast.time_s.low < 0.5e-3 < fast.time_s.high
    with pytest.raises(KeyError):
        result["none"]


def test_identical_candidates_are_hardly_ever_called_different():
    wrong = 0
    for seed in range(100):
        bench = Bench(seed)
        calls = {name: bench.candidate(name, 6, spread=0.3) for name in ("a", "b")}
        result = autotune.compare(calls, device="cpu", clock=bench, max_seconds=1.5, seed=seed)
        wrong += result["b"].verdict in (Verdict.FASTER, Verdict.SLOWER)
    assert wrong <= 2


def test_blocks_are_long_enough_and_in_random_order():
    bench = Bench()
    result = bench.compare({"a": 0.1, "b": 30.0})
    assert result["a"].calls_per_block * 0.1e-3 >= 0.9 * BLOCK_S
    assert result["b"].calls_per_block == 1
    timed = "".join(bench.order)[-(result["a"].calls_per_block + 1) * result.rounds - 6 : -6]
    starts = {timed[i : i + 2] for i in range(len(timed) - 1)}
    assert {"ab", "ba", "bb"} <= starts  # b ends one round and begins the next, at times


def test_the_order_follows_the_seed():
    orders = []
    for seed in (1, 1, 2):
        bench = Bench()
        bench.compare({"a": 20, "b": 20}, seed=seed)
        orders.append(bench.order[-40:])
    assert orders[0] == orders[1] != orders[2]


def test_a_slow_first_call_is_told_apart_and_not_timed():
    bench = Bench()
    calls = {
        "plain": bench.candidate("plain", 2),
        "compiled": bench.candidate("compiled", 1, first_ms=30_000),
    }
    result = autotune.compare(calls, device="cpu", clock=bench)
    assert result["compiled"].first_call_s == pytest.approx(30)
    assert result["compiled"].speedup.value == pytest.approx(2, rel=0.02)
    assert "compiled: its first call took 30.0 s" in str(result)


def test_the_time_cap_is_kept_and_told():
    bench = Bench()
    result = bench.compare({"a": 900, "b": 1000}, max_seconds=6)
    assert result.rounds == 4
    assert result["b"].verdict is Verdict.UNSURE
    assert "stopped by max_seconds=6: half-width of a ratio unknown" in str(result)


def test_time_cap_with_noise_names_the_width():
    bench = Bench()
    calls = {name: bench.candidate(name, 20, spread=0.5) for name in "ab"}
    result = autotune.compare(calls, device="cpu", clock=bench, max_seconds=2)
    assert "the target is 1.0%" in result.unmet


def test_a_candidate_without_time_is_refused():
    with pytest.raises(TimingError, match=r"'nothing' failed: its calls take no time"):
        Bench().compare({"a": 1, "nothing": 0})


def test_an_error_names_the_candidate():
    def broken(x):
        raise ValueError("wrong shape")

    with pytest.raises(TimingError, match=r"'broken' failed: ValueError: wrong shape") as raised:
        autotune.compare({"fine": torch.neg, "broken": broken}, torch.ones(2))
    assert isinstance(raised.value.__cause__, ValueError)


@pytest.mark.parametrize("first", [True, False])
def test_out_of_memory_is_a_row_and_the_others_are_compared(first):
    bench = Bench()

    def greedy(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    fine = {"a": bench.candidate("a", 1), "b": bench.candidate("b", 2)}
    calls = {"greedy": greedy, **fine} if first else {**fine, "greedy": greedy}
    result = autotune.compare(calls, device="cpu", clock=bench)
    assert result["greedy"].failure == "out of memory"
    assert result["greedy"].time_s is None
    assert result.reference == "a"
    assert result["b"].verdict is Verdict.SLOWER
    assert "greedy: out of memory" in str(result)


def test_out_of_memory_in_the_middle_of_the_timing():
    bench = Bench()
    calls = {"a": bench.candidate("a", 20), "b": bench.candidate("b", 20)}
    plain = calls["b"]

    def late(*_):
        if len(bench.order) > 25:
            raise MemoryError
        return plain()

    result = autotune.compare({**calls, "b": late}, device="cpu", clock=bench)
    assert result["b"].failure == "out of memory"
    assert result["a"].time_s is not None
    assert result.unmet is None


def test_all_out_of_memory():
    def greedy():
        raise MemoryError

    result = autotune.compare({"a": greedy, "b": greedy})
    assert result.reference is None
    assert "all failed" in str(result)
    with pytest.raises(TimingError, match="nothing to plot"):
        result.plot("never.png")


def test_a_candidate_that_changes_its_input_is_told_and_undone():
    x, mask = torch.ones(3), torch.zeros(3, dtype=torch.bool)

    def changes(x, *, inputs):
        inputs["mask"].logical_not_()
        return x.add_(1)

    def plain(x, *, inputs):
        return x + inputs["mask"]

    kwargs = {"inputs": {"mask": mask}}
    result = autotune.compare(
        {"changes": changes, "plain": plain, "also": plain}, (x,), kwargs, max_seconds=0.1
    )
    failure = result["changes"].failure
    assert "args[0]" in failure
    assert "kwargs['inputs']['mask']" in failure
    assert "x.clone()" in failure
    assert x.tolist() == [1, 1, 1]
    assert not mask.any()
    assert result["also"].outputs.max_difference == 0


def quick(candidates, args, **options):
    return autotune.compare(candidates, args, max_seconds=0.1, **options)


def test_outputs_that_differ_are_told():
    result = quick(
        {"a": lambda x: x, "b": lambda x: x + 3e-3, "c": lambda x: x + 1e-6}, (torch.ones(4),)
    )
    assert not result["b"].outputs.close
    assert result["b"].outputs.max_difference == pytest.approx(3e-3, rel=1e-3)
    assert result["c"].outputs.close
    assert "b: output differs by up to 0.003" in str(result)


def named(*tensors):
    return [("output", tensor) for tensor in tensors]


def test_agreement_goes_by_the_coarser_dtype_and_names_what_differs():
    half, single = torch.tensor([1.0009], dtype=torch.float16), torch.tensor([1.0])
    assert agreement(named(half), named(single)).close
    assert not agreement(named(torch.tensor([1.0009])), named(single)).close
    far = agreement(named(half + 1), named(single))
    assert far.note == "output differs by up to 1 (float16, not float32)"
    assert "has shape (2,), not (1,)" in agreement(named(torch.ones(2)), named(single)).note
    assert agreement(named(single, single), named(single)).note == "2 tensors, not 1"
    nan = torch.tensor([float("nan")])
    assert agreement(named(nan), named(nan)).close
    assert not agreement(named(nan), named(single)).close
    whole = torch.tensor([1, 2])
    assert not agreement(named(whole), named(whole + 1)).close


def test_random_numbers_are_drawn_alike_and_the_generator_is_left_alone():
    before = torch.random.get_rng_state()
    dropout = nn.Dropout(0.5)
    result = quick({"a": dropout, "b": lambda x: dropout(x)}, (torch.ones(100),))
    assert result["b"].outputs.max_difference == 0
    torch.random.set_rng_state(before)
    drawn = torch.rand(1)
    torch.random.set_rng_state(before)
    with Contest({}, torch.device("cpu"), flush_cache=False, seed=1, now=lambda: 0.0)._seeded():
        torch.rand(5)
    assert torch.rand(1) == drawn


def test_backward_reaches_inputs_and_all_parameters_and_leaves_no_trace():
    layer, other = nn.Linear(4, 4), nn.Linear(4, 4)
    other.load_state_dict(layer.state_dict())
    layer.weight.grad = torch.full((4, 4), 7.0)
    seen = []
    layer.weight.register_post_accumulate_grad_hook(lambda weight: seen.append(weight.grad.clone()))
    x = torch.randn(2, 4)
    result = quick({"module": other, "refers to one": lambda x: layer(x)}, x, backward=True)
    assert result["refers to one"].outputs.close
    assert len(seen) > 3
    assert all(torch.equal(gradient, seen[0]) for gradient in seen)  # cleared before each call
    assert layer.weight.grad.eq(7).all()
    assert layer.bias.grad is None
    assert other.weight.grad is None
    assert not x.requires_grad
    assert x.grad is None


def test_a_wrong_backward_is_told():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return 2 * x

        @staticmethod
        def backward(context, gradient):
            return 3 * gradient

    result = quick({"right": lambda x: 2 * x, "wrong": Wrong.apply}, torch.ones(3), backward=True)
    assert result["wrong"].outputs.note == "gradient of args[0] differs by up to 1"


def test_a_given_loss_is_used():
    def loss(output):
        return output["logits"].square().mean()

    calls = {"a": lambda x: {"logits": 2 * x}, "b": lambda x: {"logits": x + x}}
    with torch.no_grad():  # gradients were asked for
        result = quick(calls, torch.ones(3), backward=True, loss=loss)
    assert result["b"].outputs.close
    assert result.backward


@pytest.mark.parametrize(
    ("candidates", "args", "options", "message"),
    [
        ({"a": abs}, (1,), {}, "two or more"),
        ([abs, abs], (1,), {}, "two or more"),
        ({"a": abs, "b": 3}, (1,), {}, "'b': got 3"),
        ({"a": abs, "b": abs}, 3, {}, "args: got int"),
        ({"a": abs, "b": abs}, (1,), {"max_seconds": 0}, "max_seconds: got 0"),
        ({"a": abs, "b": abs}, (1,), {"rel_halfwidth": -1}, "rel_halfwidth: got -1"),
        ({"a": abs, "b": abs}, (1,), {"loss": sum}, "backward=True only"),
        ({"a": abs, "b": abs}, (1,), {"backward": True}, "'a' failed: .* no floating tensor"),
        (
            {"a": torch.detach, "b": torch.neg},
            (torch.ones(1),),
            {"backward": True},
            "'a' failed: .*no parameter",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(candidates, args, options, message):
    with pytest.raises(TimingError, match=message):
        autotune.compare(candidates, args, **options)


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="xpu:9"):
        autotune.compare({"a": abs, "b": abs}, (1,), device="xpu:9")


def test_operators_are_counted_on_a_cpu_and_memory_is_not():
    def five(x):
        return (((x + 1) * 2) - 3).relu().sigmoid()

    result = quick({"five small ops": five, "one": torch.neg}, torch.ones(8))
    assert [one.operators for one in result.candidates] == [5, 1]
    assert [one.kernels for one in result.candidates] == [None, None]
    assert [one.memory_bytes for one in result.candidates] == [None, None]
    assert [one.launch_bound for one in result.candidates] == [None, None]
    assert "aten ops" in str(result)


def test_caches_are_flushed_outside_the_time(monkeypatch):
    bench = Bench()
    flushed = []

    class Buffer:
        def zero_(self):
            flushed.append(len(bench.order))
            bench.now_s += 5.0

    monkeypatch.setattr(torch, "empty", lambda *size, **options: Buffer())
    result = bench.compare({"a": 1.0, "b": 2.0}, flush_cache=True, max_seconds=1e5)
    assert result["a"].time_s.value == pytest.approx(1e-3, rel=0.02)
    assert len(flushed) == len(set(flushed)) > 100  # before each call, and once


def test_garbage_is_not_collected_inside_blocks_but_afterwards_again():
    inside = set()
    bench = Bench()
    call = bench.candidate("a", 20)

    def watching(*_):
        inside.add(gc.isenabled())
        return call()

    autotune.compare({"a": watching, "b": call}, device="cpu", clock=bench)
    assert False in inside
    assert gc.isenabled()


def test_the_result_prints_and_can_be_drawn(tmp_path):
    result = Bench().compare({"five small ops": 1.0, "fused": 0.4})
    text = str(result)
    assert text.startswith("calls on cpu, ")
    assert "| fused " in text
    assert "FASTER" in text
    assert " us (" in text
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(result)
    assert "FASTER" in console.export_text()
    result.plot(tmp_path / "compare.svg")
    assert "<!-- five small ops -->" in (tmp_path / "compare.svg").read_text()
