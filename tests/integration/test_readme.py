"""What README.md shows: its Python is run, its commands are composed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pytest

from autotune.cli.command_line import Show, parse_command_line
from autotune.cli.compose import compose
from autotune.environment import cpu_model
from autotune.export import Tuned, write_tuned
from autotune.export.tuned import Evidence, Figure, HoldsFor
from autotune.settings import Precision, Settings
from autotune.statistics import Verdict

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")

COUNT_STEPS = """
import torch

steps = 0
plain_step = torch.optim.SGD.step


def counted_step(*args, **kwargs):
    global steps
    steps += 1
    return plain_step(*args, **kwargs)


torch.optim.SGD.step = counted_step
"""


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found is not None, f"README.md has no section {title!r}"
    return found.group(1)


def commands(text: str) -> list[list[str]]:
    """Return the words after `python -m autotune` of each command in the README's shell blocks."""
    joined = "\n".join(blocks("bash", text) + blocks("sh", text) + blocks("console", text))
    lines = joined.replace("\\\n", " ").splitlines()
    called = [line.partition("python -m autotune")[2] for line in lines if "-m autotune" in line]
    return [shlex.split(words, comments=True) for words in called]


def a_tuned_file(settings: Settings) -> Tuned:
    figure = Figure(value=100.0, low=98.0, high=102.0)
    return Tuned(
        created=date(2026, 1, 1),
        settings=settings,
        evidence=Evidence(
            verdict=Verdict.FASTER,
            confirmed=True,
            tuned_samples_per_s=figure,
            baseline_samples_per_s=figure,
            expert_samples_per_s=None,
            speedup=figure,
            rounds=3,
            search_trials=5,
        ),
        holds_for=HoldsFor(
            device_kind="cpu",
            device_name=cpu_model(),
            cpus=2,
            torch=None,
            python="3.11",
            model="resnet50",
            data="photos",
        ),
    )


@pytest.mark.parametrize(
    "settings",
    [
        Settings(batch_size=4),
        Settings(
            batch_size=8,
            num_workers=1,
            prefetch_factor=2,
            persistent_workers=True,
            precision=Precision.BF16,
            channels_last=True,
            fused_optimizer=True,
        ),
    ],
    ids=["plain", "everything a CPU has"],
)
def test_ten_steps_are_trained_with_a_tuned_file(tmp_path: Path, settings: Settings) -> None:
    (code,) = blocks("python", section("Use the result"))
    write_tuned(a_tuned_file(settings), tmp_path / "tuned.yaml")
    script = tmp_path / "train.py"
    script.write_text(f"{COUNT_STEPS}\n{code}\nprint('optimizer steps:', steps)\n")
    ran = subprocess.run(
        [sys.executable, script.name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "optimizer steps: 10"


@pytest.mark.parametrize(
    ("title", "shown", "picture"),
    [
        ("Time your own loop", ["| data ", "| optimizer ", "samples/s", "left out: "], "steps.png"),
        ("Compare two pieces of code", ["| four ops ", "speed-up"], "compare.png"),
    ],
)
def test_the_timing_examples_run(
    tmp_path: Path, title: str, shown: Sequence[str], picture: str
) -> None:
    (code,) = blocks("python", section(title))
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert all(words in ran.stdout for words in shown), ran.stdout
    assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
    assert "| differ" not in ran.stdout


@pytest.mark.parametrize("words", commands(README), ids=" ".join)
def test_every_command_can_be_composed(words: Sequence[str]) -> None:
    line = parse_command_line(words)
    if line.show is not Show.HELP:
        assert compose(line.overrides).config.study_name


def test_the_commands_are_found() -> None:
    found = commands(README)
    assert ["model=resnet50"] in found
    assert len(found) > 5
