"""From the words of the command line to the checked configuration. The door to Hydra."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from autotune.cli.choices import SPACE_GROUP, find_choices
from autotune.cli.overrides import Override, check_overrides
from autotune.config import OPEN_SECTIONS, Config, parse_config
from autotune.errors import ConfigError, config_error, nearest
from autotune.paths import conf_folder, search_spaces_folder

AUTO_SPACE = "auto"
"""Choice that stands for one search space by kind of device."""

_SPACE_BY_DEVICE = {"cuda": "cuda", "cpu": "cpu"}
_SPACE_OF_ANY_DEVICE = "any"


@dataclass(frozen=True)
class Composed:
    """The configuration of a run.

    Attributes:
        config: Checked and typed.
        yaml_text: The same as YAML, everything resolved.
    """

    config: Config
    yaml_text: str


def compose(words: Sequence[str], config_dirs: Sequence[Path] = ()) -> Composed:
    """Compose the configuration files with the words of the command line.

    Writes nothing, logs nothing and stays in the caller's folder.

    Args:
        words: `key=value` words.
        config_dirs: The user's configuration folders, absolute.

    Raises:
        ConfigError: The first thing that is wrong, by its full key.
    """
    overrides = check_overrides(words, find_choices(config_dirs))
    values = _compose_values(overrides, config_dirs)
    return Composed(parse_config(values), yaml.safe_dump(values, sort_keys=False))


def _compose_values(overrides: Sequence[Override], config_dirs: Sequence[Path]) -> dict[str, Any]:
    """Return plain values by section, with one search space by kind of device."""
    chosen = [str(override.value) for override in overrides if override.key == SPACE_GROUP]
    space = chosen[-1] if chosen else AUTO_SPACE
    spaces = _SPACE_BY_DEVICE if space == AUTO_SPACE else {_SPACE_OF_ANY_DEVICE: space}
    others = [override for override in overrides if override.key != SPACE_GROUP]
    found = {}
    for file in search_spaces_folder().glob("*.yaml"):
        # They lie in a folder of their own beside `conf`, where Hydra does not look.
        ConfigStore.instance().store(group=SPACE_GROUP, name=file.stem, node=OmegaConf.load(file))
    with initialize_config_dir(str(conf_folder()), job_name="autotune", version_base="1.3"):
        for kind, name in spaces.items():
            found[kind] = _plain(_ask_hydra(name, others, config_dirs), others)
    values = dict(next(iter(found.values())))
    del values[SPACE_GROUP]
    values["search_spaces"] = {kind: every[SPACE_GROUP] for kind, every in found.items()}
    if values["loss"].get("_target_") is None:
        values["loss"] = None
    return values


def _ask_hydra(
    space: str, overrides: Sequence[Override], config_dirs: Sequence[Path]
) -> DictConfig:
    texts = [f"{SPACE_GROUP}={space}", *(override.text for override in overrides)]
    if config_dirs:
        folders = ", ".join(f"'file://{_escape(str(folder))}'" for folder in config_dirs)
        texts.append(f"hydra.searchpath=[{folders}]")
    try:
        return hydra_compose("config", texts)
    except HydraException as error:
        raise _explain(error, overrides) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"a configuration file is not YAML: {error}") from None


def _plain(composed: DictConfig, overrides: Sequence[Override]) -> dict[str, Any]:
    try:
        values = cast(dict[str, Any], OmegaConf.to_container(composed, resolve=True))
        missing = sorted(OmegaConf.missing_keys(composed))
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {str(error).splitlines()[0]}") from None
    if missing:
        section = missing[0].partition(".")[0]
        choice = next((item.value for item in overrides if item.key == section), section)
        raise ConfigError(
            f"{missing[0]}: has no value, and {section}={choice} needs one. Add {missing[0]}=..."
        )
    return values


def _explain(error: HydraException, overrides: Sequence[Override]) -> ConfigError:
    cause = error.__cause__
    if not isinstance(cause, OmegaConfBaseException) or not cause.full_key:
        return ConfigError(str(error).splitlines()[0])
    key = str(cause.full_key)
    section, _, name = key.rpartition(".")
    given = next((item.value for item in overrides if item.key == key), None)
    known = list(cause.parent_node) if isinstance(cause.parent_node, DictConfig) else []
    if not known:
        return ConfigError(f"{key}: {section} is a single value; nothing can stand below it")
    open_section = key.partition(".")[0] in OPEN_SECTIONS
    todo = f"A new keyword argument is added with +{key}=..." if open_section else None
    return config_error(
        key, given, "the keys " + ", ".join(known), suggestion=nearest(name, known), todo=todo
    )


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
