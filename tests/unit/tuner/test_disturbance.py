"""What a study does and says on a machine that others use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from factories import FACTS, make_failure, make_measurement, make_trial
from fake_landscape import FakeLauncher, Logbook, Watcher, environment_stamp, make_config

from autotune.config import BudgetConfig, SpaceConfig
from autotune.measurement import MachineState, Measurement, Outcome
from autotune.request import TrialRequest
from autotune.tuner import Tuner
from autotune.tuner.disturbance import Repeats, busy_note, disturbed_note

QUIET = MachineState(affinity_cores=2, usable_cores=2, other_cpu_cores=0.0, load_average=3.25)
BUSY = replace(QUIET, other_cpu_cores=1.7)
BUSIER = replace(QUIET, other_cpu_cores=1.9)


def on(machine: MachineState, repeated: int = 0, outcome: Measurement | None = None) -> Measurement:
    outcome = outcome or make_measurement()
    window = replace(outcome.window, machine=machine)
    return replace(outcome, window=window, repeated_windows=repeated)


def test_repeating_ends_after_two_in_a_row_that_did_not_help() -> None:
    repeats = Repeats()
    for outcome in (on(BUSY, 1), make_failure(), on(QUIET, 1), on(BUSY, 1), on(BUSY)):
        repeats.learn(outcome)
        assert repeats.worthwhile
    repeats.learn(on(BUSY, 1))
    assert not repeats.worthwhile
    repeats.learn(on(BUSY))
    assert not repeats.worthwhile
    repeats.learn(on(QUIET))
    assert repeats.worthwhile


def test_nothing_is_repeated_on_a_machine_that_was_busy_before_until_it_is_quiet() -> None:
    repeats = Repeats()
    repeats.expect(replace(FACTS, machine=QUIET))
    assert repeats.worthwhile
    repeats.expect(replace(FACTS, machine=BUSY))
    assert not repeats.worthwhile
    repeats.learn(on(QUIET))
    assert repeats.worthwhile


def test_a_study_says_how_many_windows_were_disturbed_and_how_badly() -> None:
    trials = [make_trial(0, outcome=on(QUIET)) for _ in range(5)]
    assert disturbed_note([*trials, make_trial(6, outcome=on(BUSY))]) is None
    busy = [make_trial(6, outcome=on(state)) for state in (BUSY, BUSIER, BUSY)]
    note = disturbed_note([*trials, *busy, make_trial(9, outcome=make_failure())])
    assert note is not None
    assert note.startswith("3 of 8 windows were disturbed (at worst: other processes used 1.9 of")
    assert disturbed_note([make_trial(0)]) is None


def test_a_busy_machine_is_told_before_the_study() -> None:
    assert busy_note(FACTS) is None
    assert busy_note(replace(FACTS, machine=QUIET)) is None
    note = busy_note(replace(FACTS, machine=replace(BUSY, device_processes=2)))
    assert note is not None
    assert "other processes used 1.7 of 2 cores; 2 other processes have the device open" in note
    assert "load average 3.2" in note
    assert "\n" not in note


class BusyLauncher(FakeLauncher):
    """Trials on a machine that is never quiet; a window is repeated whenever it may be."""

    def run(self, request: TrialRequest, progress: Callable[[str], None]) -> Outcome:
        outcome = super().run(request, progress)
        assert isinstance(outcome, Measurement)
        return on(BUSY, int(request.repeat_disturbed), outcome)


@pytest.mark.parametrize(("before", "repeats"), [(BUSY, 0), (QUIET, 2)])
def test_a_study_on_a_busy_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: MachineState, repeats: int
) -> None:
    monkeypatch.setattr("autotune.tuner.prepare.environment", environment_stamp)
    launcher = BusyLauncher(facts=replace(FACTS, machine=before))
    watcher = Watcher()
    result = Tuner(
        make_config(
            SpaceConfig(batch_size=(32, 64), num_workers=(0, 2)), budget=BudgetConfig(minutes=60)
        ),
        folder=tmp_path / "study",
        launcher=launcher,
        tracker=Logbook(),
        observer=watcher,
        clock=launcher.clock,
    ).run()
    asked = [request.repeat_disturbed for request in launcher.requests]
    assert asked == [True] * repeats + [False] * (len(asked) - repeats)
    assert len(asked) > 4
    first, last = result.notes[0], result.notes[-1]
    assert first.startswith("the machine is busy already") is (before is BUSY)
    windows = len(launcher.requests)
    assert last.startswith(f"{windows} of {windows} windows were disturbed")
    assert (first in watcher.plans[0].notes) is (before is BUSY)
    assert last in watcher.notes
