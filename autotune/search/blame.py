"""Which value of a setting is to blame for failed trials, and which trial would settle it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autotune.measurement import FailureKind, TrialFailure
from autotune.result import TrialRecord
from autotune.search.space import SearchSpace
from autotune.settings import CompileMode, Settings

ARITHMETIC = ("precision", "compile", "fused_optimizer", "channels_last")
"""Settings that decide how numbers are computed, the likeliest to be to blame first."""

_SUSPECTS: dict[FailureKind, tuple[str, ...]] = {
    FailureKind.COMPILE_FAILED: ("compile",),
    FailureKind.NON_FINITE: ("precision",),
    FailureKind.UNSUPPORTED: ARITHMETIC,
    FailureKind.USER_ERROR: (*ARITHMETIC, "batch_size"),
    FailureKind.CRASH: (
        *ARITHMETIC,
        "batch_size",
        "pin_memory",
        "cudnn_benchmark",
        "num_workers",
    ),
    FailureKind.WORKER_DIED: ("num_workers",),
}
"""Settings whose values may be to blame for a failure of that kind, the likeliest first. An error
of the user's code is among them: it works with the baseline, and many a model raises under autocast
only, or has a kernel that a very large batch is too much for. An error of the dataset is not: the
sample is broken whoever reads it."""

_AT_COMPILING = (FailureKind.TIME_LIMIT, FailureKind.HANG)
_COMPILING = "compile"
"""Stage of a trial in which running out of time is the compiler's doing."""

_BY_CHANCE = (FailureKind.CRASH, FailureKind.WORKER_DIED, FailureKind.HANG)
"""Failures that a machine makes now and then: they must come twice to count against a value."""

_ORDERED = ("batch_size", "num_workers")
"""Settings whose larger values ask for more of the same: what is too much stays so above."""

_Suspect = tuple[str, object]
"""A setting with its plain value; an ordered one with None, for its value and all above."""


@dataclass(frozen=True)
class Bound:
    """Values of an ordered setting that cannot work here.

    Attributes:
        knob: The setting.
        least: The smallest such value; all above it are out as well.
        why: The reason, in words.
    """

    knob: str
    least: int
    why: str

    @property
    def text(self) -> str:
        """The values in words."""
        return f"{self.knob} of {self.least} or more"


@dataclass(frozen=True)
class _Suspicion:
    """A trial that failed for a reason that may lie in one of its values."""

    settings: Settings
    knobs: tuple[str, ...]
    what: str
    number: int
    needed: int = 1
    exact: bool = False


