from autotune.report.spread import process_sentence
from autotune.statistics import Estimate


def test_the_spread_between_processes_in_words():
    assert process_sentence(Estimate(0.08, 0.05, 0.15)) == (
        "Fresh processes of the same settings differ by 8 % (5 to 15 %, standard deviation)."
    )
    assert "differ by 8 % (standard deviation)" in process_sentence(Estimate(0.08))


def test_a_spread_that_the_windows_explain_has_an_upper_end_only():
    assert "differ by 4 % at most" in process_sentence(Estimate(0.0, 0.0, 0.04))
    assert process_sentence(None) == ""
