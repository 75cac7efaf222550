"""What of a job has to be looked at before: all that its search may try."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.config import AUTO, Config
from autotune.environment import usable_cpus
from autotune.request import PreflightScope
from autotune.search.resolve import LARGEST_BATCH

PREFLIGHT_S = 30.0
"""Seconds that all checks may take."""

_SHARE = 1 / 6
"""Share of the limit of a trial that they may take: a small budget is for trials."""


def preflight_scope(config: Config, limit_s: float) -> PreflightScope:
    """Return what the configuration allows a search to try, on whichever device.

    Args:
        config: The configuration.
        limit_s: Limit of a trial, seconds.
    """
    return PreflightScope(
        batch_sizes=tuple(sorted(set(_batch_sizes(config)))),
        max_workers=max(_workers(config)),
        limit_s=min(PREFLIGHT_S, _SHARE * limit_s),
    )


def _batch_sizes(config: Config) -> Iterator[int]:
    listed = [config.baseline.batch_size]
    for space in config.search_spaces.values():
        listed += (
            [space.batch_size] if isinstance(space.batch_size, str) else space.batch_size or ()
        )
    for size in listed:
        if isinstance(size, int):
            yield size
        elif size == AUTO:
            yield from (2**k for k in range(LARGEST_BATCH.bit_length()))


def _workers(config: Config) -> Iterator[int]:
    yield config.baseline.num_workers
    for space in config.search_spaces.values():
        listed = space.num_workers
        yield from (usable_cpus(),) if isinstance(listed, str) else listed or ()
