"""Trackers: where a study is logged. One file per store."""

from autotune.tracking.tracker import NoTracker, Tracker

__all__ = ["NoTracker", "Tracker"]
