"""Exports: a study's settings in a form that the user's own code takes. One file per format."""

from autotune.export.from_study import tuned_from
from autotune.export.tuned import Tuned
from autotune.export.yaml_file import load_tuned, write_tuned

__all__ = ["Tuned", "load_tuned", "tuned_from", "write_tuned"]
