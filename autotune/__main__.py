"""`python -m autotune`: the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from autotune.cli.run import run
from autotune.errors import AutotuneError

INTERRUPTED = 130
"""Exit code of a run that was interrupted with nothing to show, as shells have it."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Args:
        words: The words after the program's name; None for those of this process.
    """
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            # A file name or the user's own message may hold letters that the terminal has not.
            reconfigure(errors="backslashreplace")
    try:
        return run(sys.argv[1:] if words is None else words)
    except AutotuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
