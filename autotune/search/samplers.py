"""The samplers that may propose settings, by their name in `search.sampler`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import optuna

from autotune.config import SearchConfig
from autotune.search.space import SearchSpace


def make_sampler(
    config: SearchConfig, space: SearchSpace, seed: int
) -> optuna.samplers.BaseSampler:
    """Return the sampler that the configuration names.

    `gp` fits its model with torch, so with it torch is imported into this process; every other
    sampler leaves torch to the trials.

    Args:
        config: Names the sampler and its number of random trials.
        space: What is searched; the grid needs it beforehand.
        seed: Seed of its random choices.

    Raises:
        ValueError: The name is not known (the configuration lets none of these through).
    """
    with warnings.catch_warnings():
        # `group` and two of the samplers are marked experimental; a user can do nothing about it.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        match config.sampler:
            case "tpe":
                # Groups: without them, the settings that exist only with workers would be sampled
                # apart from the rest, blind to how they work together.
                return optuna.samplers.TPESampler(
                    n_startup_trials=config.startup_trials, multivariate=True, group=True, seed=seed
                )
            case "gp":
                # Its model leaves out the settings that exist only with workers, and it would say
                # so in each trial.
                return optuna.samplers.GPSampler(
                    n_startup_trials=config.startup_trials,
                    warn_independent_sampling=False,
                    seed=seed,
                )
            case "random":
                return optuna.samplers.RandomSampler(seed=seed)
            case "grid":
                choices = {knob: space.choices(knob) for knob in space.values}
                return _Grid(choices, seed=seed)
            case "brute_force":
                return _BruteForce(seed=seed)
            case _:
                raise ValueError(f"no sampler is called {config.sampler!r}")


class _Grid(optuna.samplers.GridSampler):
    """The grid, without ending the study: that is up to the caller, who asks and tells."""

    def after_trial(
        self,
        study: optuna.Study,
        trial: optuna.trial.FrozenTrial,
        state: optuna.trial.TrialState,
        values: Sequence[float] | None,
    ) -> None:
        # The inherited method calls study.stop(), which raises outside of Study.optimize.
        return


class _BruteForce(optuna.samplers.BruteForceSampler):
    """Every point once, without ending the study: that is up to the caller."""

    def after_trial(
        self,
        study: optuna.Study,
        trial: optuna.trial.FrozenTrial,
        state: optuna.trial.TrialState,
        values: Sequence[float] | None,
    ) -> None:
        # As for the grid.
        return
