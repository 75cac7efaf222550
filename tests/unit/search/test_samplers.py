from __future__ import annotations

import warnings

import optuna
import pytest

from autotune.config import SearchConfig
from autotune.search.samplers import make_sampler
from autotune.search.space import SearchSpace
from autotune.settings import Settings

SPACE = SearchSpace(
    {"batch_size": (8, 16), "num_workers": (0, 1), "prefetch_factor": (2, 4)},
    Settings(batch_size=8),
)


@pytest.mark.parametrize("name", ["tpe", "random", "grid", "brute_force"])
def test_each_sampler_proposes_points_of_the_space_without_complaint(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = SearchConfig(sampler=name, startup_trials=2)
        study = optuna.create_study(sampler=make_sampler(config, SPACE, 0))
        for _ in range(12):
            trial = study.ask()
            settings = SPACE.suggest(trial)
            assert SPACE.contains(settings)
            study.tell(trial, float(settings.batch_size))


@pytest.mark.parametrize("name", ["grid", "brute_force"])
def test_exhaustive_samplers_see_every_point(name: str) -> None:
    study = optuna.create_study(sampler=make_sampler(SearchConfig(sampler=name), SPACE, 0))
    seen = set()
    for _ in range(8):
        trial = study.ask()
        seen.add(SPACE.suggest(trial))
        study.tell(trial, 1.0)
    assert seen == set(SPACE.all())


def test_the_seed_decides() -> None:
    def first(seed: int) -> list[Settings]:
        sampler = make_sampler(SearchConfig(sampler="random"), SPACE, seed)
        study = optuna.create_study(sampler=sampler)
        return [SPACE.suggest(study.ask()) for _ in range(8)]

    assert first(1) == first(1)
    assert first(1) != first(2)


def test_gp_is_made_by_name() -> None:
    sampler = make_sampler(SearchConfig(sampler="gp"), SPACE, 0)
    assert isinstance(sampler, optuna.samplers.GPSampler)
