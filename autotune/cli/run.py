"""What the words of the command line ask for: help, the configuration, or a study."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import autotune
from autotune.cli.choices import default_choices, find_choices
from autotune.cli.command_line import Show, parse_command_line
from autotune.cli.help import help_text, usage
from autotune.errors import ConfigError


def run(words: Sequence[str]) -> int:
    """Do what the words ask for and return the exit code.

    Raises:
        AutotuneError: It cannot be done; the message is for the user.
        KeyboardInterrupt: The user stopped it before there was anything to keep.
    """
    line = parse_command_line(words)
    if line.show is Show.HELP:
        print(help_text(find_choices(), default_choices()), end="")
        return 0
    if line.show is Show.VERSION:
        print(f"autotune {autotune.__version__}")
        return 0
    if not line.overrides:
        print(usage(find_choices(line.config_dirs)), file=sys.stderr)
        return ConfigError.exit_code
    from autotune.cli.compose import compose

    composed = compose(line.overrides, line.config_dirs)
    if line.show is Show.CONFIG:
        print(composed.yaml_text, end="")
        return 0
    from autotune.cli.tune import tune

    return tune(composed)
