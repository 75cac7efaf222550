"""Whether a trial still gets anywhere: its limit, the limit of its stage, and hangs.

A trial hangs when it neither does a step nor computes for `probe.hang_s`. Long steps, a long build
of a model, compiling and slow decoding all use processor time, so none of them is taken for one; a
lock that is never given, a dead mount and a kernel that never ends use none. On an accelerator the
host may spin while it waits for the device, so there a main process that is past its setup does not
count as computing; its workers and compilers do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autotune.measurement import FailureKind

COMPUTES = 0.02
"""Share of one core from which on a trial computes. A waiting main process with its heartbeat and
idle workers that look after their parent stay below 0.01, a download of 10 MB/s is above."""

FAR_ABOVE = 10.0
"""A step that takes so many times the longest one before is no longer a slow step."""

STAGE_SHARES: Mapping[str, float] = {"start": 0.4, "setup": 0.6, "compile": 0.8}
"""Share of the time left to a trial that a stage may take, so that what follows has a chance. A
stage that is not listed may take all of it; none is ended before `probe.hang_s`."""

_BUSY_WAITING = frozenset({"warm-up", "ceiling", "window", "tail batch", "profile"})
"""Stages in which a main process may wait for its device by spinning."""


@dataclass(frozen=True)
class Use:
    """Processor time of a trial's family so far, seconds.

    Attributes:
        main_s: Of its main process.
        others_s: Of all others: loader workers, compilers.
    """

    main_s: float
    others_s: float


@dataclass(frozen=True)
class Alarm:
    """Why a trial is to be ended.

    Attributes:
        kind: TIME_LIMIT or HANG.
        why: In words, with the setting that set the limit.
    """

    kind: FailureKind
    why: str


class Vigil:
    """Watches one trial.

    Args:
        limit_s: Seconds that the trial may take.
        hang_s: Seconds without any step or computing after which it hangs.
        spins: Whether the main process may spin while it waits for a device.
        use: Tells the family's processor time; None where that can't be told now.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        *,
        limit_s: float,
        hang_s: float,
        spins: bool,
        use: Callable[[], Use | None],
        clock: Callable[[], float],
    ) -> None:
        self._limit_s, self._hang_s, self._spins = limit_s, hang_s, spins
        self._use, self._clock = use, clock
        now = clock()
        self._deadline = now + limit_s
        self._steps = 0
        self._longest_s = 0.0
        self._seen_use: Use | None = None
        self._looked_at = now
        self._alive_at = now
        self.enter("start")

    def enter(self, stage: str) -> None:
        """A stage begins."""
        now = self._clock()
        self.stage = stage
        self._alive_at = now
        left_s = self._deadline - now
        self._stage_s = max(self._hang_s, STAGE_SHARES.get(stage, 1.0) * left_s)
        self._stage_ends = now + self._stage_s

    def beat(self, steps: int) -> None:
        """The trial says how many steps it has done."""
        if steps <= self._steps:
            return
        now = self._clock()
        self._longest_s = max(self._longest_s, (now - self._alive_at) / (steps - self._steps))
        self._steps, self._alive_at = steps, now

    @property
    def left_s(self) -> float:
        """Seconds until the trial's limit."""
        return self._deadline - self._clock()

    def alarm(self) -> Alarm | None:
        """Return why the trial is to be ended now; None while it may go on."""
        now = self._clock()
        if now >= self._deadline:
            return Alarm(
                FailureKind.TIME_LIMIT,
                f"not done after {self._limit_s:.3g} s (it was in: {self.stage}); killed. "
                "probe.limit_s and budget.minutes set this limit.",
            )
        if now >= self._stage_ends:
            return Alarm(
                FailureKind.TIME_LIMIT,
                f"{self.stage} was not done after {self._stage_s:.3g} s of the {self._limit_s:.3g} "
                "s that the trial had; killed, since nothing of use fits into the rest. "
                "A larger probe.limit_s (and budget.minutes) gives it more.",
            )
        self._look(now)
        silent_s = now - self._alive_at
        patience_s = max(self._hang_s, FAR_ABOVE * self._longest_s)
        if silent_s < patience_s:
            return None
        return Alarm(
            FailureKind.HANG,
            f"no step and no computing for {silent_s:.3g} s in: {self.stage}; killed. Usual "
            "reasons: a lock or file system that never answers, workers that wait for each other, "
            "a kernel that never ends. A job that waits this long on purpose needs a larger "
            "probe.hang_s.",
        )

    def _look(self, now: float) -> None:
        """See whether the family has computed since the last look."""
        if now - self._looked_at < 1.0:
            return
        use, before = self._use(), self._seen_use
        passed_s, self._looked_at, self._seen_use = now - self._looked_at, now, use
        if use is None or before is None:
            return
        spent_s = max(0.0, use.others_s - before.others_s)
        if not (self._spins and self.stage in _BUSY_WAITING):
            spent_s += max(0.0, use.main_s - before.main_s)
        if spent_s >= COMPUTES * passed_s:
            self._alive_at = now
