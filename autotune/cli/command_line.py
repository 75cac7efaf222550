"""The words of the command line, before any of them is looked at as configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from autotune.errors import ConfigError, nearest

COMMANDS = ("tune",)
"""Commands that may stand first; the first one is meant when none does."""

_OPTIONS = ("--help", "-h", "--version", "--cfg", "--config-dir")


class Show(StrEnum):
    """Something to print instead of running."""

    HELP = "help"
    VERSION = "version"
    CONFIG = "config"


@dataclass(frozen=True)
class CommandLine:
    """A command line taken apart.

    Attributes:
        overrides: The `key=value` words, in their order.
        config_dirs: The user's configuration folders, absolute.
        show: What to print instead of running; None to run.
    """

    overrides: tuple[str, ...] = ()
    config_dirs: tuple[Path, ...] = ()
    show: Show | None = None


def parse_command_line(words: Sequence[str]) -> CommandLine:
    """Take the words apart. Help wins over everything, so that it always answers.

    Raises:
        ConfigError: An unknown option or command, or an option without its value.
    """
    if {"--help", "-h"} & set(words):
        return CommandLine(show=Show.HELP)
    if "--version" in words:
        return CommandLine(show=Show.VERSION)
    overrides: list[str] = []
    config_dirs: list[Path] = []
    show = None
    rest = iter(words[1:] if words and words[0] in COMMANDS else words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option == "--config-dir":
            if not equals:
                value = next(rest, "")
            if not value:
                raise ConfigError("--config-dir: give the folder: --config-dir DIR")
            config_dirs.append(Path(value).expanduser().absolute())
        elif word == "--cfg":
            show = Show.CONFIG
        elif word in ("--multirun", "-m"):
            raise ConfigError(
                f"{word} is not supported: a study is one run. Run the command once for each."
            )
        elif word.startswith("-"):
            raise _unknown_option(option)
        else:
            overrides.append(word)
    return CommandLine(tuple(overrides), tuple(config_dirs), show)


def _unknown_option(option: str) -> ConfigError:
    close = nearest(option, _OPTIONS)
    hint = f" Did you mean {close}?" if close else ""
    return ConfigError(
        f"{option}: unknown option; there are {', '.join(_OPTIONS)}.{hint} "
        "Everything else is written key=value, without dashes."
    )
