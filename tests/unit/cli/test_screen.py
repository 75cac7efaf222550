from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from factories import (
    BASELINE,
    BEST,
    ENVIRONMENT,
    EXPERT,
    FACTS,
    make_failure,
    make_measurement,
    make_result,
    make_trial,
)
from rich.console import Console

from autotune.cli.ending import ending
from autotune.cli.screen import Screen
from autotune.measurement import CompileReport, MachineState
from autotune.objective import Objective
from autotune.result import Arm, Role
from autotune.tuner import StudyPlan

PLAN = StudyPlan(
    study="resnet50",
    facts=FACTS,
    environment=ENVIRONMENT,
    budget_s=480.0,
    space_size=10368,
    knobs=("batch_size", "num_workers"),
    baseline=BASELINE,
    expert=EXPERT,
    notes=("fp16 was left out: [no reason]",),
)
CONTROL = re.compile(r"\x1b|\r")


class Clock:
    """Time that passes only when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def watch(console: Console, clock: Clock | None = None) -> None:
    """Let a screen watch a whole study."""
    result = make_result()
    with Screen(console, clock or Clock()) as screen:
        for done in range(0, 2001, 50):
            screen.preparing("making photographs", done, 2000)
        screen.prepared()
        screen.study_started(PLAN)
        best = None
        for trial in result.trials:
            screen.trial_started(trial.number, trial.role, trial.settings, str(trial.role))
            screen.trial_progress("warm-up")
            if trial.score is not None and (best is None or trial.score > (best.score or 0)):
                best = trial
            screen.trial_finished(trial, best)
        screen.confirmation_started((Arm.BASELINE, Arm.EXPERT, Arm.BEST), 3)
        again = make_trial(5, Role.CONFIRMATION, make_measurement(BEST, 3400))
        screen.trial_started(5, Role.CONFIRMATION, BEST, "confirmation 1: best")
        screen.trial_finished(again, best)
        screen.note("nearly there")
        end = ending(
            result,
            tuned=Path("/runs/a b/tuned.yaml"),
            summary=Path("/runs/a b/summary.md"),
            view="mlflow ui --backend-store-uri 'sqlite:////runs/a b/mlflow.db'",
            address=None,
        )
        screen.show(end)


def shown(**options: object) -> str:
    file = io.StringIO()
    watch(Console(file=file, highlight=False, **options))  # type: ignore[arg-type]
    return file.getvalue()


def test_plain_lines_where_there_is_no_terminal() -> None:
    text = shown()
    assert not CONTROL.search(text)
    lines = text.splitlines()
    assert sum("making photographs" in line for line in lines) == 5
    (baseline,) = (line for line in lines if line.startswith("0 "))
    assert re.search(r"baseline +4\d\d.*/s \(.* to .*\) +1\.00 x +\(baseline\)", baseline)
    (best,) = (line for line in lines if line.startswith("2 "))
    assert "8.2" in best
    assert "bs=512" in best
    assert any("[no reason]" in line for line in lines), "brackets are text, not markup"


def test_a_line_says_why_a_trial_has_no_result() -> None:
    lines = shown().splitlines()
    (failed,) = (line for line in lines if line.startswith("3 "))
    assert "pruned: out_of_memory: CUDA out of memory" in failed
    (outraced,) = (line for line in lines if line.startswith("4 "))
    assert "stopped: surely slower" in outraced


def test_a_line_says_that_the_machine_disturbed_the_trial() -> None:
    state = MachineState(affinity_cores=2, usable_cores=2, other_cpu_cores=1.7)
    measured = make_measurement(BEST, 3400)
    measured = replace(measured, window=replace(measured.window, machine=state))
    file = io.StringIO()
    with Screen(Console(file=file, highlight=False), Clock()) as screen:
        screen.study_started(PLAN)
        screen.trial_finished(make_trial(5, outcome=measured), None)
        screen.trial_started(6, Role.CONFIRMATION, BEST, "confirmation 1: best")
        screen.trial_finished(make_trial(6, Role.CONFIRMATION, measured), None)
    searched, confirmed = (line for line in file.getvalue().splitlines() if line[:1] in ("5", "6"))
    assert searched.endswith("; disturbed: other processes used 1.7 of 2 cores")
    assert confirmed.endswith(
        "confirmation 1: best; disturbed: other processes used 1.7 of 2 cores"
    )


def test_confirmation_lines_name_the_contestant() -> None:
    assert re.search(r"^5 +confirm .*\) +confirmation 1: best$", shown(), re.MULTILINE)


def test_terminal_of_80_columns_keeps_every_line_but_files_within() -> None:
    text = shown(force_terminal=True, width=80, color_system=None)
    visible = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n")
    long = [line for line in visible.splitlines() if len(line) > 80]
    assert all("/runs/" in line for line in long), long
    command = "mlflow ui --backend-store-uri 'sqlite:////runs/a b/mlflow.db'"
    assert command in visible, "a command stays whole"


def test_terminal_has_a_live_line_with_trial_budget_stage_and_best() -> None:
    file = io.StringIO()
    clock = Clock()
    console = Console(file=file, force_terminal=True, width=100, highlight=False)
    with Screen(console, clock) as screen:
        screen.prepared()
        screen.study_started(PLAN)
        baseline = make_trial(0, Role.BASELINE, make_measurement(BASELINE, 400))
        screen.trial_finished(baseline, baseline)
        screen.trial_started(1, Role.EXPERT, EXPERT, "expert")
        screen.trial_progress("warm-up")
        clock.now_s = 95.0
        lines = console.render_lines(screen.__rich__())
        doing, progress = ("".join(segment.text for segment in line) for line in lines)
    assert doing.startswith("trial 1 expert: warm-up, bs=256 w=15 pin")
    assert "1:35/8:00" in progress
    assert re.search(r"best 40\d/s 1\.00 x", progress)


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    colours = re.compile(r"\x1b\[(?:\d+;)*3[0-7]m")
    assert not colours.search(shown(force_terminal=True))


def test_colours_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert re.search(r"\x1b\[(?:\d+;)*3[0-7]m", shown(force_terminal=True))


@pytest.mark.parametrize("is_terminal", [True, False])
def test_output_that_knows_only_ascii(is_terminal: bool) -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    watch(Console(file=file, force_terminal=is_terminal, width=80, highlight=False))
    file.flush()
    assert b"3,404" in raw.getvalue()


def test_long_messages_are_cut_and_put_on_one_line() -> None:
    file = io.StringIO()
    console = Console(file=file, highlight=False)
    screen = Screen(console)
    failed = make_trial(7, outcome=make_failure(message="first line\nsecond " + "x" * 500))
    screen.trial_finished(failed, None)
    (line,) = file.getvalue().splitlines()
    assert "first line second x" in line
    assert line.endswith("...")


def test_a_long_message_is_cut_to_the_terminal_below_its_trial() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, color_system=None, highlight=False)
    screen = Screen(console)
    screen.study_started(PLAN)
    failure = make_failure(replace(BASELINE, batch_size=64), message="no " + "x" * 500)
    screen.trial_finished(make_trial(7, outcome=failure), None)
    trial, message = file.getvalue().splitlines()[-2:]
    assert trial.startswith("7 ")
    assert message.startswith("    pruned: out_of_memory: no xxx")
    assert message.endswith("xxx...")
    assert len(message) == 80


def test_a_rate_too_noisy_for_an_interval_says_so() -> None:
    file = io.StringIO()
    measured = make_measurement(BASELINE, 400)
    short = replace(measured.window, steps_per_block=40)
    trial = make_trial(0, Role.BASELINE, replace(measured, window=short))
    Screen(Console(file=file, highlight=False)).trial_finished(trial, trial)
    assert "/s (no interval)" in file.getvalue()


def test_first_lines_name_the_baseline_in_short() -> None:
    assert "baseline: bs=32 w=0 (what is not named is off or default)" in shown()


def test_another_score_has_a_column_of_its_own() -> None:
    out = io.StringIO()
    console = Console(file=out, width=120)
    with Screen(console, Clock()) as screen:
        screen.study_started(replace(PLAN, objective=Objective(metric="energy")))
        baseline = replace(make_trial(0, Role.BASELINE, make_measurement(BASELINE, 420)), score=2.5)
        screen.trial_finished(baseline, baseline)
        report = CompileReport(compile_s=1.0, graph_breaks={}, fell_back="no CUDA graphs")
        measured = replace(make_measurement(BEST, 3000), compilation=report)
        best = replace(make_trial(1, outcome=measured), score=5.0)
        screen.trial_finished(best, best)
    head, first, second = out.getvalue().splitlines()[-3:]
    assert "samples/J" in head
    assert "2.50" in first
    assert "5.00" in second
    assert "2.00 x" in second
    assert second.endswith("; compile fell back")
