from __future__ import annotations

from pathlib import Path

from factories import BASELINE, make_result

from autotune.cli.ending import Ending, ending
from autotune.result import StudyResult
from autotune.statistics import Verdict


def end(result: StudyResult, view: str | None = "mlflow ui --backend-store-uri x") -> Ending:
    return ending(
        result,
        tuned=Path("/runs/a/tuned.yaml"),
        summary=Path("/runs/a/summary.md"),
        view=view,
        address="http://127.0.0.1:5000/#/experiments/1",
    )


def test_phases_stand_side_by_side_with_their_interval() -> None:
    table = end(make_result()).tables.split("\n\n")[0].splitlines()
    assert [cell.strip() for cell in table[0].split("|")[2:5]] == [
        "baseline",
        "expert guess",
        "best",
    ]
    rows = {line.split("|")[1].strip(): line.split("|")[2:5] for line in table[2:]}
    assert rows["samples/s"][2].strip().endswith("/s")
    low, high = rows["95 % interval"][2].split(" to ")
    assert float(low.replace(",", "")) < float(high.replace(",", ""))
    for phase in ("data, ms", "forward, ms", "backward, ms", "optimizer, ms"):
        assert float(rows[phase][0]) > 0
    assert len(table[0]) <= 80


def test_settings_that_change_and_only_those() -> None:
    text = end(make_result()).tables
    assert "| num_workers" in text
    assert "cudnn_benchmark" not in text


def test_keep_your_settings_changes_nothing() -> None:
    result = make_result(verdict=Verdict.SAME, recommended=BASELINE)
    found = end(result)
    assert "Nothing to change" in found.tables
    assert not any(sentence.startswith("tuned:") for sentence in found.sentences)


def test_bottlenecks_and_failures() -> None:
    sentences = end(make_result()).sentences
    assert any(text.startswith("your settings: input-bound") for text in sentences)
    assert any(text.startswith("tuned:") for text in sentences)
    assert "failed trials: 1 out_of_memory (why: in the summary)" in sentences


def test_files_and_the_command_that_shows_the_runs() -> None:
    files = end(make_result()).files
    assert "/runs/a/tuned.yaml" in files
    assert "/runs/a/summary.md" in files
    assert "mlflow ui --backend-store-uri x" in files
    assert files.endswith("then: http://127.0.0.1:5000/#/experiments/1")


def test_a_server_needs_no_command() -> None:
    files = end(make_result(), view=None).files
    assert files.endswith("runs:     http://127.0.0.1:5000/#/experiments/1")
