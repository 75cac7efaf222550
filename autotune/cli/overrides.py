"""The `key=value` words: checked one by one before Hydra sees them, so that messages are ours."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType, ValueType
from hydra.errors import HydraException

from autotune.cli.choices import SPACE_GROUP, Choices, require_choice
from autotune.config import OPEN_SECTIONS, Config
from autotune.errors import ConfigError, config_error, nearest

CUSTOM = "custom"
"""Choice of an open section that is nothing but what the command line says."""

_TOP_KEYS = tuple(
    SPACE_GROUP if field.name == "search_spaces" else field.name for field in fields(Config)
)
_FREE_KEYS = ("data.collate",)
"""Keys under which any keyword argument may stand, whatever the choice of their section."""


@dataclass(frozen=True)
class Override:
    """One `key=value` word, read by Hydra's grammar.

    Attributes:
        key: Dotted key, or the name of a group.
        value: Plain value.
        text: The word as Hydra is to see it, with `+` or `++` in front where keys may be new.
    """

    key: str
    value: object
    text: str

    @property
    def section(self) -> str:
        """The first part of the key."""
        return self.key.partition(".")[0]


def check_overrides(words: Sequence[str], choices: Choices) -> list[Override]:
    """Return the words as overrides that Hydra can apply, with what they imply.

    `model._target_=pkg.fn` implies `model=custom` unless a model is chosen (the same for every open
    section), and under `custom` keys need no `+`.

    Raises:
        ConfigError: A word that is not an override, an unknown key or choice, or no model.
    """
    overrides = [_parse(word, choices) for word in words]
    for override in overrides:
        if override.section not in _TOP_KEYS:
            raise config_error(
                override.key,
                override.value,
                "the keys " + ", ".join(_TOP_KEYS),
                suggestion=nearest(override.section, _TOP_KEYS),
            )
        if override.key in choices:
            require_choice(override.key, override.value, choices)
        elif keys := _keys_of(override.key):
            allowed = ", ".join(f"{override.key}.{name}=..." for name in keys)
            raise config_error(override.key, override.value, allowed)
    for section in OPEN_SECTIONS:
        overrides = _imply_custom(section, overrides)
    if not any(override.key == "model" for override in overrides):
        raise ConfigError(
            "model: choose one of "
            + ", ".join(sorted(choices["model"]))
            + " (model=resnet50), or give your own: model._target_=package.module.function"
        )
    return [_open(override) if _is_free(override.key) else override for override in overrides]


def _keys_of(key: str) -> list[str]:
    """Return the keys of a typed section, or none for anything else."""
    kind = next((field.default_factory for field in fields(Config) if field.name == key), None)
    if not isinstance(kind, type) or not is_dataclass(kind):
        return []
    return [field.name for field in fields(kind)]


def _parse(word: str, choices: Choices) -> Override:
    key, equals, value = word.partition("=")
    key = key.lstrip("+~")
    if word.startswith("~"):
        raise ConfigError(f"{word}: keys cannot be removed. Leave {key} out, or set it to null.")
    if not key or not equals:
        raise _not_an_override(word, choices)
    try:
        parsed = OverridesParser.create().parse_override(word)
    except HydraException:
        raise _unreadable(key, value) from None
    if parsed.package is not None:
        raise ConfigError(f"{word}: write {parsed.key_or_group}=... without '@'")
    if parsed.value_type is not ValueType.ELEMENT:
        raise _several_values(key, value, choices)
    text = word if parsed.type is not OverrideType.ADD else f"+{word.lstrip('+')}"
    return Override(parsed.key_or_group, parsed.value(), text)


def _imply_custom(section: str, overrides: list[Override]) -> list[Override]:
    chosen = [override.value for override in overrides if override.key == section]
    if not chosen and any(override.key == f"{section}._target_" for override in overrides):
        implied = Override(section, CUSTOM, f"{section}={CUSTOM}")
        overrides, chosen = [implied, *overrides], [CUSTOM]
    if chosen != [CUSTOM]:
        return overrides
    return [
        _open(override) if override.key.startswith(f"{section}.") else override
        for override in overrides
    ]


def _is_free(key: str) -> bool:
    return any(key.startswith(f"{free}.") for free in _FREE_KEYS)


def _open(override: Override) -> Override:
    return replace(override, text="++" + override.text.lstrip("+"))


def _not_an_override(word: str, choices: Choices) -> ConfigError:
    owners = [group for group, names in choices.items() if word in names]
    if owners:
        return ConfigError(
            f"{word}: settings are written key=value. Did you mean {owners[0]}={word}?"
        )
    return ConfigError(
        f"{word}: neither a command nor a setting; settings are written key=value, such as "
        "model=resnet50 (see --help)"
    )


def _several_values(key: str, value: str, choices: Choices) -> ConfigError:
    if key in choices:
        return config_error(key, value, "one choice", todo="Run the command once for each.")
    return config_error(
        key, value, "one value, or a list in brackets", todo=f"Write {key}=[{value}]."
    )


def _unreadable(key: str, value: str) -> ConfigError:
    plain = value.strip("'\"")
    if plain.startswith("~"):
        plain = str(Path(plain).expanduser())
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    quoted = shlex.quote(f'{key}="{escaped}"')
    return ConfigError(
        f"{key}: cannot read {value!r}. A value with one of = # ; ~ ( ) or letters beyond a-z "
        f"needs quotes inside quotes, since the shell takes the outer ones: {quoted}"
    )
