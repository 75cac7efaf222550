"""Where the project's own files and the user's cache lie."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def conf_folder() -> Path:
    """Return the folder of the configuration groups (`conf`)."""
    return _project_folder("conf")


def search_spaces_folder() -> Path:
    """Return the folder of the search spaces (`search_spaces`)."""
    return _project_folder("search_spaces")


def cache_folder() -> Path:
    """Return the user's cache folder for autotune (not created here).

    `AUTOTUNE_CACHE` wins, then `XDG_CACHE_HOME/autotune`, then `~/.cache/autotune`; without a
    home folder, a folder of this user's under the system's temporary folder.
    """
    if chosen := os.environ.get("AUTOTUNE_CACHE"):
        return Path(chosen).expanduser().absolute()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).absolute() / "autotune"
    try:
        return Path.home() / ".cache" / "autotune"
    except RuntimeError:
        import tempfile

        return Path(tempfile.gettempdir()) / f"autotune-{os.getuid()}"


def _project_folder(name: str) -> Path:
    # Inside the package when installed from a wheel; beside it in a checkout.
    inside = _PACKAGE / name
    if inside.is_dir():
        return inside
    beside = _PACKAGE.parent / name
    if beside.is_dir() and (_PACKAGE.parent / "pyproject.toml").is_file():
        return beside
    raise FileNotFoundError(
        f"autotune's folder {name!r} is neither at {inside} nor at {beside}; reinstall autotune"
    )
