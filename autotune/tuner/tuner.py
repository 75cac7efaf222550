"""One study from the first look at the job to a recommendation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.config import Config
from autotune.durable import cannot_write, remove_unfinished
from autotune.launch.launcher import Launcher
from autotune.request import TrialRequest
from autotune.result import Confirmation, Role, StudyEnd, StudyResult, TrialRecord
from autotune.search.records import check_unused, load_records
from autotune.settings import Settings
from autotune.statistics import Verdict
from autotune.tracking.tracker import Tracker
from autotune.tuner.baseline import INSPECTION_BATCH, measure_baseline, too_small
from autotune.tuner.confirm import Confirmer
from autotune.tuner.disturbance import busy_note, disturbed_note
from autotune.tuner.ledger import Ledger
from autotune.tuner.observer import Observer, StudyPlan
from autotune.tuner.prepare import (
    PreparedJob,
    around,
    facts_of,
    objective_of,
    open_search,
    prepare_job,
)
from autotune.tuner.runner import TrialRunner
from autotune.tuner.scope import preflight_scope
from autotune.tuner.search import SearchRules
from autotune.tuner.session import Session
from autotune.tuner.timeplan import TimePlan

_ELSEWHERE = "Or choose another place with output.dir."


@dataclass(frozen=True)
class _Outcome:
    """What search and confirmation came to."""

    best: TrialRecord
    confirmation: Confirmation | None
    verdict: Verdict
    recommended: Settings
    ended: StudyEnd


class Tuner:
    """Finds faster settings for a job and proves them.

    Args:
        config: What to tune, and how.
        folder: Absolute folder of the study; made if need be. The caller keeps others out of it
            with a `StudyLock`, until the files of the result are written.
        launcher: Runs the trials; closed at the end.
        tracker: Logs them. It is started here, and aborted if the study does not come to a result;
            to finish it is up to the caller, who has the files to attach.
        observer: Watches.
        clock: Seconds on a clock that only goes forward.
        config_text: The configuration as YAML, for the tracker.
    """

    def __init__(
        self,
        config: Config,
        *,
        folder: Path,
        launcher: Launcher,
        tracker: Tracker,
        observer: Observer,
        clock: Callable[[], float] = time.monotonic,
        config_text: str = "",
    ) -> None:
        self._config = config
        self._folder = folder
        self._launcher = launcher
        self._tracker = tracker
        self._config_text = config_text
        self._start_s = clock()
        plan = TimePlan(
            deadline_s=self._start_s + config.budget.minutes * 60,
            rounds=config.confirmation.min_rounds,
            limit_s=config.probe.limit_s,
            window_s=config.probe.window_s,
            rel_halfwidth=config.confirmation.rel_halfwidth,
        )
        self._template = TrialRequest(
            workload=config.workload,
            settings=Settings(batch_size=INSPECTION_BATCH),
            probe=config.probe,
            numerics=config.numerics,
            device=config.device,
            seed=config.seed,
            folder=str(folder),
            limit_s=plan.hard_limit_s(self._start_s),
        )
        ledger = Ledger()
        runner = TrialRunner(
            self._template,
            folder=folder,
            launcher=launcher,
            tracker=tracker,
            observer=observer,
            ledger=ledger,
            clock=clock,
        )
        self._session = Session(
            ledger=ledger, runner=runner, plan=plan, clock=clock, observer=observer
        )
        self._rules = SearchRules(
            trials=config.budget.trials,
            racing=config.search.pruning == "racing",
            profile=config.probe.profile,
            loader_ceiling=config.probe.loader_ceiling,
            guided=config.search.guided_trials,
            guard=config.numerics.guard,
        )

    def run(self) -> StudyResult:
        """Run the study within its budget.

        A first Ctrl-C, once the baseline is measured, ends the search; the best so far is returned.

        Raises:
            WorkloadError: The job does not work with the user's own settings.
            BudgetError: There is no time to measure and confirm even one other setting.
            ConfigError: There is no search space for the device, or it does not tell its energy.
            StudyError: The study in the folder cannot be continued.
            OutputError: A file cannot be written.
            TrackingError: The tracking store cannot be used.
            KeyboardInterrupt: Ctrl-C before the baseline was measured, or for a second time.
        """
        try:
            self._make_folder()
            return self._run()
        except KeyboardInterrupt:
            self._tracker.abort("interrupted by the user", killed=True)
            raise
        except BaseException as error:
            self._tracker.abort(str(error) or type(error).__name__, killed=False)
            raise
        finally:
            self._launcher.close()

    def _run(self) -> StudyResult:
        job = self._prepare()
        self._session.runner.objective = objective_of(
            self._config.objective, job.configured, job.facts.device
        )
        self._session.runner.repeats.expect(job.facts)
        ledger = self._session.ledger
        baseline, opened = ledger.baseline, None
        if baseline is not None:
            # Whether the study can be continued is told before anything is measured.
            opened = open_search(self._config, job, self._folder, self._session, self._rules)
        self._tracker.start(
            self._config.study_name, str(self._folder), self._config_text, job.environment
        )
        self._announce(job)
        before_s = self._session.clock() - self._start_s
        if baseline is None or opened is None:
            baseline = measure_baseline(
                job.baseline,
                self._session,
                spent_s=before_s,
                profile_above=self._rules.profile_above(None),
                loader_above=self._rules.loader_above(None),
            )
            if baseline.settings != job.baseline:
                job = around(job, baseline.settings, self._config)
            opened = open_search(self._config, job, self._folder, self._session, self._rules)
        if opened.search.limit_s() is None and ledger.searched == 0:
            raise too_small(baseline, self._session.plan, before_s)
        try:
            ended = opened.search.run(job.expert, opened.in_flight)
        except KeyboardInterrupt:
            outcome = self._interrupted(ledger.best or baseline)
        else:
            outcome = self._confirm(baseline, ended)
        return self._result(job, baseline, outcome)

    def _prepare(self) -> PreparedJob:
        ledger = self._session.ledger
        if self._config.study.resume:
            remove_unfinished(self._folder)
            ledger.replay(load_records(self._folder), limit_s=self._config.probe.limit_s)
        else:
            check_unused(self._folder)
        scope = preflight_scope(self._config, self._template.limit_s)
        look = replace(self._template, preflight=scope)
        facts = facts_of(self._launcher, look, self._folder, self._session.plan)
        measured = ledger.baseline
        return prepare_job(self._config, facts, measured.settings if measured else None)

    def _announce(self, job: PreparedJob) -> None:
        busy = busy_note(job.facts)
        found = job.facts.preflight.notes
        notes = (*found, *([] if busy is None else [busy]), *job.space.notes)
        self._session.notes.extend(notes)
        self._session.observer.study_started(
            StudyPlan(
                study=self._config.study_name,
                facts=job.facts,
                environment=job.environment,
                budget_s=self._config.budget.minutes * 60,
                space_size=job.space.size,
                knobs=job.space.knobs,
                baseline=job.baseline,
                expert=job.expert,
                notes=notes,
                objective=self._session.runner.objective,
            )
        )
        if finished := len(self._session.ledger.records):
            self._session.note(f"the study is continued: {finished} trials are finished already")

    def _confirm(self, baseline: TrialRecord, ended: StudyEnd) -> _Outcome:
        ledger, note = self._session.ledger, self._session.note
        if not ledger.candidates:
            verdict = Verdict.SAME if len(ledger.measured) > 1 else Verdict.UNSURE
            return _Outcome(baseline, None, verdict, baseline.settings, ended)
        confirmed = Confirmer(self._config.confirmation, self._session).confirm()
        if confirmed.confirmation is None:
            if confirmed.interrupted:
                return self._interrupted(confirmed.best)
            note("the best settings could not be confirmed: keep yours")
            return _Outcome(confirmed.best, None, Verdict.UNSURE, baseline.settings, ended)
        verdict = confirmed.confirmation.versus_baseline.verdict
        return _Outcome(
            best=confirmed.best,
            confirmation=confirmed.confirmation,
            verdict=verdict,
            recommended=(confirmed.best if verdict is Verdict.FASTER else baseline).settings,
            ended=StudyEnd.INTERRUPTED if confirmed.interrupted else ended,
        )

    def _interrupted(self, best: TrialRecord) -> _Outcome:
        if best.role is not Role.BASELINE:
            self._session.note("interrupted: the best settings so far are not confirmed")
        return _Outcome(best, None, Verdict.UNSURE, best.settings, StudyEnd.INTERRUPTED)

    def _result(self, job: PreparedJob, baseline: TrialRecord, outcome: _Outcome) -> StudyResult:
        workload = self._config.workload
        if rejected := self._session.ledger.rejected:
            settings = "setting was" if len(rejected) == 1 else "settings were"
            self._session.note(
                f"{len(rejected)} {settings} faster and not used, as the numbers were not those of "
                f"fp32; the fastest ({rejected[0].settings.label()}): {rejected[0].infeasible}"
            )
        if (disturbed := disturbed_note(self._session.ledger.records)) is not None:
            self._session.note(disturbed)
        return StudyResult(
            study=self._config.study_name,
            folder=str(self._folder),
            model=workload.model_name,
            data=workload.data_name,
            environment=job.environment,
            facts=job.facts,
            trials=self._session.ledger.records,
            baseline=baseline,
            expert=self._session.ledger.expert,
            best=outcome.best,
            confirmation=outcome.confirmation,
            verdict=outcome.verdict,
            recommended=outcome.recommended,
            ended=outcome.ended,
            elapsed_s=self._session.clock() - self._start_s,
            notes=tuple(self._session.notes),
            objective=self._session.runner.objective,
            configured=None if job.configured == baseline.settings else job.configured,
        )

    def _make_folder(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(self._folder, error, _ELSEWHERE) from error
