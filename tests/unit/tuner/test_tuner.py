from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from fake_landscape import (
    FACTS,
    FakeLauncher,
    Logbook,
    Watcher,
    environment_stamp,
    failed,
    make_config,
    measured,
    plain_rate,
)

from autotune.config import (
    BaselineConfig,
    BudgetConfig,
    Config,
    ConfirmationConfig,
    NumericsConfig,
    ProbeConfig,
    SearchConfig,
    SpaceConfig,
    StudyConfig,
)
from autotune.errors import BudgetError, ConfigError, OutputError, StudyError, WorkloadError
from autotune.launch.launcher import ScoredInterrupt
from autotune.measurement import (
    FailureKind,
    Measurement,
    NumericsReport,
    Outcome,
    TrialFailure,
)
from autotune.report import headline
from autotune.request import TrialRequest
from autotune.result import Arm, Role, StudyEnd, StudyResult, TrialState
from autotune.search import study as optuna_study
from autotune.search.records import load_records
from autotune.settings import CompileMode, Precision, Settings
from autotune.statistics import Verdict
from autotune.tuner import Tuner

SMALL = SpaceConfig(batch_size=(32, 64), num_workers=(0, 2))


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours may need to run after it."""


@pytest.fixture
def on_disk() -> None:
    """Asked for by the tests that are about what SQLite keeps."""


@pytest.fixture(autouse=True)
def _same_machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr("autotune.tuner.prepare.environment", environment_stamp)
    if "on_disk" not in request.fixturenames:
        # A database takes longer to make than most of these studies to run.
        kept = functools.cache(lambda path: optuna.storages.InMemoryStorage())
        monkeypatch.setattr("autotune.search.study._storage", kept)


class Bench:
    """A tuner with everything around it replaced."""

    def __init__(self, config: Config, folder: Path, launcher: FakeLauncher | None = None) -> None:
        self.launcher = launcher or FakeLauncher()
        self.watcher = Watcher()
        self.logbook = Logbook()
        self.folder = folder
        self.start_s = self.launcher.clock()
        self.tuner = Tuner(
            config,
            folder=folder,
            launcher=self.launcher,
            tracker=self.logbook,
            observer=self.watcher,
            clock=self.launcher.clock,
        )

    def run(self) -> StudyResult:
        return self.tuner.run()

    @property
    def spent_s(self) -> float:
        return self.launcher.clock() - self.start_s

    @property
    def roles(self) -> list[Role]:
        return [role for role, _, _ in self.watcher.started]

    @property
    def searched(self) -> list[Settings]:
        return [s for role, s, _ in self.watcher.started if role is not Role.CONFIRMATION]

    def study(self) -> optuna.Study:
        storage = optuna_study._storage(self.folder / "study.db")
        return optuna.load_study(study_name="model", storage=storage)


@pytest.mark.usefixtures("on_disk")
def test_finds_confirms_and_recommends_what_is_faster(tmp_path: Path) -> None:
    bench = Bench(make_config(), tmp_path, FakeLauncher(noise=0.01))
    result = bench.run()
    assert bench.roles[:2] == [Role.BASELINE, Role.EXPERT]
    assert result.baseline.settings == Settings(batch_size=32)
    assert result.verdict is Verdict.FASTER
    assert result.recommended == result.best.settings
    assert plain_rate(result.recommended) > 5 * plain_rate(result.baseline.settings)
    assert result.confirmation is not None
    assert result.confirmation.versus_baseline.ratio.value > 5
    assert result.ended is StudyEnd.MINUTES
    assert bench.logbook.trials == list(result.trials)
    assert load_records(tmp_path) == result.trials
    assert bench.logbook.aborted == []
    assert bench.launcher.closed == 1
    assert (result.model, result.data) == ("model", "data")


def test_the_plan_is_told_first_and_the_best_is_told_after_each_trial(tmp_path: Path) -> None:
    bench = Bench(make_config(), tmp_path)
    result = bench.run()
    (plan,) = bench.watcher.plans
    assert plan.baseline == Settings(batch_size=32)
    assert plan.budget_s == 480
    assert plan.space_size == 5 * (1 + 3 * 2) * 2 * 2
    assert plan.expert == replace(
        plan.baseline, batch_size=256, num_workers=8, prefetch_factor=2, precision=Precision.BF16
    )
    scores = [best.score for best in bench.watcher.bests if best is not None]
    assert scores == sorted(scores)
    assert bench.watcher.bests[-1] == result.best


def test_no_settings_are_measured_twice_in_the_search(tmp_path: Path) -> None:
    config = make_config(budget=BudgetConfig(minutes=60, trials=30))
    bench = Bench(config, tmp_path)
    result = bench.run()
    assert result.ended is StudyEnd.TRIALS
    assert len(bench.searched) == 1 + 30
    assert len(set(bench.searched)) == len(bench.searched)


@pytest.mark.parametrize("minutes", [2.0, 3.5, 8.0])
def test_the_budget_is_kept_and_the_confirmation_is_in_it(tmp_path: Path, minutes: float) -> None:
    bench = Bench(make_config(budget=BudgetConfig(minutes=minutes)), tmp_path)
    result = bench.run()
    assert bench.spent_s <= minutes * 60
    assert result.elapsed_s == bench.spent_s
    assert result.confirmation is not None
    assert result.confirmation.rounds >= 3


def test_a_winner_that_is_slow_to_measure_can_still_be_confirmed(tmp_path: Path) -> None:
    def rate(settings: Settings) -> float:
        return 900.0 if settings.compile is CompileMode.DEFAULT else 100.0 + settings.batch_size / 9

    bench = Bench(make_config(), tmp_path, FakeLauncher(rate=rate, noise=0.01))
    result = bench.run()
    assert bench.spent_s <= 480
    assert result.best.settings.compile is CompileMode.DEFAULT
    assert result.verdict is Verdict.FASTER


def test_without_noise_the_verdict_comes_after_the_fewest_rounds(tmp_path: Path) -> None:
    bench = Bench(make_config(), tmp_path, FakeLauncher(noise=0.001))
    result = bench.run()
    assert result.confirmation is not None
    assert result.confirmation.rounds == 3
    (arms, rounds), *more = bench.watcher.confirmations
    assert (rounds, more) == (3, [])
    labels = [label for role, _, label in bench.watcher.started if role is Role.CONFIRMATION]
    order = [label.partition(": ")[2] for label in labels]
    names = [arm.value for arm in arms]
    assert order == names + names[::-1] + names
    last = bench.launcher.requests[-1]
    assert (last.measure_ceiling, last.profile_above, last.race_against) == (False, None, None)


def test_the_confirmation_has_a_target_of_its_own_and_tells_the_spread(tmp_path: Path) -> None:
    bench = Bench(make_config(), tmp_path, FakeLauncher(noise=0.1))
    result = bench.run()
    assert result.confirmation is not None
    targets = {
        (record.role is Role.CONFIRMATION, request.probe.rel_halfwidth)
        for record, request in zip(result.trials, bench.launcher.requests, strict=True)
    }
    assert targets == {(False, 0.02), (True, 0.01)}
    spread = result.confirmation.process_spread
    assert spread is not None
    assert spread.low is not None
    assert spread.high is not None
    assert spread.low < 0.1 < spread.high
    assert all(len(arm.errors) == len(arm.rates) for arm in result.confirmation.arms)


def test_noise_brings_more_rounds_up_to_the_cap(tmp_path: Path) -> None:
    def rate(settings: Settings) -> float:
        return 108.0 if settings.num_workers else 100.0

    config = make_config(SpaceConfig(num_workers=(0, 2)), budget=BudgetConfig(minutes=60, trials=2))
    bench = Bench(config, tmp_path, FakeLauncher(rate=rate, noise=0.08, seed=1))
    result = bench.run()
    assert result.confirmation is not None
    assert result.confirmation.rounds == 6
    assert result.verdict is Verdict.UNSURE
    assert result.recommended == result.baseline.settings


def test_nothing_faster_means_keep_your_settings(tmp_path: Path) -> None:
    bench = Bench(make_config(SMALL), tmp_path, FakeLauncher(rate=lambda s: 100.0 - s.num_workers))
    result = bench.run()
    assert result.verdict is Verdict.SAME
    assert result.recommended == result.best.settings == result.baseline.settings
    assert result.confirmation is None
    assert bench.watcher.confirmations == []


def test_a_small_space_is_searched_whole_and_then_ends(tmp_path: Path) -> None:
    bench = Bench(make_config(SMALL, budget=BudgetConfig(minutes=60)), tmp_path)
    result = bench.run()
    assert result.ended is StudyEnd.EXHAUSTED
    assert len(bench.searched) == 4


@pytest.mark.parametrize("sampler", ["random", "grid", "brute_force"])
def test_other_samplers_search_it_whole_too(tmp_path: Path, sampler: str) -> None:
    space = replace(SMALL, prefetch_factor=(2, 4))
    config = make_config(
        space, search=SearchConfig(sampler=sampler), budget=BudgetConfig(minutes=60)
    )
    bench = Bench(config, tmp_path)
    assert bench.run().ended is StudyEnd.EXHAUSTED
    assert len(set(bench.searched)) == len(bench.searched) == 2 * (1 + 2)


def test_lack_of_memory_is_a_constraint_and_larger_batches_are_skipped(tmp_path: Path) -> None:
    def memory(settings: Settings) -> FailureKind | None:
        return FailureKind.OUT_OF_MEMORY if settings.batch_size >= 128 else None

    space = SpaceConfig(batch_size=(32, 64, 128, 256, 512), precision=tuple(Precision)[:4])
    config = make_config(space, budget=BudgetConfig(minutes=60))
    bench = Bench(config, tmp_path, FakeLauncher(failure=memory))
    result = bench.run()
    assert result.ended is StudyEnd.EXHAUSTED
    too_large = [s for s in bench.searched if s.batch_size >= 128]
    for larger in too_large:
        before = too_large[: too_large.index(larger)]
        assert not any(
            s.precision is larger.precision and s.batch_size <= larger.batch_size for s in before
        )
    assert result.failures == {"out_of_memory": len(too_large)}
    pruned = [t for t in bench.study().trials if t.state is optuna.trial.TrialState.PRUNED]
    told = {t.user_attrs["record"] for t in pruned if "record" in t.user_attrs}
    assert told == {t.number for t in result.trials if t.failure is not None}
    assert all(trial.constraints == {"memory": 1.0} for trial in pruned)
    complete = bench.study().get_trials(states=[optuna.trial.TrialState.COMPLETE])
    assert all(trial.constraints == {"memory": -1.0} for trial in complete)


def test_an_outraced_trial_is_pruned_with_the_rate_that_was_seen(tmp_path: Path) -> None:
    bench = Bench(make_config(budget=BudgetConfig(minutes=20)), tmp_path)
    result = bench.run()
    outraced = [t for t in result.trials if t.state is TrialState.PRUNED]
    assert outraced
    values = {t.user_attrs["record"]: t.value for t in bench.study().trials if t.user_attrs}
    assert all(values[trial.number] == trial.score for trial in outraced)
    first_searched = bench.launcher.requests[2]
    assert first_searched.race_against == result.expert.score  # type: ignore[union-attr]


def test_pruning_and_profiling_can_be_turned_off(tmp_path: Path) -> None:
    config = make_config(
        search=SearchConfig(pruning="none"),
        probe=ProbeConfig(profile="none", loader_ceiling="none"),
    )
    bench = Bench(config, tmp_path)
    bench.run()
    assert {request.race_against for request in bench.launcher.requests} == {None}
    assert {request.profile_above for request in bench.launcher.requests} == {None}
    assert {request.loader_above for request in bench.launcher.requests} == {None}


def test_traces_are_for_the_yardsticks_and_what_comes_near_the_best(tmp_path: Path) -> None:
    bench = Bench(make_config(), tmp_path)
    result = bench.run()
    assert result.expert is not None
    assert result.expert.score is not None
    first, second, third = bench.launcher.requests[:3]
    assert (first.profile_above, second.profile_above) == (0.0, 0.0)
    assert third.profile_above == pytest.approx(0.9 * result.expert.score)


def test_the_loader_alone_is_timed_in_the_trials_that_are_looked_at_closely(
    tmp_path: Path,
) -> None:
    bench = Bench(make_config(), tmp_path)
    result = bench.run()
    assert result.expert is not None
    assert result.expert.score is not None
    first, second, third = bench.launcher.requests[:3]
    assert (first.loader_above, second.loader_above) == (0.0, 0.0)
    assert third.loader_above == pytest.approx(0.9 * result.expert.score)
    assert bench.launcher.requests[-1].loader_above is None, "the confirmation has no use for it"


def test_what_may_win_is_held_against_fp32_and_the_users_own_settings_are_not(
    tmp_path: Path,
) -> None:
    bench = Bench(make_config(), tmp_path)
    result = bench.run()
    assert result.expert is not None
    assert result.expert.score is not None
    first, second, third = bench.launcher.requests[:3]
    assert (first.check_above, second.check_above) == (None, 0.0)
    assert third.check_above == pytest.approx(0.9 * result.expert.score)
    again = bench.launcher.requests[-1]
    assert again.check_above is None
    assert again.numerics.guard


def test_the_guard_can_be_turned_off(tmp_path: Path) -> None:
    bench = Bench(make_config(numerics=NumericsConfig(guard=False)), tmp_path)
    bench.run()
    assert {request.check_above for request in bench.launcher.requests} == {None}
    assert not any(request.numerics.guard for request in bench.launcher.requests)


@pytest.mark.parametrize("checked", [True, False])
def test_a_best_that_is_unchecked_is_checked_once_in_the_confirmation(
    tmp_path: Path, checked: bool
) -> None:
    bench = Bench(make_config(), tmp_path)
    run = bench.launcher.run
    report = NumericsReport(losses=(1.0,), difference=0.0 if checked else None)

    def reporting(request: TrialRequest, progress: Any) -> Outcome:
        outcome = run(request, progress)
        return replace(outcome, numerics=report) if isinstance(outcome, Measurement) else outcome

    bench.launcher.run = reporting  # type: ignore[method-assign]
    result = bench.run()
    confirmed = [trial.role is Role.CONFIRMATION for trial in result.trials]
    asked = [
        (request.settings, request.check_above)
        for request, late in zip(bench.launcher.requests, confirmed, strict=True)
        if late and request.check_above is not None
    ]
    assert asked == ([] if checked else [(result.best.settings, 0.0)])


def test_settings_with_other_numbers_than_fp32_never_win(tmp_path: Path) -> None:
    bench = Bench(make_config(), tmp_path)
    run = bench.launcher.run

    def guarded(request: TrialRequest, progress: Any) -> Outcome:
        outcome = run(request, progress)
        if request.settings.precision is Precision.BF16:
            why = "the loss is 2.5"
            report = NumericsReport(losses=(2.5,), difference=0.5, failed=why)
            assert isinstance(outcome, Measurement)
            return replace(outcome, numerics=report)
        return outcome

    bench.launcher.run = guarded  # type: ignore[method-assign]
    result = bench.run()
    failed = [trial for trial in result.trials if trial.settings.precision is Precision.BF16]
    assert failed
    assert {trial.infeasible for trial in failed} == {"the loss is 2.5"}
    assert {trial.state for trial in failed} == {TrialState.PRUNED}
    assert result.recommended.precision is Precision.DEFAULT


@pytest.mark.parametrize(
    ("kind", "knob", "word"),
    [
        (FailureKind.COMPILE_FAILED, "compile", "default"),
        (FailureKind.NON_FINITE, "precision", "bf16"),
        (FailureKind.UNSUPPORTED, "precision", "bf16"),
    ],
)
def test_a_value_that_cannot_work_is_removed(
    tmp_path: Path, kind: FailureKind, knob: str, word: str
) -> None:
    def failure(settings: Settings) -> FailureKind | None:
        return kind if settings.as_dict()[knob] == word else None

    config = make_config(budget=BudgetConfig(minutes=60, trials=25))
    bench = Bench(config, tmp_path, FakeLauncher(failure=failure))
    result = bench.run()
    assert 1 <= result.failures[kind.value] <= 2
    assert any(f"{knob}={word} is left out" in note for note in result.notes)


def test_a_worker_that_died_removes_nothing(tmp_path: Path) -> None:
    def failure(settings: Settings) -> FailureKind | None:
        return FailureKind.WORKER_DIED if settings.precision is Precision.BF16 else None

    config = make_config(budget=BudgetConfig(minutes=60, trials=25))
    bench = Bench(config, tmp_path, FakeLauncher(failure=failure))
    assert bench.run().failures["worker_died"] > 3


def test_the_same_error_of_the_job_again_and_again_ends_the_search(tmp_path: Path) -> None:
    def failure(settings: Settings) -> FailureKind | None:
        return FailureKind.USER_ERROR if settings.num_workers else None

    config = make_config(replace(SMALL, num_workers=(2, 4), prefetch_factor=(2, 3, 4)))
    bench = Bench(config, tmp_path, FakeLauncher(failure=failure))
    result = bench.run()
    assert result.ended is StudyEnd.FAILURES
    assert bench.roles.count(Role.SEARCH) == 3
    assert any("user error: no user_error" in note for note in result.notes)
    assert result.verdict is Verdict.UNSURE
    assert result.recommended == result.baseline.settings


@pytest.mark.parametrize("kind", [FailureKind.DATASET_ERROR, FailureKind.USER_ERROR])
def test_a_job_that_breaks_whatever_the_settings_ends_the_search_with_its_words(
    tmp_path: Path, kind: FailureKind
) -> None:
    launcher = FakeLauncher()

    def failure(settings: Settings) -> FailureKind | None:
        # The mount goes away after a few trials; each value has worked by then.
        return kind if len(launcher.requests) > 12 else None

    launcher.failure = failure
    space = replace(SMALL, num_workers=(0, 2, 4), prefetch_factor=(2, 3, 4, 5, 6))
    bench = Bench(make_config(space, budget=BudgetConfig(minutes=60)), tmp_path, launcher)
    result = bench.run()
    assert result.ended is StudyEnd.FAILURES
    assert result.failures[kind.value] >= 3
    words = f"with a {str(kind).replace('_', ' ')}: no {kind}"
    assert any("the search was ended" in note and words in note for note in result.notes)


@pytest.mark.parametrize(
    ("kind", "stage", "most"),
    [
        (FailureKind.WORKER_DIED, "window", 2),
        (FailureKind.HANG, "window", 2),
        (FailureKind.HANG, "compile", 2),
        (FailureKind.USER_ERROR, "warm-up", 2),
        (FailureKind.CRASH, "window", 4),
    ],
)
def test_a_failure_that_belongs_to_a_value_costs_few_trials_and_ends_no_search(
    tmp_path: Path, kind: FailureKind, stage: str, most: int
) -> None:
    def breaks(settings: Settings) -> bool:
        if kind in (FailureKind.WORKER_DIED, FailureKind.HANG) and stage == "window":
            return settings.num_workers > 0
        if stage == "compile":
            return settings.compile is not CompileMode.OFF
        return settings.precision is Precision.BF16

    class Launcher(FakeLauncher):
        def run(self, request: TrialRequest, progress: Callable[[str], None]) -> Outcome:
            outcome = super().run(request, progress)
            return replace(outcome, stage=stage) if isinstance(outcome, TrialFailure) else outcome

    launcher = Launcher(failure=lambda settings: kind if breaks(settings) else None)
    config = make_config(budget=BudgetConfig(minutes=120, trials=30))
    result = Bench(config, tmp_path, launcher).run()
    assert 1 <= result.failures[kind.value] <= most
    assert result.ended is not StudyEnd.FAILURES
    assert any("is left out from here on" in note for note in result.notes)
    assert not breaks(result.recommended)
    worked = [trial for trial in result.trials if trial.measurement is not None]
    assert len({trial.settings for trial in worked}) > 5, "the other values stay"


def test_a_baseline_that_lacks_memory_is_halved(tmp_path: Path) -> None:
    def memory(settings: Settings) -> FailureKind | None:
        return FailureKind.OUT_OF_MEMORY if settings.batch_size > 8 else None

    config = make_config(SpaceConfig(num_workers=(0, 2)))
    bench = Bench(config, tmp_path, FakeLauncher(failure=memory, rate=lambda s: 9.0))
    result = bench.run()
    assert [s.batch_size for s in bench.searched][:3] == [32, 16, 8]
    assert result.baseline.settings.batch_size == 8
    assert {s.batch_size for s in bench.searched[3:]} == {8}, "the space follows the baseline"
    assert sum("does not fit into memory" in note for note in result.notes) == 2
    assert result.yours.batch_size == 32
    assert "your 32 does not fit into memory, 8 does" in headline(result)


def test_a_baseline_that_is_not_finite_names_its_kind(tmp_path: Path) -> None:
    def spoilt(settings: Settings) -> Measurement:
        report = NumericsReport(losses=(None,), failed="the loss is nan after 0 steps")
        return replace(measured(settings, 10.0), numerics=report)

    class Launcher(FakeLauncher):
        def run(self, request: TrialRequest, progress: Callable[[str], None]) -> Outcome:
            return spoilt(request.settings)

    with pytest.raises(WorkloadError, match="non finite: the loss is nan after 0 steps"):
        Bench(make_config(), tmp_path, Launcher()).run()


def test_a_best_that_fails_in_the_confirmation_is_told_with_what_happened(tmp_path: Path) -> None:
    class Launcher(FakeLauncher):
        def run(self, request: TrialRequest, progress: Callable[[str], None]) -> Outcome:
            again = request.settings in self.ran and request.settings.num_workers > 0
            outcome = super().run(request, progress)
            return failed(request.settings, FailureKind.NON_FINITE) if again else outcome

    config = make_config(SpaceConfig(num_workers=(0, 2)))
    result = Bench(config, tmp_path, Launcher()).run()
    assert result.verdict is Verdict.UNSURE
    assert "failed when it was measured again (non finite: no non_finite)" in headline(result)


def test_a_baseline_near_the_limit_of_memory_is_halved_too(tmp_path: Path) -> None:
    class Tight(FakeLauncher):
        def run(self, request: TrialRequest, progress: Any) -> Outcome:
            outcome = super().run(request, progress)
            if request.settings.batch_size == 32:
                return measured(request.settings, 50.0, alloc_retries=3)
            return outcome

    bench = Bench(make_config(SMALL), tmp_path, Tight())
    assert bench.run().baseline.settings.batch_size == 16


def test_a_baseline_that_never_fits_says_so(tmp_path: Path) -> None:
    launcher = FakeLauncher(failure=lambda settings: FailureKind.OUT_OF_MEMORY)
    bench = Bench(make_config(), tmp_path, launcher)
    with pytest.raises(WorkloadError, match="even a batch of 1"):
        bench.run()
    assert bench.logbook.aborted[0][1] is False
    assert launcher.closed == 1


def test_a_baseline_that_fails_shows_the_users_error(tmp_path: Path) -> None:
    bench = Bench(
        make_config(), tmp_path, FakeLauncher(failure=lambda settings: FailureKind.USER_ERROR)
    )
    with pytest.raises(WorkloadError, match="user error at window: no user_error") as caught:
        bench.run()
    assert str(caught.value).endswith("here")
    assert bench.logbook.aborted[0][0] == str(caught.value)


def test_a_job_that_cannot_be_built_ends_before_anything_is_logged(tmp_path: Path) -> None:
    broken = failed(Settings(batch_size=2), FailureKind.USER_ERROR)
    bench = Bench(make_config(), tmp_path, FakeLauncher(facts=broken))
    with pytest.raises(WorkloadError, match="cannot train one plain step"):
        bench.run()
    assert bench.logbook.open is False
    assert bench.launcher.requests == []


def test_a_budget_without_time_for_a_second_setting_says_what_it_takes(tmp_path: Path) -> None:
    bench = Bench(make_config(budget=BudgetConfig(minutes=1)), tmp_path)
    with pytest.raises(BudgetError, match=r"took 10 s.*budget\.minutes=2 or more"):
        bench.run()
    enough = Bench(make_config(budget=BudgetConfig(minutes=2)), tmp_path / "enough")
    assert enough.run().confirmation is not None


def test_a_budget_that_ends_within_the_baseline_says_what_it_takes(tmp_path: Path) -> None:
    launcher = FakeLauncher(cost_s=lambda settings: 100.0)
    bench = Bench(make_config(budget=BudgetConfig(minutes=1)), tmp_path, launcher)
    with pytest.raises(BudgetError, match=r"not measured after 55 s.*budget\.minutes=8"):
        bench.run()


def test_a_budget_used_up_before_the_baseline_says_what_it_takes(tmp_path: Path) -> None:
    bench = Bench(make_config(budget=BudgetConfig(minutes=0.05)), tmp_path)
    with pytest.raises(BudgetError, match=r"used up before.*budget\.minutes=1 or more"):
        bench.run()
    assert bench.launcher.requests == []


def test_a_budget_that_ends_within_the_first_look_says_what_it_takes(tmp_path: Path) -> None:
    slow = FakeLauncher(facts=failed(Settings(batch_size=2), FailureKind.TIME_LIMIT))
    with pytest.raises(BudgetError, match=r"not trained after 30 s.*budget\.minutes=4\.5"):
        Bench(make_config(budget=BudgetConfig(minutes=0.5)), tmp_path, slow).run()
    with pytest.raises(WorkloadError, match=r"within probe\.limit_s=180 seconds"):
        Bench(make_config(), tmp_path / "enough", slow).run()


def test_a_baseline_over_the_limit_of_a_trial_names_that_limit(tmp_path: Path) -> None:
    launcher = FakeLauncher(cost_s=lambda settings: 200.0)
    with pytest.raises(WorkloadError, match=r"probe\.limit_s=180 seconds"):
        Bench(make_config(), tmp_path, launcher).run()


@pytest.mark.usefixtures("on_disk")
def test_a_killed_tuner_goes_on_and_runs_again_only_what_was_in_flight(tmp_path: Path) -> None:
    def config(*, resume: bool) -> Config:
        return make_config(
            budget=BudgetConfig(minutes=60, trials=12), study=StudyConfig(resume=resume)
        )

    killed = Bench(config(resume=False), tmp_path, FakeLauncher(surprise={6: Killed()}))
    with pytest.raises(Killed):
        killed.run()
    in_flight = killed.searched[-1]
    states = [trial.state for trial in killed.study().trials]
    assert states.count(optuna.trial.TrialState.RUNNING) == 1
    assert killed.launcher.closed == 1

    resumed = Bench(config(resume=True), tmp_path)
    result = resumed.run()
    assert resumed.searched[0] == in_flight
    assert not set(resumed.searched) & set(killed.searched[:-1])
    assert [trial.number for trial in result.trials] == list(range(len(result.trials)))
    assert len([t for t in result.trials if t.role in (Role.SEARCH, Role.EXPERT)]) == 12
    left = [t for t in resumed.study().trials if not t.state.is_finished()]
    assert left == []
    assert any("6 trials are finished already" in note for note in result.notes)


def test_a_resumed_study_is_not_proposed_the_same_settings_again(tmp_path: Path) -> None:
    def config(*, trials: int, resume: bool) -> Config:
        return make_config(
            budget=BudgetConfig(minutes=60, trials=trials),
            study=StudyConfig(resume=resume),
            search=SearchConfig(sampler="random"),
        )

    Bench(config(trials=6, resume=False), tmp_path).run()
    resumed = Bench(config(trials=10, resume=True), tmp_path)
    result = resumed.run()
    searched = [trial for trial in result.trials if trial.role is not Role.CONFIRMATION]
    assert len(searched) == 1 + 10
    assert len(resumed.study().trials) == len(searched), "no proposal was in vain"


def test_a_kill_between_record_and_telling_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*args: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("autotune.search.study.SearchStudy.tell", kill)
        first = Bench(make_config(SMALL), tmp_path)
        with pytest.raises(Killed):
            first.run()
    resumed = Bench(make_config(SMALL, study=StudyConfig(resume=True)), tmp_path)
    result = resumed.run()
    assert not set(resumed.searched) & set(first.searched)
    told = [t.user_attrs["record"] for t in resumed.study().trials if "record" in t.user_attrs]
    searched = [t.number for t in result.trials if t.role is not Role.CONFIRMATION]
    assert sorted(set(told)) == searched


def test_a_killed_baseline_is_measured_on_resuming(tmp_path: Path) -> None:
    first = Bench(make_config(SMALL), tmp_path, FakeLauncher(surprise={0: Killed()}))
    with pytest.raises(Killed):
        first.run()
    resumed = Bench(make_config(SMALL, study=StudyConfig(resume=True)), tmp_path)
    resumed.run()
    assert resumed.roles[0] is Role.BASELINE


def test_a_used_folder_is_refused_without_resume(tmp_path: Path) -> None:
    Bench(make_config(SMALL), tmp_path).run()
    with pytest.raises(StudyError, match=r"study\.resume=true continues it"):
        Bench(make_config(SMALL), tmp_path).run()


def test_resuming_with_another_space_says_what_changed(tmp_path: Path) -> None:
    Bench(make_config(SMALL), tmp_path).run()
    other = make_config(replace(SMALL, num_workers=(0, 4)), study=StudyConfig(resume=True))
    bench = Bench(other, tmp_path)
    with pytest.raises(StudyError) as caught:
        bench.run()
    assert "space: values.num_workers was [0, 2], now [0, 4]" in str(caught.value)
    assert "study.resume=false" in str(caught.value)
    assert bench.launcher.requests == []


def test_resuming_keeps_the_space_though_a_step_takes_another_time(tmp_path: Path) -> None:
    space = SpaceConfig(batch_size="auto")
    Bench(make_config(space), tmp_path).run()
    slower = FakeLauncher(facts=replace(FACTS, seconds_per_sample=0.02))
    Bench(make_config(space, study=StudyConfig(resume=True)), tmp_path, slower).run()


def test_a_record_that_is_no_record_is_named_on_resuming(tmp_path: Path) -> None:
    Bench(make_config(SMALL), tmp_path).run()
    path = tmp_path / "trials" / "0001" / "record.json"
    path.write_text(json.dumps({"number": 1}))
    with pytest.raises(StudyError, match=r"0001/record\.json is not a record"):
        Bench(make_config(SMALL, study=StudyConfig(resume=True)), tmp_path).run()


def test_ctrl_c_in_the_search_returns_the_best_so_far(tmp_path: Path) -> None:
    launcher = FakeLauncher(surprise={4: KeyboardInterrupt()})
    config = make_config(search=SearchConfig(guided_trials=0))
    bench = Bench(config, tmp_path, launcher)
    result = bench.run()
    assert result.ended is StudyEnd.INTERRUPTED
    assert result.verdict is Verdict.UNSURE
    assert result.confirmation is None
    assert result.recommended == result.best.settings != result.baseline.settings
    assert any("not confirmed" in note for note in result.notes)
    assert len(result.trials) == 4
    assert len(launcher.requests) == 5
    last = bench.study().trials[-1]
    assert last.state is optuna.trial.TrialState.FAIL
    assert bench.logbook.aborted == []
    assert launcher.closed == 1


@pytest.mark.parametrize("turn", [0, 2])
def test_ctrl_c_after_a_trials_score_keeps_the_trial(tmp_path: Path, turn: int) -> None:
    class Interrupted(FakeLauncher):
        def run(self, request: TrialRequest, progress: Any) -> Outcome:
            outcome = super().run(request, progress)
            if len(self.requests) > turn:
                assert isinstance(outcome, Measurement)
                raise ScoredInterrupt(outcome)
            return outcome

    bench = Bench(make_config(), tmp_path, Interrupted())
    result = bench.run()
    assert result.ended is StudyEnd.INTERRUPTED
    assert len(result.trials) == len(bench.launcher.requests) == turn + 1
    assert result.trials[-1].measurement is not None
    assert (tmp_path / "trials" / f"{turn:04}" / "record.json").exists()


def test_a_trial_that_says_it_was_interrupted_counts_as_ctrl_c(tmp_path: Path) -> None:
    def failure(settings: Settings) -> FailureKind | None:
        return FailureKind.INTERRUPTED if settings.num_workers else None

    result = Bench(make_config(), tmp_path, FakeLauncher(failure=failure)).run()
    assert result.ended is StudyEnd.INTERRUPTED
    assert len(result.trials) == 1


def test_ctrl_c_in_the_confirmation_leaves_the_best_unconfirmed(tmp_path: Path) -> None:
    config = make_config(SMALL)
    turns = 4 + 3  # the whole space, then within the second round
    bench = Bench(config, tmp_path, FakeLauncher(surprise={turns: KeyboardInterrupt()}))
    result = bench.run()
    assert result.ended is StudyEnd.INTERRUPTED
    assert result.confirmation is None
    assert result.recommended == result.best.settings


def test_ctrl_c_after_enough_rounds_keeps_the_confirmation(tmp_path: Path) -> None:
    def rate(settings: Settings) -> float:
        return 110.0 if settings.num_workers else 100.0

    config = make_config(SpaceConfig(num_workers=(0, 2)), budget=BudgetConfig(minutes=60))
    turns = 2 + 3 * 2 + 1  # both settings, three rounds, then within the fourth
    launcher = FakeLauncher(rate=rate, noise=0.04, seed=0, surprise={turns: KeyboardInterrupt()})
    result = Bench(config, tmp_path, launcher).run()
    assert result.ended is StudyEnd.INTERRUPTED
    assert result.confirmation is not None
    assert result.confirmation.rounds == 3


def test_a_confirmation_that_takes_longer_than_planned_ends_with_the_budget(
    tmp_path: Path,
) -> None:
    class Slower(FakeLauncher):
        def run(self, request: TrialRequest, progress: Any) -> Outcome:
            if not request.measure_ceiling:
                self.clock.now_s += min(12.0, request.limit_s)
                request = replace(request, limit_s=max(0.0, request.limit_s - 12.0))
            return super().run(request, progress)

    bench = Bench(make_config(), tmp_path, Slower(noise=0.0001))
    result = bench.run()
    assert bench.spent_s <= 480
    assert result.confirmation is not None
    assert result.confirmation.rounds == 2, "too few for a verdict, clear as they are"
    assert result.recommended == result.baseline.settings
    assert result.verdict is Verdict.UNSURE
    assert any("the time was up" in note for note in result.notes)


def test_ctrl_c_before_the_baseline_aborts(tmp_path: Path) -> None:
    bench = Bench(make_config(), tmp_path, FakeLauncher(surprise={0: KeyboardInterrupt()}))
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    assert bench.logbook.aborted == [("interrupted by the user", True)]
    assert bench.launcher.closed == 1


def test_a_second_ctrl_c_aborts(tmp_path: Path) -> None:
    class Impatient(Watcher):
        def note(self, text: str) -> None:
            super().note(text)
            if text.startswith("interrupted"):
                raise KeyboardInterrupt

    bench = Bench(make_config(), tmp_path, FakeLauncher(surprise={3: KeyboardInterrupt()}))
    bench.tuner = Tuner(
        make_config(),
        folder=tmp_path,
        launcher=bench.launcher,
        tracker=bench.logbook,
        observer=Impatient(),
        clock=bench.launcher.clock,
    )
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    assert bench.logbook.aborted == [("interrupted by the user", True)]


def test_a_bug_aborts_the_run_and_closes_the_launcher(tmp_path: Path) -> None:
    bench = Bench(make_config(), tmp_path, FakeLauncher(surprise={2: RuntimeError("a bug")}))
    with pytest.raises(RuntimeError, match="a bug"):
        bench.run()
    assert bench.logbook.aborted == [("a bug", False)]
    assert bench.launcher.closed == 1


class FailsLater(FakeLauncher):
    """Settings that fail in the confirmation though they worked in the search."""

    loser: Settings | None = None

    def run(self, request: TrialRequest, progress: Any) -> Outcome:
        outcome = super().run(request, progress)
        if not request.measure_ceiling and request.settings == self.loser:
            return failed(request.settings, FailureKind.OUT_OF_MEMORY)
        return outcome


def test_a_best_that_fails_in_the_confirmation_gives_way_to_the_next(tmp_path: Path) -> None:
    launcher = FailsLater(noise=0.001)
    launcher.loser = Settings(batch_size=64, num_workers=2)
    result = Bench(make_config(SMALL), tmp_path, launcher).run()
    assert result.verdict is Verdict.FASTER
    assert result.best.settings != launcher.loser
    assert result.confirmation is not None
    assert result.confirmation.arm(Arm.BEST).settings == result.best.settings  # type: ignore[union-attr]
    assert any("best settings failed in the confirmation" in note for note in result.notes)


def test_no_time_for_the_next_best_means_unsure(tmp_path: Path) -> None:
    launcher = FailsLater(noise=0.001)
    launcher.loser = Settings(batch_size=64, num_workers=2)
    config = make_config(SMALL, budget=BudgetConfig(minutes=2.3))
    bench = Bench(config, tmp_path, launcher)
    result = bench.run()
    assert result.verdict is Verdict.UNSURE
    assert result.recommended == result.baseline.settings
    assert bench.spent_s <= 2.3 * 60


def test_an_expert_that_fails_in_the_confirmation_is_left_out(tmp_path: Path) -> None:
    def rate(settings: Settings) -> float:
        return plain_rate(settings) * (2 if settings.prefetch_factor == 4 else 1)

    launcher = FailsLater(rate=rate, noise=0.001)
    launcher.loser = Settings(
        batch_size=256, num_workers=8, prefetch_factor=2, precision=Precision.BF16
    )
    config = make_config(budget=BudgetConfig(minutes=60, trials=30))
    result = Bench(config, tmp_path, launcher).run()
    assert result.verdict is Verdict.FASTER
    assert result.confirmation is not None
    assert result.confirmation.arm(Arm.EXPERT) is None
    assert result.confirmation.versus_expert is None


def test_the_expert_takes_part_in_the_confirmation(tmp_path: Path) -> None:
    def rate(settings: Settings) -> float:
        return plain_rate(settings) * (2 if settings.prefetch_factor == 4 else 1)

    config = make_config(budget=BudgetConfig(minutes=60, trials=30))
    result = Bench(config, tmp_path, FakeLauncher(rate=rate, noise=0.001)).run()
    assert result.confirmation is not None
    assert [arm.arm for arm in result.confirmation.arms] == [Arm.BASELINE, Arm.EXPERT, Arm.BEST]
    assert result.confirmation.versus_expert is not None
    assert result.confirmation.versus_expert.ratio.value == pytest.approx(2, rel=0.02)
    assert result.confirmation.expert_versus_baseline is not None


def test_a_baseline_outside_of_the_space_is_measured_all_the_same(tmp_path: Path) -> None:
    config = make_config(
        SpaceConfig(batch_size=(64, 128)),
        baseline=BaselineConfig(batch_size=48),
        search=SearchConfig(expert_guess=False),
    )
    bench = Bench(config, tmp_path)
    result = bench.run()
    assert result.baseline.settings.batch_size == 48
    assert result.expert is None
    assert bench.roles.count(Role.EXPERT) == 0
    told = [trial.params["batch_size"] for trial in bench.study().trials]
    assert set(told) == {64, 128}


def test_the_space_is_chosen_by_the_kind_of_device(tmp_path: Path) -> None:
    config = replace(make_config(), search_spaces={"cpu": SMALL})
    with pytest.raises(ConfigError, match="none for the device kind 'cuda', only for cpu"):
        Bench(config, tmp_path).run()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match=r"output\.dir"):
        Bench(make_config(), tmp_path / "file" / "study").run()


def test_identical_settings_do_not_win(tmp_path: Path) -> None:
    config = make_config(
        SMALL,
        budget=BudgetConfig(minutes=60),
        confirmation=ConfirmationConfig(max_rounds=6),
    )
    verdicts = [
        Bench(
            config,
            tmp_path / str(seed),
            FakeLauncher(rate=lambda settings: 100.0, noise=0.03, seed=seed),
        )
        .run()
        .verdict
        for seed in range(50)
    ]
    assert Verdict.FASTER not in verdicts
    assert len(verdicts) == 50


def test_first_trials_go_one_step_from_the_best(tmp_path: Path) -> None:
    bench = Bench(make_config(search=SearchConfig(guided_trials=3)), tmp_path)
    result = bench.run()
    best = result.baseline if result.expert is None else result.expert
    first = next(trial for trial in result.trials if trial.role is Role.SEARCH)
    if best.score is None or (result.baseline.score or 0) > best.score:
        best = result.baseline
    changed = [
        knob
        for knob, value in first.settings.as_dict().items()
        if best.settings.as_dict()[knob] != value
    ]
    assert len(changed) == 1, "one knob at a time"
