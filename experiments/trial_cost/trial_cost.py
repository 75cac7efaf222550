"""Print what the trials of finished studies cost, by part.

    python experiments/trial_cost/trial_cost.py autotune_runs/resnet50-*

Outside measuring: everything that measures nothing: starting the process and its device, building
the job, ending the processes.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from autotune.result import TrialRecord
from autotune.search.records import load_records

_MEASURING = {
    "warm-up and compile": "warmup_s",
    "window": "window_s",
    "device ceiling": "ceiling_s",
    "trace": "profile_s",
    "loader ceiling": "loader_ceiling_s",
    "first losses against fp32": "guard_s",
}


def seconds(record: TrialRecord) -> dict[str, float]:
    """Return the seconds of one trial by part."""
    costs = record.outcome.costs
    parts = {name: getattr(costs, field) or 0.0 for name, field in _MEASURING.items()}
    start, setup = costs.start_s or 0.0, costs.setup_s or 0.0
    outside = record.total_s - sum(parts.values())
    return {
        "start process and device": start,
        "build the job": setup,
        "end the processes, and the rest": outside - start - setup,
        "**outside measuring**": outside,
        **parts,
        "whole trial": record.total_s,
    }


def report(folder: Path) -> None:
    """Print one study's table."""
    measured = [record for record in load_records(folder) if record.measurement is not None]
    rows = [seconds(record) for record in measured]
    print(f"\n{folder.name}: {len(rows)} measured trials, seconds\n")
    print("| part | median | least | most |\n| --- | ---: | ---: | ---: |")
    for part in rows[0]:
        values = [row[part] for row in rows]
        shown = (statistics.median(values), min(values), max(values))
        print(f"| {part} | " + " | ".join(f"{value:.2f}" for value in shown) + " |")


def main(folders: Sequence[str]) -> None:
    """Print a table for each study folder."""
    for folder in folders:
        report(Path(folder).absolute())


if __name__ == "__main__":
    main(sys.argv[1:])
