from dataclasses import replace

import pytest
from factories import BASELINE, CPU, FACTS, make_failure, make_result, make_trial

from autotune.measurement import FailureKind
from autotune.report import markdown
from autotune.result import StudyEnd
from autotune.settings import Settings
from autotune.statistics import Verdict


def section(page: str, title: str) -> str:
    _, _, rest = page.partition(f"## {title}\n\n")
    return rest.partition("\n## ")[0]


def test_page_holds_every_section() -> None:
    page = markdown(make_result(), view="mlflow ui --backend-store-uri sqlite:////runs/mlflow.db")
    titles = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    assert titles == [
        "Settings",
        "A step, before and after",
        "Bottleneck",
        "Numerics",
        "Confirmation",
        "Failed trials",
        "All trials",
        "What the study cost",
        "Environment",
        "How it was measured",
        "Notes",
        "Files",
    ]
    assert "mlflow ui --backend-store-uri sqlite:////runs/mlflow.db" in section(page, "Files")


def test_a_cpu_does_not_wait_for_what_it_loads_itself() -> None:
    page = markdown(make_result(facts=replace(FACTS, device=CPU)), view=None)
    assert "| time spent on data " in section(page, "A step, before and after")


def test_settings_show_only_what_changes() -> None:
    settings = section(markdown(make_result(), view=None), "Settings")
    assert "| precision          | default  | bf16" in settings
    assert "fused_optimizer=false" in settings
    assert "learning rate" in settings
    changed = make_result(recommended=Settings(batch_size=32, pin_memory=True))
    assert "learning rate" not in section(markdown(changed, view=None), "Settings")


def test_no_change_says_so() -> None:
    page = markdown(make_result(recommended=BASELINE, verdict=Verdict.SAME), view=None)
    assert section(page, "Settings").startswith("Nothing changes: bs=32 w=0")


def test_columns_line_up() -> None:
    for title in ("Settings", "A step, before and after", "All trials", "Environment"):
        lines = [
            line
            for line in section(markdown(make_result(), view=None), title).splitlines()
            if line.startswith("|")
        ]
        assert len({len(line) for line in lines}) == 1


def test_gain_over_expert_beside_gain_over_baseline() -> None:
    text = section(markdown(make_result(), view=None), "Confirmation")
    assert "| best against baseline " in text
    assert "| best against expert guess " in text
    assert "| 2     |" in text


def test_the_spread_between_processes_is_one_sentence_of_the_confirmation() -> None:
    text = section(markdown(make_result(), view=None), "Confirmation")
    assert "Fresh processes of the same settings differ by 8 % (5 to 15 %" in text


def test_failures_carry_their_message_on_one_line() -> None:
    outcome = make_failure(failure=FailureKind.CRASH, message="died | with\nsignal 11 " + "x" * 500)
    result = make_result(trials=(make_trial(0), make_trial(1, outcome=outcome)))
    text = section(markdown(result, view=None), "Failed trials")
    assert text.strip() == "- crash: 1, the first in trial 001: died | with signal 11 " + "x" * 500


def test_states_tell_why() -> None:
    made = make_result()
    infeasible = make_trial(9, infeasible="95% of device memory reserved")
    text = section(
        markdown(replace(made, trials=(*made.trials, infeasible)), view=None), "All trials"
    )
    assert "pruned: out_of_memory" in text
    assert "pruned: surely below the best" in text
    assert "pruned: 95% of device memory reserved" in text


def test_cost_separates_measuring_from_the_rest() -> None:
    text = section(markdown(make_result(), view=None), "What the study cost")
    assert "| timed windows                     |  16.0 s |" in text
    assert "| traces                            |       - |" in text
    assert "| starting and ending processes     |  8.40 s |" in text
    assert "took 2.10 s on average" in text, "a failed trial's time is no cost of processes"
    assert "| failed trials                     |  9.50 s |" in text


@pytest.mark.parametrize("end", StudyEnd)
def test_every_end_of_a_search_has_its_words(end: StudyEnd) -> None:
    assert "The search ended because " in markdown(make_result(ended=end), view=None)


def test_resumed_study_does_not_invent_time_between_trials() -> None:
    text = section(markdown(make_result(elapsed_s=10.0), view=None), "What the study cost")
    assert "| between trials                    |      - |" in text


def test_interrupted_study_has_no_confirmation() -> None:
    page = markdown(
        make_result(
            confirmation=None, verdict=Verdict.UNSURE, ended=StudyEnd.INTERRUPTED, notes=()
        ),
        view=None,
    )
    assert "## Confirmation" not in page
    assert "## Notes" not in page
    assert "Not confirmed" in page
