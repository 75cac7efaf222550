"""Runs one trial and keeps its record: on disk, in the ledger, in the tracking store."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from autotune.durable import cannot_write
from autotune.interrupts import held_interrupts
from autotune.launch.launcher import Launcher, ScoredInterrupt
from autotune.measurement import FailureKind, Measurement, Outcome, TrialFailure
from autotune.objective import Objective, infeasible
from autotune.request import TrialRequest
from autotune.result import Role, TrialRecord
from autotune.search.records import trial_folder, write_record
from autotune.settings import Settings
from autotune.tracking.tracker import Tracker
from autotune.tuner.disturbance import Repeats
from autotune.tuner.ledger import Ledger
from autotune.tuner.observer import Observer

Tell = Callable[[TrialRecord], None]
"""Is told of a finished trial once its record is on disk."""


class TrialRunner:
    """Runs trials one after the other.

    Args:
        template: A request with everything that the trials of a study share.
        folder: Folder of the study.
        launcher: Gives each trial its processes.
        tracker: Logs finished trials.
        observer: Watches.
        ledger: Takes finished trials in.
        clock: Seconds on a clock that only goes forward.

    Attributes:
        objective: What is maximised. Its samples are known once the baseline's batch size is.
    """

    def __init__(
        self,
        template: TrialRequest,
        *,
        folder: Path,
        launcher: Launcher,
        tracker: Tracker,
        observer: Observer,
        ledger: Ledger,
        clock: Callable[[], float],
    ) -> None:
        self._template = template
        self._folder = folder
        self._launcher = launcher
        self._tracker = tracker
        self._observer = observer
        self._ledger = ledger
        self._clock = clock
        self._interrupted = False
        self.repeats = Repeats()
        self.objective = Objective()

    def run(
        self,
        role: Role,
        settings: Settings,
        *,
        label: str,
        limit_s: float,
        race_against: float | None = None,
        profile_above: float | None = None,
        loader_above: float | None = None,
        check_above: float | None = None,
        measure_ceiling: bool = True,
        rel_halfwidth: float | None = None,
        tell: Tell | None = None,
    ) -> TrialRecord:
        """Run a trial to its end and return its record, which is on disk by then.

        Args:
            role: Why it is run.
            settings: What it runs with.
            label: The same for the screen.
            limit_s: Wall-clock limit.
            race_against: As in `TrialRequest`.
            profile_above: As in `TrialRequest`.
            loader_above: As in `TrialRequest`.
            check_above: As in `TrialRequest`.
            measure_ceiling: As in `TrialRequest`.
            rel_halfwidth: As in `ProbeConfig`; None for that of the template.
            tell: Called between writing the record and logging it.

        Raises:
            KeyboardInterrupt: The trial was stopped from outside before it had a score: there is no
                record. Or the one before it was after that: this one is not begun.
            OutputError: The trial's files cannot be written.
        """
        if self._interrupted:
            raise KeyboardInterrupt
        number = self._ledger.next_number
        probe = self._template.probe
        if rel_halfwidth is not None:
            probe = replace(probe, rel_halfwidth=rel_halfwidth)
        request = replace(
            self._template,
            settings=settings,
            probe=probe,
            folder=str(self._new_folder(number)),
            limit_s=limit_s,
            race_against=race_against,
            profile_above=profile_above,
            loader_above=loader_above,
            check_above=check_above,
            measure_ceiling=measure_ceiling,
            repeat_disturbed=self.repeats.worthwhile,
        )
        self._observer.trial_started(number, role, settings, label)
        started_at, start_s = time.time(), self._clock()
        outcome = self._outcome(request)
        total_s = self._clock() - start_s
        if isinstance(outcome, TrialFailure) and outcome.failure is FailureKind.INTERRUPTED:
            raise KeyboardInterrupt
        self.repeats.learn(outcome)
        record = self._record(number, role, outcome, started_at, total_s)
        with held_interrupts():
            write_record(self._folder, record)
            self._ledger.add(record)
            if tell is not None:
                tell(record)
        self._tracker.log_trial(record)
        self._observer.trial_finished(record, self._ledger.best)
        return record

    def _outcome(self, request: TrialRequest) -> Outcome:
        try:
            return self._launcher.run(request, self._observer.trial_progress)
        except ScoredInterrupt as interrupt:
            self._interrupted = True
            return interrupt.measurement

    def _record(
        self, number: int, role: Role, outcome: Outcome, started_at: float, total_s: float
    ) -> TrialRecord:
        why = score = None
        if isinstance(outcome, Measurement):
            why = infeasible(outcome) or self.objective.lacking(outcome)
            if why is None:
                score = self.objective.score(outcome, self._ledger.measurements)
        return TrialRecord(
            number=number,
            role=role,
            outcome=outcome,
            score=score,
            infeasible=why,
            started_at=started_at,
            total_s=total_s,
            folder=trial_folder(number),
            metric=self.objective.key,
        )

    def _new_folder(self, number: int) -> Path:
        """Return the trial's folder, empty: one that was killed may have left files in it."""
        folder = self._folder / trial_folder(number)
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        except OSError as error:
            raise cannot_write(
                folder, error, "study.resume=true then goes on from the last finished trial."
            ) from error
        return folder
