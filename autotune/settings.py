"""Settings: one point of the search space, and the words its values may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from autotune.errors import ConfigError, config_error, nearest


class Precision(StrEnum):
    """Arithmetic of the forward and backward pass."""

    DEFAULT = "default"
    """Torch's own defaults: on CUDA, tf32 convolutions but fp32 matrix products."""
    FP32 = "fp32"
    """Strict fp32 everywhere."""
    TF32 = "tf32"
    """fp32 storage, tf32 matrix products and convolutions (CUDA)."""
    BF16 = "bf16"
    """Autocast to bfloat16."""
    FP16 = "fp16"
    """Autocast to float16 with a GradScaler (CUDA)."""


class CompileMode(StrEnum):
    """Mode given to `torch.compile`, or `off` for eager."""

    OFF = "off"
    DEFAULT = "default"
    REDUCE_OVERHEAD = "reduce-overhead"
    MAX_AUTOTUNE = "max-autotune"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a job is trained, apart from what is learned.

    Attributes:
        batch_size: Samples in one optimizer step.
        num_workers: DataLoader worker processes; 0 loads in the training process.
        pin_memory: Page-locked host memory for batches.
        prefetch_factor: Batches that each worker prepares ahead; None without workers.
        persistent_workers: Keep the workers alive between passes over the data.
        precision: Arithmetic of forward and backward.
        compile: `torch.compile` mode.
        channels_last: Memory format of 4-D tensors.
        fused_optimizer: Fused kernel of the optimizer, where it has one.
        cudnn_benchmark: Let cuDNN time its algorithms for each new shape.

    Raises:
        ConfigError: A value out of range, or a combination that DataLoader refuses.
    """

    batch_size: int
    num_workers: int = 0
    pin_memory: bool = False
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    precision: Precision = Precision.DEFAULT
    compile: CompileMode = CompileMode.OFF
    channels_last: bool = False
    fused_optimizer: bool = False
    cudnn_benchmark: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise config_error("batch_size", self.batch_size, "an integer of 1 or more")
        if self.num_workers < 0:
            raise config_error("num_workers", self.num_workers, "an integer of 0 or more")
        if self.prefetch_factor is not None and self.prefetch_factor < 1:
            raise config_error("prefetch_factor", self.prefetch_factor, "1 or more, or null")
        if self.num_workers == 0 and (self.prefetch_factor is not None or self.persistent_workers):
            raise ConfigError(
                "prefetch_factor and persistent_workers need num_workers of 1 or more; "
                f"got num_workers=0 with prefetch_factor={self.prefetch_factor}, "
                f"persistent_workers={self.persistent_workers}. Leave them out, or use workers."
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain values (enums as their words)."""
        return {
            key: str(value) if isinstance(value, StrEnum) else value
            for key, value in asdict(self).items()
        }

    def describe(self, other: Settings | None = None) -> str:
        """Return `name=value` of every setting, or of those that differ from `other`."""
        mine = self.as_dict()
        theirs = other.as_dict() if other is not None else {}
        parts = [
            f"{key}={yaml_word(value)}"
            for key, value in mine.items()
            if other is None or theirs[key] != value
        ]
        return " ".join(parts) if parts else "(the same settings)"

    def label(self, other: Settings | None = None) -> str:
        """Return the shortest form, for tables and run names: `bs=256 w=16 pin pf=2 bf16`.

        Args:
            other: Name only what differs from these; None: leave out what is off or default.
        """
        plain = {"precision": "default", "compile": "off"}
        theirs = other.as_dict() if other is not None else None
        return " ".join(
            _short(name, value)
            for name, value in self.as_dict().items()
            if (
                theirs[name] != value
                if theirs is not None
                else value is not None and value is not False and value != plain.get(name)
            )
        )


KNOBS: tuple[str, ...] = tuple(field.name for field in fields(Settings))
"""Names of all settings, in the order in which they are shown."""

_SHORT_NAMES = {
    "batch_size": "bs",
    "num_workers": "w",
    "pin_memory": "pin",
    "prefetch_factor": "pf",
    "persistent_workers": "persistent",
    "fused_optimizer": "fused",
}

_OWN_WORDS = {("precision", word.value) for word in Precision if word is not Precision.DEFAULT}
"""Values that say by themselves which setting they belong to."""


def settings_from_mapping(values: Mapping[str, Any], *, prefix: str) -> Settings:
    """Build `Settings` from plain values as read from YAML or a study.

    Args:
        values: Setting name to value; words for the enumerations.
        prefix: Dotted key under which the values stand, for messages.

    Raises:
        ConfigError: An unknown name, a missing `batch_size`, or a value that is not allowed.
    """
    unknown = [key for key in values if key not in KNOBS]
    if unknown:
        raise config_error(
            f"{prefix}.{unknown[0]}",
            values[unknown[0]],
            "one of the settings " + ", ".join(KNOBS),
            suggestion=nearest(unknown[0], KNOBS),
        )
    if values.get("batch_size") is None:
        raise config_error(f"{prefix}.batch_size", None, "an integer of 1 or more")
    clean = {key: knob_value(key, value, key=f"{prefix}.{key}") for key, value in values.items()}
    try:
        return Settings(**clean)
    except ConfigError as error:
        raise ConfigError(f"{prefix}.{error}") from None


def knob_value(name: str, value: Any, *, key: str) -> Any:
    """Return `value` as the type that the setting `name` has.

    YAML reads a bare `off` as false; for `compile` that can mean only one thing, so it is accepted.

    Raises:
        ConfigError: The value has another type or is not one of the allowed words.
    """
    if name == "precision":
        return _word(Precision, value, key)
    if name == "compile":
        return _word(CompileMode, "off" if value is False else value, key)
    if name in ("batch_size", "num_workers", "prefetch_factor"):
        if name == "prefetch_factor" and value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise config_error(key, value, "a whole number")
        return value
    if not isinstance(value, bool):
        raise config_error(key, value, "true or false")
    return value


def yaml_word(value: object) -> str:
    """Return the plain value of a setting as YAML has it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _word(kind: type[StrEnum], value: Any, key: str) -> StrEnum:
    allowed = [str(word) for word in kind]
    if not isinstance(value, str) or value not in allowed:
        raise config_error(key, value, ", ".join(allowed), suggestion=nearest(str(value), allowed))
    return kind(value)


def _short(name: str, value: Any) -> str:
    word = _SHORT_NAMES.get(name, name.replace("_", "-"))
    if isinstance(value, bool):
        return word if value else f"no-{word}"
    if value is None or (name, value) == ("compile", "off"):
        return f"no-{word}"
    return str(value) if (name, value) in _OWN_WORDS else f"{word}={value}"
