import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils import validation

from autotune.tracking.limits import NAME_LIMIT, PARAM_LIMIT, TAG_LIMIT, fit, fit_name, fit_text

ANY = st.text(st.characters(codec=None, exclude_categories=()))


@given(ANY, st.integers(10, 100))
def test_text_can_be_stored(text: str, limit: int) -> None:
    found = fit_text(text, limit)
    found.encode("utf-8")
    assert "\0" not in found
    assert len(found) <= limit


@given(ANY)
def test_mlflow_takes_every_name(name: str) -> None:
    found = fit_name(name)
    assert validation.validate_param_and_metric_name(found)
    assert not validation.path_not_unique(found)
    assert 1 <= len(found) <= NAME_LIMIT
    assert fit_name(found) == found


@pytest.mark.parametrize("name", ["samples_per_s", "baseline.batch_size", "mlflow.note.content"])
def test_plain_names_stay(name: str) -> None:
    assert fit_name(name) == name


@pytest.mark.parametrize(
    ("name", "found"),
    [("time[fwd]", "time_fwd_"), ("f1@5", "f1_5"), ("a//b", "a__b"), ("..", "_."), ("", "_")],
)
def test_odd_letters_in_names(name: str, found: str) -> None:
    assert fit_name(name) == found


@pytest.mark.parametrize("missing", [None, math.nan, math.inf, -math.inf])
def test_a_metric_that_is_no_number_is_left_out(missing: float | None) -> None:
    content = fit(metrics={"loss": missing, "steps": 3}, curves={"losses": [1.0, missing]})
    assert content.metrics == {"steps": 3}
    assert content.curves == {"losses": (1.0, None)}


def test_what_is_none_is_left_out() -> None:
    content = fit(params={"model": None, "lr": "0.1"}, tags={"reason": None})
    assert content.params == {"lr": "0.1"}
    assert content.tags == {}


def test_metrics_are_rounded_to_be_read() -> None:
    assert fit(metrics={"rate": 1234.56789, "n": 12}).metrics == {"rate": 1234.57, "n": 12}


def test_long_values_are_cut_and_say_so() -> None:
    content = fit(params={"p" * 300: "x" * 7000}, tags={"t": "y" * 9000})
    ((name, value),) = content.params.items()
    assert (len(name), len(value), value[-3:]) == (NAME_LIMIT, PARAM_LIMIT, "...")
    assert len(content.tags["t"]) == TAG_LIMIT


def test_the_installed_mlflow_takes_as_much() -> None:
    assert validation.MAX_ENTITY_KEY_LENGTH >= NAME_LIMIT
    assert validation.MAX_PARAM_VAL_LENGTH >= PARAM_LIMIT
    assert validation.MAX_TAG_VAL_LENGTH >= TAG_LIMIT


def test_names_are_plain_ascii() -> None:
    assert re.fullmatch(r"[ -~]+", fit_name("größe/ℓ"))
