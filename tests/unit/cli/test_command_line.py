from __future__ import annotations

from pathlib import Path

import pytest

from autotune.cli.command_line import CommandLine, Show, parse_command_line
from autotune.errors import ConfigError


def test_words_folders_and_options_in_any_order() -> None:
    line = parse_command_line(["tune", "--config-dir", "a", "model=x", "--cfg", "--config-dir=b"])
    assert line == CommandLine(
        ("model=x",), (Path("a").absolute(), Path("b").absolute()), Show.CONFIG
    )


def test_command_may_be_left_out() -> None:
    assert parse_command_line(["model=x"]) == parse_command_line(["tune", "model=x"])


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_wins_over_what_is_wrong(word: str) -> None:
    assert parse_command_line(["--wrong", word]).show is Show.HELP


def test_version() -> None:
    assert parse_command_line(["--version"]).show is Show.VERSION


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--confg-dir", "x"], "--confg-dir: unknown option.*Did you mean --config-dir?"),
        (["--model=x"], "--model: unknown option.*key=value, without dashes"),
        (["--config-dir"], "--config-dir DIR"),
        (["model=x", "--multirun"], "--multirun is not supported.*once for each"),
        (["-m", "model=x,y"], "-m is not supported"),
    ],
)
def test_wrong_options(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_command_line(words)
