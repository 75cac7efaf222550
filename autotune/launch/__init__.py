"""Launchers: how a trial gets its own process. One file per engine."""

from autotune.launch.launcher import Launcher, TrialRequest

__all__ = ["Launcher", "TrialRequest"]
