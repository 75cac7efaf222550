"""The tuner: baseline, expert guess, search, confirmation, within one budget."""

from autotune.tuner.observer import Observer, StudyPlan
from autotune.tuner.tuner import Tuner

__all__ = ["Observer", "StudyPlan", "Tuner"]
