import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.report import numbers
from autotune.statistics import Estimate

positive = st.floats(min_value=1e-3, max_value=1e7)


def figure(text: str) -> float:
    return float(text.replace(",", ""))


@pytest.mark.parametrize(
    ("estimate", "shown"),
    [
        (Estimate(3402.1, 3350.2, 3454.9), "3,402/s (3,350 to 3,455)"),
        (Estimate(3402.1, 2880.0, 3920.0), "3,400/s (2,880 to 3,920)"),
        (Estimate(2.061, 2.055, 2.067), "2.061/s (2.055 to 2.067)"),
        (Estimate(2.06, 0.4, 3.7), "2.1/s (0.40 to 3.7)"),
        (Estimate(3600.0, 2.61, 776_623.0), "3,600/s (2.6 to 780,000)"),
        (Estimate(128_734.0, 128_700.0, 128_760.0), "128,700/s (128,700 to 128,800)"),
        (Estimate(6390.4), "6,390/s"),
        (Estimate(0.0), "0.00/s"),
        (Estimate(math.nan), "-"),
        (Estimate(10.0, 9.0, math.inf), "10.0/s"),
        (None, "-"),
    ],
)
def test_rate(estimate: Estimate | None, shown: str) -> None:
    assert numbers.rate(estimate) == shown


def test_ratio_without_an_interval() -> None:
    assert numbers.ratio(Estimate(8.1)) == "8.10 x"


@given(positive, st.floats(0, 1), st.floats(0, 1))
def test_shown_interval_holds_the_shown_value(value: float, below: float, above: float) -> None:
    low, high = value * (1 - below), value * (1 + above)
    text = numbers.rate(Estimate(value, low, high))
    shown, _, interval = text.partition("/s (")
    shown_low, _, shown_high = interval.rstrip(")").partition(" to ")
    assert figure(shown_low) <= figure(shown) <= figure(shown_high)


@given(positive, st.floats(1e-4, 0.5))
def test_rounding_moves_a_value_by_little(value: float, half: float) -> None:
    text = numbers.rate(Estimate(value, value * (1 - half), value * (1 + half)))
    shown = figure(text.partition("/s")[0])
    # Half a unit of the last place, which is at most the tenth of the half-width, but never finer
    # than four significant digits nor coarser than two.
    assert abs(shown - value) <= max(0.051 * half, 0.00051) * value


@given(positive)
def test_a_plain_value_keeps_three_digits(value: float) -> None:
    assert figure(numbers.milliseconds(value)) == pytest.approx(value, rel=0.00501)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.614, "61 %"), (0.0, "0 %"), (0.001, "<1 %"), (1.0, "100 %")]
)
def test_share(value: float, shown: str) -> None:
    assert numbers.share(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(2.83, "2.83 s"), (99.0, "99.0 s"), (474.0, "7.9 min"), (9000, "2.5 h")]
)
def test_duration(value: float, shown: str) -> None:
    assert numbers.duration(value) == shown


def test_missing_is_never_zero() -> None:
    shown = {
        numbers.rate(None),
        numbers.ratio(None),
        numbers.milliseconds(None),
        numbers.gibibytes(None),
        numbers.share(None),
        numbers.share(math.nan),
        numbers.duration(None),
        numbers.count(None),
    }
    assert shown == {"-"}


def test_gibibytes_and_count() -> None:
    assert numbers.gibibytes(23 * 2**30) == "23.0 GiB"
    assert numbers.count(1_281_167) == "1,281,167"
