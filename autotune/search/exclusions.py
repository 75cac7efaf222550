"""What finished trials say about settings that were not tried: which ones cannot work."""

from __future__ import annotations

from dataclasses import dataclass

from autotune import objective
from autotune.measurement import FailureKind
from autotune.result import TrialRecord
from autotune.settings import CompileMode, Settings

_TORCH_PREFETCH = 2
"""Batches per worker that DataLoader prefetches when no number is given."""

_ARITHMETIC = ("precision", "channels_last", "fused_optimizer", "compile")

_SUSPECTS: dict[FailureKind, tuple[str, ...]] = {
    FailureKind.COMPILE_FAILED: ("compile",),
    FailureKind.TIME_LIMIT: ("compile",),
    FailureKind.NON_FINITE: ("precision",),
    FailureKind.UNSUPPORTED: _ARITHMETIC,
    FailureKind.USER_ERROR: _ARITHMETIC,
}
"""Settings whose values may be to blame for a failure of that kind. An error of the user's code is
among them: it works with the baseline, and many a model raises under autocast only."""

_NOT_FINITE = "non finite"
_OTHER_NUMERICS = "other numbers than fp32"

_COMPILING = "compile"
"""Stage of a trial in which running out of time is the compiler's doing."""


@dataclass(frozen=True)
class _Suspicion:
    """A trial that failed for a reason that lies in one of its values."""

    settings: Settings
    suspects: tuple[str, ...]
    what: str
    number: int


class Exclusions:
    """Settings that need not be tried, with the reason in words.

    - Lack of memory is monotone: what is as large or larger in batch and prefetched batches, the
      rest being the same, lacks it too.
    - A value is removed when a failure can be due to nothing else: every other suspect has worked
      in some trial. While two values are under suspicion neither is removed; a later trial that
      works with one of them settles it. A worker that died says nothing about a value.
    """

    def __init__(self) -> None:
        self._too_large: list[Settings] = []
        self._suspicions: list[_Suspicion] = []
        self._worked: set[tuple[str, object]] = set()

    def learn(self, record: TrialRecord) -> None:
        """Take a finished trial into account."""
        settings, failure = record.settings, record.failure
        if record.infeasible in objective.UNSCORED:
            return
        if lacks_memory(record):
            self._too_large.append(settings)
        if failure is not None:
            out_of_time = failure.failure is FailureKind.TIME_LIMIT
            if out_of_time and failure.stage != _COMPILING:
                return
            if failure.failure in _SUSPECTS:
                suspects = _SUSPECTS[failure.failure]
                what = failure.failure.value.replace("_", " ")
                self._suspicions.append(_Suspicion(settings, suspects, what, record.number))
        elif record.infeasible is not None and not lacks_memory(record):
            numerics = record.measurement.numerics if record.measurement is not None else None
            if numerics is not None and numerics.difference is not None:
                suspects, what = _ARITHMETIC, _OTHER_NUMERICS
            else:
                suspects, what = _SUSPECTS[FailureKind.NON_FINITE], _NOT_FINITE
            self._suspicions.append(_Suspicion(settings, suspects, what, record.number))
        else:
            self._worked |= set(settings.as_dict().items())

    @property
    def removed(self) -> dict[tuple[str, object], str]:
        """Values that cannot work here, each as setting and plain value, with the reason."""
        found: dict[tuple[str, object], str] = {}
        for suspicion in self._suspicions:
            blamed = self._blamed(suspicion)
            if len(blamed) == 1:
                found.setdefault(blamed[0], f"{suspicion.what} in trial {suspicion.number}")
        return found

    def reason(self, settings: Settings) -> str | None:
        """Return why `settings` need not be tried, or None when it may be."""
        for smaller in self._too_large:
            if _at_least_as_large(settings, smaller):
                return (
                    f"batch {smaller.batch_size} ran out of memory, "
                    f"and batch {settings.batch_size} needs as much or more"
                )
        plain = settings.as_dict()
        for (knob, value), why in self.removed.items():
            if plain[knob] == value:
                return f"{knob}={str(value).lower()} does not work here ({why})"
        return None

    def lacks_memory(self, settings: Settings) -> bool:
        """Return whether `settings` surely lacks memory."""
        return any(_at_least_as_large(settings, smaller) for smaller in self._too_large)

    def _blamed(self, suspicion: _Suspicion) -> list[tuple[str, object]]:
        plain = suspicion.settings.as_dict()
        return [
            (knob, plain[knob])
            for knob in suspicion.suspects
            # Off is the absence of an option: it cannot be to blame.
            if plain[knob] not in (False, str(CompileMode.OFF))
            and (knob, plain[knob]) not in self._worked
        ]


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
