"""What a preflight has to look at, from the configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_landscape import make_config

from autotune.config import BaselineConfig, SpaceConfig
from autotune.tuner import scope
from autotune.tuner.scope import preflight_scope


def test_the_listed_values_of_all_spaces_and_the_baseline():
    config = replace(
        make_config(SpaceConfig(batch_size=(16, 64), num_workers=(0, 2))),
        baseline=BaselineConfig(batch_size=48, num_workers=3),
    )
    found = preflight_scope(config, 180.0)
    assert found.batch_sizes == (16, 48, 64)
    assert found.max_workers == 3


def test_automatic_values(monkeypatch):
    monkeypatch.setattr(scope, "usable_cpus", lambda: 6)
    config = make_config(SpaceConfig(batch_size="auto", num_workers="auto"))
    found = preflight_scope(config, 180.0)
    assert {1, 32, 1024} < set(found.batch_sizes)
    assert found.max_workers == 6


@pytest.mark.parametrize(("limit_s", "expected_s"), [(1000.0, 30.0), (60.0, 10.0)])
def test_a_small_budget_is_for_trials(limit_s, expected_s):
    config = make_config(SpaceConfig(batch_size=(16,)))
    assert preflight_scope(config, limit_s).limit_s == expected_s
