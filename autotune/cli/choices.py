"""What can be chosen: the configuration groups and their files, ours and the user's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from autotune.errors import ConfigError, config_error, nearest
from autotune.paths import conf_folder, search_spaces_folder

SPACE_GROUP = "search_space"
"""Group of the search spaces. Ours lie in a folder of their own, the user's in `search_space/`."""

Choices = Mapping[str, Mapping[str, Path]]
"""File of each choice, by group and name."""


def find_choices(config_dirs: Sequence[Path] = ()) -> Choices:
    """Return every choice of every group.

    Args:
        config_dirs: The user's folders, each with groups as subfolders.

    Raises:
        ConfigError: A folder does not exist, or one name is found twice in a group.
    """
    ours = {folder.name: folder for folder in sorted(conf_folder().iterdir()) if folder.is_dir()}
    ours[SPACE_GROUP] = search_spaces_folder()
    choices = {group: _files(folder) for group, folder in ours.items()}
    for config_dir in config_dirs:
        if not config_dir.is_dir():
            raise config_error("--config-dir", str(config_dir), "an existing folder")
        for group, known in choices.items():
            for name, file in _files(config_dir / group).items():
                if name in known:
                    raise ConfigError(
                        f"{group}={name} is found twice: {known[name]} and {file}. Rename yours."
                    )
                known[name] = file
    return choices


def default_choices() -> dict[str, str]:
    """Return the choice that each group has when none is made; `model` has none."""
    import yaml

    root = yaml.safe_load((conf_folder() / "config.yaml").read_text(encoding="utf-8"))
    entries = [entry for entry in root["defaults"] if isinstance(entry, dict)]
    return {
        group: choice for entry in entries for group, choice in entry.items() if choice != "???"
    }


def require_choice(group: str, name: object, choices: Choices) -> None:
    """Raise a `ConfigError` unless `name` is a choice of `group`."""
    allowed = sorted(choices[group])
    if not isinstance(name, str) or name not in allowed:
        raise config_error(
            group,
            name,
            ", ".join(allowed),
            suggestion=nearest(str(name), allowed),
            todo=f"Your own: --config-dir DIR with DIR/{group}/NAME.yaml.",
        )


def _files(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        return {}
    return {
        file.relative_to(folder).with_suffix("").as_posix(): file
        for file in sorted(folder.rglob("*.yaml"))
    }
