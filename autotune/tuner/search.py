"""The search: propose, run, tell, until the budget or the space is used up."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.interrupts import held_interrupts
from autotune.measurement import FailureKind
from autotune.result import Role, StudyEnd, TrialRecord
from autotune.search.guess import steps_from
from autotune.search.space import SearchSpace
from autotune.settings import Settings
from autotune.tuner.runner import Tell
from autotune.tuner.session import Session

if TYPE_CHECKING:
    import optuna

    from autotune.search.study import SearchStudy

_PATIENCE = 3
"""Proposals in a row that need not be run before a point is drawn instead of asked for."""

_DRAWS = 50
"""Random points looked at before the whole space is."""

_SAME_FAILURES = 3
"""Trials in a row failing alike that end the search, where nothing in their settings explains
it."""

_HOPELESS = 6
"""Trials in a row failing alike that end it although a value of theirs may be to blame."""

_OF_THE_SETTINGS = (
    FailureKind.OUT_OF_MEMORY,
    FailureKind.BAD_SETTING,
    FailureKind.TIME_LIMIT,
)
"""Failures that lie in the settings, or in the budget, however often they repeat."""

_NEAR_BEST = 0.9
"""Share of the best throughput from which on a trace, the loader's own rate or a check is worth its
time."""


@dataclass(frozen=True)
class SearchRules:
    """What the configuration says of the search.

    Attributes:
        trials: Trials besides the baseline and the confirmation, those of an earlier run of the
            study included; None for no limit.
        racing: Stop a trial that is surely below the best.
        profile: Which trials get a trace: best, all or none.
        loader_ceiling: Which trials time the loader alone: best, all or none.
        guided: Trials that go one step from the best before the sampler proposes.
        guard: Hold the losses of fast trials against fp32 eager.
    """

    trials: int | None
    racing: bool
    profile: str
    loader_ceiling: str
    guided: int
    guard: bool

    def profile_above(self, best: float | None) -> float | None:
        """Return the throughput from which on a trial gets a trace; None for never.

        Args:
            best: Best throughput known; None for a trial that gets one in any case but `none`.
        """
        return _worth_from(self.profile, best)

    def loader_above(self, best: float | None) -> float | None:
        """Return the throughput from which on a trial times its loader alone; None for never.

        Args:
            best: As in `profile_above`.
        """
        return _worth_from(self.loader_ceiling, best)

    def check_above(self, best: float | None) -> float | None:
        """Return the throughput from which on a trial is held against fp32; None for never.

        Args:
            best: Best throughput known; None for a trial that is in any case.
        """
        if not self.guard:
            return None
        return _worth_from("best", best)


def _worth_from(trials: str, best: float | None) -> float | None:
    if trials == "none":
        return None
    return 0.0 if trials == "all" or best is None else _NEAR_BEST * best


class Search:
    """Finds better settings than the baseline.

    Args:
        study: Proposes settings and is told how they did.
        space: What is searched.
        session: The run of the study; the baseline must be in its ledger.
        rules: What the configuration says.
        seed: Seed of the points that are drawn when the sampler repeats itself.
    """

    def __init__(
        self,
        study: SearchStudy,
        space: SearchSpace,
        session: Session,
        *,
        rules: SearchRules,
        seed: int,
    ) -> None:
        self._study = study
        self._space = space
        self._session = session
        self._ledger = session.ledger
        self._rules = rules
        self._rng = random.Random(seed)
        self._noted: set[str] = set()
        self._recent: list[TrialRecord] = []

    def limit_s(self) -> float | None:
        """Return what the next trial may take, or None when the time for another is over."""
        yardsticks, best = self._ledger.yardsticks, self._ledger.best
        among = best is None or best.settings in [record.settings for record in yardsticks]
        plan, now_s = self._session.plan, self._session.clock()
        limit_s = plan.trial_limit_s(now_s, yardsticks, None if among else best)
        return limit_s if limit_s >= plan.typical_s(self._ledger.measured) else None

    def run(self, expert: Settings | None, in_flight: Sequence[Settings]) -> StudyEnd:
        """Run trials until there is a reason to end.

        Args:
            expert: The expert guess, run first if it was not tried yet; None for none.
            in_flight: Settings whose trial was cut off in an earlier run of the study.

        Raises:
            KeyboardInterrupt: The user pressed Ctrl-C. The trial in flight is told as failed.
        """
        try:
            return self._run_all(expert, in_flight)
        except KeyboardInterrupt:
            with held_interrupts():
                self._study.end_running()
            raise

    def _run_all(self, expert: Settings | None, in_flight: Sequence[Settings]) -> StudyEnd:
        firsts = [] if expert is None else [(Role.EXPERT, expert)]
        firsts += [(Role.SEARCH, settings) for settings in in_flight]
        queue = iter(firsts)
        while True:
            self._note_removed()
            if (end := self._end()) is not None:
                return end
            limit_s = self.limit_s()
            if limit_s is None:
                return StudyEnd.MINUTES
            first = next((item for item in queue if self._ledger.untried(item[1])), None)
            if first is not None:
                self._run(*first, trial=None, limit_s=limit_s)
                continue
            proposal = self._propose()
            if proposal is None:
                return StudyEnd.EXHAUSTED
            trial, settings = proposal
            self._run(Role.SEARCH, settings, trial=trial, limit_s=limit_s)

    def _end(self) -> StudyEnd | None:
        if self._rules.trials is not None and self._ledger.searched >= self._rules.trials:
            return StudyEnd.TRIALS
        return StudyEnd.FAILURES if self._fails_alike() else None

    def _fails_alike(self) -> bool:
        """Return whether trial after trial failed for a reason that is not in its settings."""
        alike = list(itertools.takewhile(self._is_like_the_last, reversed(self._recent)))
        if len(alike) < _SAME_FAILURES:
            return False
        exclusions = self._ledger.exclusions
        if exclusions.reason(alike[0].settings) is not None:
            return False  # a value was to blame, and no trial has it from here on
        suspicious = all(map(exclusions.blame.is_under_suspicion, alike[:_SAME_FAILURES]))
        if suspicious and len(alike) < _HOPELESS:
            return False
        failure = alike[0].failure
        if failure is not None:
            kind = failure.failure.value.replace("_", " ")
            self._session.note(
                f"the search was ended: {len(alike)} trials in a row failed with a {kind}: "
                f"{failure.message}"
            )
        return True

    def _is_like_the_last(self, record: TrialRecord) -> bool:
        last = self._recent[-1].failure
        if record.failure is None or last is None or last.failure in _OF_THE_SETTINGS:
            return False
        return record.failure.failure is last.failure

    def _propose(self) -> tuple[optuna.Trial | None, Settings] | None:
        """Return untried settings, with the sampler's trial if they are from there, or None."""
        settling = self._ledger.exclusions.blame.settling(self._space)
        for settings in itertools.chain(settling, self._steps()):
            if self._ledger.untried(settings):
                return None, settings
        for _ in range(_PATIENCE):
            trial, settings = self._study.ask()
            if (known := self._ledger.known(settings)) is not None:
                self._study.tell(trial, known)
            elif self._ledger.exclusions.reason(settings) is not None:
                too_large = self._ledger.exclusions.lacks_memory(settings)
                self._study.skip(trial, lacks_memory=too_large)
            else:
                return trial, settings
        drawn = self._draw()
        return None if drawn is None else (None, drawn)

    def _steps(self) -> Iterable[Settings]:
        """Return the steps from the best, as long as it is their turn."""
        best = self._ledger.best
        if self._ledger.proposed >= self._rules.guided or best is None or best.measurement is None:
            return ()
        return steps_from(best.measurement, self._space)

    def _draw(self) -> Settings | None:
        """Return a random untried point of the space, or None when there is none left."""
        for _ in range(_DRAWS):
            settings = self._space.draw(self._rng)
            if self._ledger.untried(settings):
                return settings
        left = [settings for settings in self._space.all() if self._ledger.untried(settings)]
        return self._rng.choice(left) if left else None

    def _run(
        self, role: Role, settings: Settings, *, trial: optuna.Trial | None, limit_s: float
    ) -> None:
        best = self._ledger.best
        best_score = best.score if best is not None else None
        rate = best.measurement.window.samples_per_s if best and best.measurement else None
        race_against = self._session.runner.objective.race_against(best_score)
        expert = role is Role.EXPERT
        record = self._session.runner.run(
            role,
            settings,
            label="expert guess" if expert else "search",
            limit_s=limit_s,
            # The expert guess is a yardstick: it is measured to the end.
            race_against=race_against if self._rules.racing and not expert else None,
            profile_above=self._rules.profile_above(None if expert else rate),
            loader_above=self._rules.loader_above(None if expert else rate),
            check_above=self._rules.check_above(None if expert else rate),
            tell=self._study.add if trial is None else self._teller(trial),
        )
        if not expert:
            self._recent.append(record)

    def _teller(self, trial: optuna.Trial) -> Tell:
        def tell(record: TrialRecord) -> None:
            self._study.tell(trial, record)

        return tell

    def _note_removed(self) -> None:
        for what, why in self._ledger.exclusions.removed.items():
            if what not in self._noted:
                self._noted.add(what)
                self._session.note(f"{what} is left out from here on: {why}")
