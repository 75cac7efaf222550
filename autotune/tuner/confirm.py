"""The confirmation: baseline, best and expert guess measured again, in turns.

Each in a fresh process, each time. The headline comes from here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

from autotune.config import ConfirmationConfig
from autotune.measurement import FailureKind
from autotune.result import Arm, ArmResult, Confirmation, Role, TrialRecord
from autotune.settings import Settings
from autotune.statistics import (
    Comparison,
    Verdict,
    compare,
    geometric_mean_estimate,
    process_spread,
)
from autotune.tuner.session import Session


@dataclass(frozen=True)
class Confirmed:
    """What the confirmation came to.

    Attributes:
        best: The trial that was confirmed, or was to be.
        confirmation: None where not one round was completed, or too few before an interruption.
        interrupted: The user pressed Ctrl-C.
    """

    best: TrialRecord
    confirmation: Confirmation | None
    interrupted: bool


class _RoundEnd(Enum):
    COMPLETE = auto()
    BEST_FAILED = auto()
    EXPERT_FAILED = auto()
    NO_MORE = auto()
    """The time is up, or the baseline itself failed."""


class Confirmer:
    """Confirms the best candidate that can be.

    Args:
        config: Number of rounds.
        session: The run of the study, its search ended.
    """

    def __init__(self, config: ConfirmationConfig, session: Session) -> None:
        self._config = config
        self._session = session
        self._plan = session.plan

    def confirm(self) -> Confirmed:
        """Measure the best candidate against the baseline and the expert guess.

        One that fails now is dropped, and the next best takes its place if time allows. There must
        be a candidate.
        """
        candidates = self._session.ledger.candidates
        yardsticks = self._session.ledger.yardsticks
        for place, best in enumerate(candidates):
            arms = [record for record in yardsticks if record.settings != best.settings]
            needed_s = self._plan.confirmation_s([*arms, best])
            if place > 0 and needed_s > self._plan.left_s(self._session.clock()):
                self._session.note("no time was left to confirm the next best settings")
                break
            plain = self._session.runner.objective.is_plain
            contest = _Contest(_settings_by_arm(arms, best), self._config, plain=plain)
            unchecked = _is_unchecked(best)
            try:
                self._session.observer.confirmation_started(
                    tuple(contest.settings), self._config.min_rounds
                )
                holds = self._run(contest, unchecked=unchecked)
            except KeyboardInterrupt:
                enough = contest.rounds >= self._config.min_rounds
                return Confirmed(best, contest.result() if enough else None, interrupted=True)
            if holds:
                return Confirmed(best, contest.result(), interrupted=False)
        return Confirmed(candidates[0], None, interrupted=False)

    def _run(self, contest: _Contest, *, unchecked: bool) -> bool:
        """Run rounds until the verdict is clear or there can be no more of them.

        Returns:
            Whether the best held: False when it failed.
        """
        while contest.rounds < self._config.max_rounds:
            start_s = self._session.clock()
            end = self._round(contest, unchecked=unchecked and contest.rounds == 0)
            if end is _RoundEnd.BEST_FAILED:
                return False
            if end is _RoundEnd.NO_MORE:
                break
            if end is _RoundEnd.EXPERT_FAILED or contest.rounds < self._config.min_rounds:
                continue
            now_s = self._session.clock()
            if contest.verdict is not Verdict.UNSURE or now_s - start_s > self._plan.left_s(now_s):
                break
        return True

    def _round(self, contest: _Contest, *, unchecked: bool) -> _RoundEnd:
        """Measure each contestant once; the rates count only when all of them have one.

        A best that the search had no time to hold against fp32 is, here.
        """
        seen: dict[Arm, TrialRecord] = {}
        for arm in contest.order():
            limit_s = self._plan.hard_limit_s(self._session.clock())
            if limit_s <= 0:
                self._session.note("the time was up before the confirmation was complete")
                return _RoundEnd.NO_MORE
            record = self._session.runner.run(
                Role.CONFIRMATION,
                contest.settings[arm],
                label=f"confirmation {contest.rounds + 1}: {arm.value}",
                limit_s=limit_s,
                measure_ceiling=False,
                check_above=0.0 if unchecked and arm is Arm.BEST else None,
                rel_halfwidth=self._config.rel_halfwidth,
            )
            if record.score is None:
                return self._failed(contest, arm, record, limit_s)
            seen[arm] = record
        contest.add(seen)
        return _RoundEnd.COMPLETE

    def _failed(
        self, contest: _Contest, arm: Arm, record: TrialRecord, limit_s: float
    ) -> _RoundEnd:
        failure = record.failure
        cut_short = limit_s < self._plan.limit_s
        if failure is not None and failure.failure is FailureKind.TIME_LIMIT and cut_short:
            self._session.note("the time was up before the confirmation was complete")
            return _RoundEnd.NO_MORE
        why = failure.message if failure is not None else record.infeasible
        self._session.note(f"the {arm.value} settings failed in the confirmation: {why}")
        if arm is Arm.BEST:
            return _RoundEnd.BEST_FAILED
        if arm is Arm.EXPERT:
            contest.drop(arm)
            return _RoundEnd.EXPERT_FAILED
        return _RoundEnd.NO_MORE


class _Contest:
    """Contestants and the rates of each in the complete rounds.

    Args:
        settings: What each contestant runs with.
        config: Number of rounds.
        plain: The score is the throughput.
    """

    def __init__(
        self, settings: dict[Arm, Settings], config: ConfirmationConfig, *, plain: bool
    ) -> None:
        self.settings = settings
        self._plain = plain
        self._min_rounds = config.min_rounds
        self._looks = config.max_rounds - config.min_rounds + 1
        self._rates: dict[Arm, list[float]] = {arm: [] for arm in settings}
        self._scores: dict[Arm, list[float]] = {arm: [] for arm in settings}
        self._errors: dict[Arm, list[float | None]] = {arm: [] for arm in settings}

    @property
    def rounds(self) -> int:
        """Number of complete rounds."""
        return len(self._rates[Arm.BEST])

    @property
    def verdict(self) -> Verdict:
        """What can be said of the best against the baseline by now."""
        return self._versus(Arm.BEST, Arm.BASELINE).verdict

    def order(self) -> list[Arm]:
        """Return the order of the next round.

        It is turned around each time, so that a machine that warms up or slows down favours nobody.
        """
        arms = list(self.settings)
        return arms if self.rounds % 2 == 0 else arms[::-1]

    def add(self, seen: dict[Arm, TrialRecord]) -> None:
        """Add a complete round of measured trials."""
        for arm, record in seen.items():
            if record.measurement is not None and record.score is not None:
                self._rates[arm].append(record.measurement.window.samples_per_s)
                self._scores[arm].append(record.score)
                self._errors[arm].append(record.measurement.window.relative_error)

    def drop(self, arm: Arm) -> None:
        """Leave a contestant out from now on, and what it did so far."""
        del self.settings[arm], self._rates[arm], self._scores[arm], self._errors[arm]

    def result(self) -> Confirmation | None:
        """Return the confirmation as it stands, or None without a complete round."""
        if self.rounds == 0:
            return None
        expert = Arm.EXPERT in self.settings
        return Confirmation(
            arms=tuple(
                ArmResult(
                    arm=arm,
                    settings=settings,
                    rates=tuple(self._rates[arm]),
                    throughput=geometric_mean_estimate(self._rates[arm]),
                    scores=() if self._plain else tuple(self._scores[arm]),
                    errors=tuple(self._errors[arm]),
                )
                for arm, settings in self.settings.items()
            ),
            versus_baseline=self._versus(Arm.BEST, Arm.BASELINE),
            versus_expert=self._versus(Arm.BEST, Arm.EXPERT) if expert else None,
            expert_versus_baseline=self._versus(Arm.EXPERT, Arm.BASELINE) if expert else None,
            rounds=self.rounds,
            process_spread=process_spread(list(self._rates.values()), list(self._errors.values())),
        )

    def _versus(self, arm: Arm, other: Arm) -> Comparison:
        seen = compare(self._scores[arm], self._scores[other], looks=self._looks)
        return seen if self.rounds >= self._min_rounds else replace(seen, verdict=Verdict.UNSURE)


def _is_unchecked(record: TrialRecord) -> bool:
    numerics = record.measurement.numerics if record.measurement is not None else None
    return numerics is not None and numerics.difference is None


def _settings_by_arm(yardsticks: list[TrialRecord], best: TrialRecord) -> dict[Arm, Settings]:
    arms = {
        Arm.EXPERT if record.role is Role.EXPERT else Arm.BASELINE: record.settings
        for record in yardsticks
    }
    return arms | {Arm.BEST: best.settings}
