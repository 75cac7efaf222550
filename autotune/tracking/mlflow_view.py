"""The table of a study's runs as MLflow's UI opens it: trials and study by throughput, best first.

Left to itself, the UI shows one line a study, with none of its numbers.
"""

from __future__ import annotations

import json

VIEW_TAG_PREFIX = "mlflow.sharedViewState."
"""Tag of an experiment that holds a view, as the UI's own "share" button writes it. Not part of
MLflow's documented interface: a UI that does not know it shows its usual table."""

STUDY_TAG = "study_folder"
"""Tag of a study's runs, parent and children, by which the view finds them."""

_COLUMNS = (
    "metrics.`samples_per_s`",
    "metrics.`stall_share`",
    "params.`batch_size`",
    "params.`num_workers`",
    "params.`precision`",
    "params.`compile`",
    "tags.`state`",
)
_NAME_COLUMN = "attributes.`Run Name`"
_NAME_WIDTH = 460
"""Pixels that show a trial's settings, which are in its name, whole."""


def study_view(study_folder: str, score: str | None = None) -> str:
    """Return the view of a study as JSON.

    Args:
        study_folder: Name of the study's folder.
        score: Metric of the score, where that is not the throughput: shown and sorted by first.
    """
    columns = _COLUMNS if score is None else (f"metrics.`{score}`", *_COLUMNS)
    return json.dumps(
        {
            "searchFilter": f"tags.{STUDY_TAG} = '{study_folder}'",
            "orderByKey": columns[0],
            "orderByAsc": False,
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "modelVersionFilter": "All Runs",
            "datasetsFilter": [],
            "selectedColumns": columns,
            "columnOrder": [_NAME_COLUMN],
            "columnWidths": {_NAME_COLUMN: _NAME_WIDTH},
        }
    )
