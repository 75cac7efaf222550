"""What finished trials say about settings that were not tried: which ones cannot work."""

from __future__ import annotations

from autotune import objective
from autotune.measurement import FailureKind
from autotune.result import TrialRecord
from autotune.search.blame import ARITHMETIC, Blame
from autotune.settings import Settings

_TORCH_PREFETCH = 2
"""Batches per worker that DataLoader prefetches when no number is given."""

_OTHER_NUMERICS = "other numbers than fp32"


class Exclusions:
    """Settings that need not be tried, with the reason in words.

    - Lack of memory is monotone: what is as large or larger in batch and prefetched batches, the
      rest being the same, lacks it too.
    - A value that is to blame for a failure is removed; see `Blame`.
    """

    def __init__(self) -> None:
        self.blame = Blame()
        self._too_large: list[Settings] = []

    def learn(self, record: TrialRecord) -> None:
        """Take a finished trial into account."""
        if record.infeasible in objective.UNSCORED:
            return
        if lacks_memory(record):
            self._too_large.append(record.settings)
        elif record.failure is not None:
            self.blame.failed(record.settings, record.failure, record.number)
        elif record.infeasible is not None:
            self._learn_infeasible(record)
        else:
            self.blame.worked(record.settings)

    def _learn_infeasible(self, record: TrialRecord) -> None:
        measurement = record.measurement
        numerics = measurement.numerics if measurement is not None else None
        compared = numerics is not None and numerics.difference is not None
        what = "non finite"
        knobs: tuple[str, ...] = ("precision",)
        if measurement is not None and objective.not_compiled(measurement) is not None:
            what, knobs = "not compiled", ("compile",)
        if compared and numerics is not None and numerics.failed is not None:
            what, knobs = _OTHER_NUMERICS, ARITHMETIC
        self.blame.infeasible(record.settings, what, knobs, record.number)

    @property
    def removed(self) -> dict[str, str]:
        """What cannot work here, as in `precision=bf16`, with the reason."""
        values = {
            f"{knob}={str(value).lower()}": why for (knob, value), why in self.blame.removed.items()
        }
        return values | {bound.text: bound.why for bound in self.blame.bounds}

    def reason(self, settings: Settings) -> str | None:
        """Return why `settings` need not be tried, or None when it may be."""
        for smaller in self._too_large:
            if _at_least_as_large(settings, smaller):
                return (
                    f"batch {smaller.batch_size} ran out of memory, "
                    f"and batch {settings.batch_size} needs as much or more"
                )
        return self.blame.reason(settings)

    def lacks_memory(self, settings: Settings) -> bool:
        """Return whether `settings` surely lacks memory."""
        return any(_at_least_as_large(settings, smaller) for smaller in self._too_large)


def lacks_memory(record: TrialRecord) -> bool:
    """Return whether a trial ran out of memory, or came too near to the limit to be used."""
    if record.failure is not None:
        return record.failure.failure is FailureKind.OUT_OF_MEMORY
    measurement = record.measurement
    return measurement is not None and objective.lacks_memory(measurement) is not None


def _at_least_as_large(settings: Settings, other: Settings) -> bool:
    rest, other_rest = settings.as_dict(), other.as_dict()
    for knob in ("batch_size", "num_workers", "prefetch_factor", "persistent_workers"):
        del rest[knob], other_rest[knob]
    return (
        rest == other_rest
        and settings.batch_size >= other.batch_size
        and settings.num_workers >= other.num_workers
        and _batches_ahead(settings) >= _batches_ahead(other)
    )


def _batches_ahead(settings: Settings) -> int:
    return settings.num_workers * (settings.prefetch_factor or _TORCH_PREFETCH)
