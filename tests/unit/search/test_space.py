from __future__ import annotations

import random

import optuna
import pytest

from autotune.search.space import SearchSpace
from autotune.settings import CompileMode, Precision, Settings

FIXED = Settings(batch_size=32, pin_memory=True)
SPACE = SearchSpace(
    {
        "batch_size": (32, 64),
        "num_workers": (0, 2, 4),
        "prefetch_factor": (2, 4),
        "persistent_workers": (False, True),
        "precision": (Precision.DEFAULT, Precision.BF16),
    },
    FIXED,
)


def test_size_counts_what_all_yields_and_each_is_distinct_and_contained() -> None:
    points = list(SPACE.all())
    assert len(points) == len(set(points)) == SPACE.size == 2 * (1 + 2 * 4) * 2
    assert all(SPACE.contains(point) for point in points)


def test_settings_of_workers_do_not_exist_without_workers() -> None:
    without = [point for point in SPACE.all() if point.num_workers == 0]
    assert {(point.prefetch_factor, point.persistent_workers) for point in without} == {
        (None, False)
    }
    assert "prefetch_factor" not in SPACE.params(without[0])


def test_what_is_not_searched_stays_as_in_the_baseline() -> None:
    assert all(point.pin_memory for point in SPACE.all())
    assert not SPACE.contains(Settings(batch_size=32, pin_memory=False))


@pytest.mark.parametrize(
    "outside",
    [
        Settings(batch_size=48, pin_memory=True),
        Settings(batch_size=32, pin_memory=True, compile=CompileMode.DEFAULT),
        Settings(batch_size=32, pin_memory=True, num_workers=2, prefetch_factor=3),
        Settings(batch_size=32, pin_memory=True, num_workers=2),
    ],
)
def test_other_values_are_outside(outside: Settings) -> None:
    assert not SPACE.contains(outside)


def test_fixed_settings_of_workers_apply_where_there_are_workers() -> None:
    fixed = Settings(batch_size=8, num_workers=2, prefetch_factor=4, persistent_workers=True)
    space = SearchSpace({"num_workers": (0, 4)}, fixed)
    assert list(space.all()) == [
        Settings(batch_size=8),
        Settings(batch_size=8, num_workers=4, prefetch_factor=4, persistent_workers=True),
    ]
    assert space.size == 2


def test_settings_of_workers_need_workers_in_the_fixed_part() -> None:
    space = SearchSpace({"prefetch_factor": (2, 4)}, Settings(batch_size=8))
    assert space.size == 1
    assert list(space.all()) == [Settings(batch_size=8)]


def test_suggest_asks_only_for_what_applies_and_uses_words() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    seen = set()
    for _ in range(40):
        trial = study.ask()
        settings = SPACE.suggest(trial)
        assert trial.params == SPACE.params(settings)
        assert SPACE.contains(settings)
        assert type(trial.params["precision"]) is str
        seen.add(len(trial.params))
    assert seen == {3, 5}


def test_draw_reaches_every_point() -> None:
    rng = random.Random(0)
    assert {SPACE.draw(rng) for _ in range(2000)} == set(SPACE.all())


def test_knobs_are_the_settings_with_a_choice() -> None:
    space = SearchSpace({"batch_size": (32,), "pin_memory": (False, True)}, FIXED)
    assert space.knobs == ("pin_memory",)


def test_fingerprint_tells_spaces_apart() -> None:
    same = SearchSpace(dict(SPACE.values), FIXED, notes=("words do not count",))
    assert same.fingerprint() == SPACE.fingerprint()
    others = [
        SearchSpace({**SPACE.values, "batch_size": (32, 128)}, FIXED),
        SearchSpace(SPACE.values, Settings(batch_size=32)),
        SearchSpace({**SPACE.values, "batch_size": (64, 32)}, FIXED),
    ]
    assert SPACE.fingerprint() not in [other.fingerprint() for other in others]


def test_the_batch_of_the_baseline_does_not_change_a_space_that_searches_it() -> None:
    moved = SearchSpace(SPACE.values, Settings(batch_size=16, pin_memory=True))
    assert moved.fingerprint() == SPACE.fingerprint()


def test_without_workers_their_settings_are_no_choice() -> None:
    values = {"num_workers": (0,), "prefetch_factor": (2, 4)}
    assert SearchSpace(values, Settings(batch_size=8)).knobs == ()
    some = {"num_workers": (0, 1), "prefetch_factor": (2, 4)}
    assert SearchSpace(some, Settings(batch_size=8)).knobs == ("num_workers", "prefetch_factor")
    fixed = Settings(batch_size=8, num_workers=2, prefetch_factor=2)
    assert SearchSpace({"prefetch_factor": (2, 4)}, fixed).knobs == ("prefetch_factor",)


def test_a_fused_optimizer_does_not_apply_to_a_precision_that_it_cannot_be_used_with() -> None:
    space = SearchSpace(
        {"precision": (Precision.BF16, Precision.FP16), "fused_optimizer": (False, True)},
        Settings(batch_size=8),
        unfused=(Precision.FP16,),
    )
    points = list(space.all())
    assert [(point.precision, point.fused_optimizer) for point in points] == [
        (Precision.BF16, False),
        (Precision.BF16, True),
        (Precision.FP16, False),
    ]
    assert space.size == len(points)
    assert all(space.contains(point) for point in points)
    chosen = {"precision": "fp16", "fused_optimizer": True}
    assert not space.complete(chosen).fused_optimizer
    assert "fused_optimizer" not in space.params(points[-1])