class Blame:
    """Learns from trials that failed, and from those that did not.

    A value is to blame when a failure can be due to nothing else: every other suspect has worked
    in some trial. While two values are under suspicion neither is removed; a trial that works with
    one of them settles it. What fails by chance now and then must fail twice.
    """

    def __init__(self) -> None:
        self._suspicions: list[_Suspicion] = []
        self._worked: set[_Suspect] = set()
        self._largest = {"batch_size": 0, "num_workers": 0}

    def worked(self, settings: Settings) -> None:
        """Take in that these settings work."""
        plain = settings.as_dict()
        self._worked |= set(plain.items())
        self._largest = {knob: max(most, plain[knob]) for knob, most in self._largest.items()}

    def failed(self, settings: Settings, failure: TrialFailure, number: int) -> None:
        """Take in that these settings failed, for another reason than memory."""
        what = failure.failure.value.replace("_", " ")
        if failure.setting is not None:
            self._suspicions.append(
                _Suspicion(settings, (failure.setting,), what, number, exact=True)
            )
        elif knobs := _suspects(failure):
            needed = 2 if failure.failure in _BY_CHANCE else 1
            self._suspicions.append(_Suspicion(settings, knobs, what, number, needed))

    def infeasible(
        self, settings: Settings, what: str, knobs: tuple[str, ...], number: int
    ) -> None:
        """Take in that these settings run, and must not be used.

        Args:
            settings: What ran.
            what: What is wrong, in words.
            knobs: Settings that may be the reason.
            number: Of the trial.
        """
        self._suspicions.append(_Suspicion(settings, knobs, what, number))

    @property
    def removed(self) -> dict[tuple[str, object], str]:
        """Values that cannot work here, each as setting and plain value, with the reason."""
        found: dict[_Suspect, str] = {}
        for suspicion in self._suspicions:
            blamed = self._blamed(suspicion)
            if blamed is not None and blamed[1] is not None:
                found.setdefault(blamed, f"{suspicion.what} in trial {suspicion.number}")
        return found

    @property
    def bounds(self) -> list[Bound]:
        """Values of ordered settings that cannot work here."""
        found: dict[str, Bound] = {}
        for suspicion in self._suspicions:
            blamed = self._blamed(suspicion)
            if blamed is None or blamed[1] is not None:
                continue
            knob = blamed[0]
            least = suspicion.settings.as_dict()[knob]
            if knob == "num_workers" and not self._largest[knob]:
                least = 1  # no number of workers ever worked
            if knob not in found or least < found[knob].least:
                trials = [each.number for each in self._alike(suspicion, blamed)]
                numbers = " and ".join(map(str, trials[:2]))
                word = "trial" if len(trials) == 1 else "trials"
                found[knob] = Bound(knob, least, f"{suspicion.what} in {word} {numbers}")
        return list(found.values())

    def reason(self, settings: Settings) -> str | None:
        """Return why `settings` cannot work, or None when it may."""
        plain = settings.as_dict()
        for (knob, value), why in self.removed.items():
            if plain[knob] == value:
                return f"{knob}={str(value).lower()} does not work here ({why})"
        for bound in self.bounds:
            if plain[bound.knob] >= bound.least:
                return f"{bound.text} does not work here ({bound.why})"
        return None

    def is_under_suspicion(self, record: TrialRecord) -> bool:
        """Return whether a failed trial's failure may be due to one of its values."""
        if record.failure is None:
            return False
        settings = record.failure.settings
        return bool(self._open(_Suspicion(settings, _suspects(record.failure), "", record.number)))

    def settling(self, space: SearchSpace) -> Iterator[Settings]:
        """Yield trials that tell which of several suspects is to blame, the latest failure's first.

        Each is a failed one with one suspect as in the baseline: if it works, all the others of its
        values are cleared.
        """
        for suspicion in reversed(self._suspicions):
            suspects = self._open(suspicion)
            if len(suspects) < 2 or self.reason(suspicion.settings) is not None:
                continue
            if sum(each.what == suspicion.what for each in self._suspicions) < suspicion.needed:
                continue
            usual = space.fixed.as_dict()
            for knob, _ in suspects:
                changed = space.complete(suspicion.settings.as_dict() | {knob: usual[knob]})
                if space.contains(changed):
                    yield changed

    def _blamed(self, suspicion: _Suspicion) -> _Suspect | None:
        """Return what a failure must be due to, or None while that is not known."""
        suspects = self._open(suspicion)
        if len(suspects) != 1:
            return None
        enough = len(self._alike(suspicion, suspects[0])) >= suspicion.needed
        return suspects[0] if enough else None

    def _alike(self, suspicion: _Suspicion, suspect: _Suspect) -> list[_Suspicion]:
        """Return the failures of the same kind that the same suspect may be to blame for."""
        same = (each for each in self._suspicions if each.what == suspicion.what)
        return [each for each in same if suspect in self._open(each)]

    def _open(self, suspicion: _Suspicion) -> list[_Suspect]:
        """Return the suspects of a failure that have not worked anywhere."""
        plain = suspicion.settings.as_dict()
        found: list[_Suspect] = []
        for knob in suspicion.knobs:
            value = plain[knob]
            if knob == "num_workers" or (knob in _ORDERED and not suspicion.exact):
                if value > self._largest[knob]:
                    found.append((knob, None))
            # Off is the absence of an option: it cannot be to blame.
            elif value not in (False, str(CompileMode.OFF)) and (knob, value) not in self._worked:
                found.append((knob, value))
        return found


def _suspects(failure: TrialFailure) -> tuple[str, ...]:
    if failure.failure in _AT_COMPILING and failure.stage == _COMPILING:
        return ("compile",)
    if failure.failure is FailureKind.HANG:
        return ("num_workers",)
    return _SUSPECTS.get(failure.failure, ())
