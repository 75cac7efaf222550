"""When compiling has paid for its seconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autotune.measurement import Measurement
from autotune.objective import coldest
from autotune.statistics import Estimate


@dataclass(frozen=True, kw_only=True)
class BreakEven:
    """When compiling has paid for its seconds.

    Attributes:
        compile_s: Seconds that compiling costs a run at its start.
        cold: Whether those are of a cold cache, as in a fresh run; None where torch does not tell.
        samples: Samples after which it has paid; None when it never does. An end of the interval
            is None where there is none: the upper one when it may never pay.
        batch_size: Samples in a step of the compiled setting.
        dataset_size: Samples in a pass over the data; None for a stream.
    """

    compile_s: float
    cold: bool | None
    samples: Estimate | None
    batch_size: int
    dataset_size: int | None

    @property
    def steps(self) -> Estimate | None:
        """Steps of the compiled setting after which it has paid; None when it never does."""
        return None if self.samples is None else _divided(self.samples, self.batch_size)

    @property
    def epochs(self) -> float | None:
        """The same in passes over the data; None for a stream, too."""
        if self.samples is None or not self.dataset_size:
            return None
        return self.samples.value / self.dataset_size


def break_even(
    compiled: Measurement,
    eager: Measurement,
    *,
    seen: Iterable[Measurement] = (),
    dataset_size: int | None = None,
) -> BreakEven | None:
    """Return when compiling has paid for its seconds, or None where those were not measured.

    Samples = compile seconds / (seconds per sample eager - seconds per sample compiled). The
    interval takes both rates at those ends of theirs that are the best, and the worst, for it.

    Args:
        compiled: Of the setting that compiles.
        eager: Of the fastest one that does not.
        seen: What else the study measured: a cold start of the same program may be among it.
        dataset_size: Samples in a pass over the data; None for a stream.
    """
    told = coldest(compiled, seen).compilation
    if told is None:
        return None
    fast, slow = compiled.window.throughput, eager.window.throughput
    value = _paid_after(told.compile_s, fast.value, slow.value)
    low = _paid_after(told.compile_s, fast.high, slow.low)
    high = _paid_after(told.compile_s, fast.low, slow.high)
    return BreakEven(
        compile_s=told.compile_s,
        cold=told.cold,
        samples=None if value is None else Estimate(value, low, high),
        batch_size=compiled.settings.batch_size,
        dataset_size=dataset_size,
    )


def _paid_after(cost_s: float, fast: float | None, slow: float | None) -> float | None:
    if fast is None or slow is None or fast <= slow:
        return None
    return cost_s / (1 / slow - 1 / fast)


def _divided(estimate: Estimate, by: float) -> Estimate:
    low, high = (None if end is None else end / by for end in (estimate.low, estimate.high))
    return Estimate(estimate.value / by, low, high, estimate.level)
