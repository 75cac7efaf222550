"""Studies that maximise something else than plain throughput."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import optuna
import pytest
from factories import FACTS
from fake_landscape import FakeLauncher, Logbook, Watcher, environment_stamp, make_config

from autotune.config import (
    BaselineConfig,
    BudgetConfig,
    Config,
    ObjectiveConfig,
    SpaceConfig,
    StudyConfig,
)
from autotune.errors import ConfigError, StudyError
from autotune.measurement import CompileReport, Costs, MachineState, Measurement, Outcome
from autotune.request import TrialRequest
from autotune.result import Arm, Role, StudyResult
from autotune.settings import CompileMode, Settings
from autotune.statistics import Verdict
from autotune.tuner import Tuner

SPACE = SpaceConfig(batch_size=(32, 64), compile=(CompileMode.OFF, CompileMode.DEFAULT))


@pytest.fixture(autouse=True)
def _same_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.tuner.prepare.environment", environment_stamp)
    kept = functools.cache(lambda path: optuna.storages.InMemoryStorage())
    monkeypatch.setattr("autotune.search.study._storage", kept)


def rate(settings: Settings) -> float:
    return 1500.0 if settings.compile is not CompileMode.OFF else 1000.0 + settings.batch_size


@dataclass
class CostlyLauncher(FakeLauncher):
    """Compiling takes 40 s when a program is new; energy by formula, if at all."""

    joules: Callable[[Settings], float | None] = lambda settings: None

    def run(self, request: TrialRequest, progress: Callable[[str], None]) -> Outcome:
        outcome = super().run(request, progress)
        if not isinstance(outcome, Measurement):
            return outcome
        settings = request.settings
        compiled = settings.compile is not CompileMode.OFF
        known = [each.settings for each in self.requests[:-1]]
        cold = settings not in known
        first_s = (40.0 if cold else 4.0) if compiled else 1.0
        report = CompileReport(
            compile_s=first_s, graph_breaks={}, cache_hits=int(not cold), cache_misses=int(cold)
        )
        return replace(
            outcome,
            costs=Costs(first_step_s=first_s),
            compilation=report if compiled else None,
            window=replace(outcome.window, machine=MachineState(energy_j=self.joules(settings))),
        )


def study(
    folder: Path, objective: ObjectiveConfig, launcher: CostlyLauncher | None = None, **more: object
) -> tuple[StudyResult, CostlyLauncher]:
    launcher = launcher or CostlyLauncher(rate=rate)
    config: Config = make_config(
        SPACE,
        objective=objective,
        baseline=BaselineConfig(batch_size=32),
        budget=BudgetConfig(minutes=60),
        **more,
    )
    tuner = Tuner(
        config,
        folder=folder,
        launcher=launcher,
        tracker=Logbook(),
        observer=Watcher(),
        clock=launcher.clock,
    )
    return tuner.run(), launcher


def test_a_short_training_is_not_told_to_compile(tmp_path: Path) -> None:
    plain, _ = study(tmp_path / "plain", ObjectiveConfig())
    assert plain.recommended.compile is CompileMode.DEFAULT
    short, _ = study(tmp_path / "short", ObjectiveConfig(planned_steps=100))
    assert short.objective.planned_samples == 3200  # in steps of the baseline's 32
    assert short.recommended == Settings(batch_size=64)
    assert short.verdict is Verdict.FASTER
    long, _ = study(tmp_path / "long", ObjectiveConfig(planned_steps=1_000_000))
    assert long.recommended.compile is CompileMode.DEFAULT


def test_a_confirmation_charges_the_cold_start_though_its_own_was_warm(tmp_path: Path) -> None:
    result, _ = study(tmp_path, ObjectiveConfig(planned_steps=20_000))
    assert result.recommended.compile is CompileMode.DEFAULT
    assert result.confirmation is not None
    best = result.confirmation.arm(Arm.BEST)
    assert best is not None
    planned = 20_000 * 32
    assert best.score.value == pytest.approx(planned / (planned / 1500.0 + 40.0))
    assert best.throughput.value == pytest.approx(1500.0)
    assert result.confirmation.versus_baseline.ratio.value < 1500.0 / 1032.0


def test_energy_picks_what_is_frugal_and_runs_no_race(tmp_path: Path) -> None:
    def joules(settings: Settings) -> float:
        samples = 8 * settings.batch_size
        return (
            samples
            / (10.0 if settings.compile is CompileMode.OFF else 3.0)
            / (1 + settings.batch_size / 64)
        )

    launcher = CostlyLauncher(rate=rate, joules=joules)
    result, _ = study(tmp_path, ObjectiveConfig(metric="energy"), launcher)
    assert result.recommended == Settings(batch_size=64)
    assert result.best.metric == "samples_per_joule"
    assert result.best.score == pytest.approx(20.0)
    assert result.confirmation is not None
    assert result.confirmation.versus_baseline.ratio.value == pytest.approx(20.0 / 15.0)
    assert {request.race_against for request in launcher.requests} == {None}


def test_energy_that_the_device_does_not_tell_is_refused_at_the_baseline(tmp_path: Path) -> None:
    launcher = CostlyLauncher(rate=rate)
    with pytest.raises(ConfigError, match="got energy, but the device does not tell its energy"):
        study(tmp_path, ObjectiveConfig(metric="energy"), launcher)
    assert len(launcher.requests) == 1


def test_energy_is_refused_on_a_cpu_before_anything_is_measured(tmp_path: Path) -> None:
    cpu = replace(FACTS, device=replace(FACTS.device, kind="cpu", name="a CPU"))
    launcher = CostlyLauncher(rate=rate, facts=cpu)
    with pytest.raises(ConfigError, match=r"objective\.metric: got energy, but a CPU is"):
        study(tmp_path, ObjectiveConfig(metric="energy"), launcher)
    assert launcher.requests == []


def test_a_trial_without_energy_loses_and_blames_no_setting(tmp_path: Path) -> None:
    def joules(settings: Settings) -> float | None:
        return None if settings.compile is not CompileMode.OFF else 10.0

    launcher = CostlyLauncher(rate=rate, joules=joules)
    result, _ = study(tmp_path, ObjectiveConfig(metric="energy"), launcher)
    without = [trial for trial in result.trials if trial.settings.compile is CompileMode.DEFAULT]
    assert len(without) == 2  # the first one did not remove compile=default from the search
    assert {trial.score for trial in without} == {None}
    assert result.recommended.compile is CompileMode.OFF


def test_racing_and_traces_go_by_throughput(tmp_path: Path) -> None:
    result, launcher = study(tmp_path, ObjectiveConfig(planned_steps=100))
    searched = [trial for trial in result.trials if trial.role is Role.SEARCH]
    assert searched
    for trial in searched:
        before = [t.score for t in result.trials[: trial.number] if t.score is not None]
        assert launcher.requests[trial.number].race_against == pytest.approx(max(before))


def test_another_objective_is_another_study(tmp_path: Path) -> None:
    study(tmp_path, ObjectiveConfig())
    with pytest.raises(StudyError, match="planned_samples was None, now 3200"):
        study(tmp_path, ObjectiveConfig(planned_steps=100), study=StudyConfig(resume=True))
