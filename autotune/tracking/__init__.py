"""Trackers: where a study is logged. One file per store."""

from __future__ import annotations

from pathlib import Path

from autotune.config import TrackingConfig
from autotune.tracking.tracker import NoTracker, Tracker

__all__ = ["NoTracker", "Tracker", "make_tracker"]


def make_tracker(config: TrackingConfig, output: Path) -> Tracker:
    """Return the tracker that the configuration asks for. Connects to nothing yet.

    Args:
        config: Which store, and where.
        output: Absolute output folder.

    Raises:
        TrackingError: The output folder's name cannot stand in the default store's URI.
    """
    if config.kind == "none":
        return NoTracker()
    from autotune.tracking.mlflow import MlflowTracker

    return MlflowTracker(config, output)
