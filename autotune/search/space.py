"""The search space: which values each setting may take, and when a setting applies at all."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from autotune.settings import Precision, Settings, settings_from_mapping

if TYPE_CHECKING:
    import optuna

WORKER_KNOBS = ("prefetch_factor", "persistent_workers")
"""Settings that DataLoader accepts only with workers."""

LOADER_KNOBS = ("num_workers", "pin_memory", *WORKER_KNOBS)
"""Settings of the DataLoader, without meaning for resident data."""


_CONDITIONAL = (*WORKER_KNOBS, "fused_optimizer")
"""Settings that some choices of others leave without meaning."""


@dataclass(frozen=True)
class SearchSpace:
    """Ordered values of each searched setting; the others stay as in `fixed`.

    The settings of `WORKER_KNOBS` exist only where the number of workers is above 0, a fused
    optimizer only where `unfused` does not name the precision. Two points that differ only in a
    setting that does not apply are one.

    Attributes:
        values: Searched setting to its values, in the order of `settings.KNOBS` (so the number of
            workers is chosen before what depends on it).
        fixed: Where the settings that are not searched come from.
        notes: What was left out of the space that was asked for, and why, in words.
        unfused: Precisions with which the job's fused optimizer must not be used.
    """

    values: Mapping[str, tuple[Any, ...]]
    fixed: Settings
    notes: tuple[str, ...] = ()
    unfused: tuple[Precision, ...] = ()

    @property
    def knobs(self) -> tuple[str, ...]:
        """Names of the settings with a choice to make."""
        workers = max(self.values.get("num_workers", (self.fixed.num_workers,)))
        return tuple(
            knob
            for knob, values in self.values.items()
            if len(values) > 1 and (workers > 0 or knob not in WORKER_KNOBS)
        )

    @property
    def size(self) -> int:
        """Number of distinct settings."""
        counted = (*WORKER_KNOBS, "num_workers", "precision", "fused_optimizer")
        common = math.prod(
            len(values) for knob, values in self.values.items() if knob not in counted
        )
        fused = len(self.values.get("fused_optimizer", (None,)))
        precisions = self.values.get("precision", (self.fixed.precision,))
        common *= sum(1 if precision in self.unfused else fused for precision in precisions)
        with_workers = math.prod(
            len(values) for knob, values in self.values.items() if knob in WORKER_KNOBS
        )
        workers = self.values.get("num_workers", (self.fixed.num_workers,))
        return common * sum(with_workers if count > 0 else 1 for count in workers)

    def choices(self, knob: str) -> tuple[Any, ...]:
        """Return the values of a searched setting as plain values (enums as their words)."""
        return tuple(_plain(value) for value in self.values[knob])

    def suggest(self, trial: optuna.Trial) -> Settings:
        """Let a trial's sampler choose each setting that applies."""
        chosen: dict[str, Any] = {}
        for knob in self.values:
            if self._applies(knob, chosen):
                chosen[knob] = trial.suggest_categorical(knob, self.choices(knob))
        return self.complete(chosen)

    def complete(self, chosen: Mapping[str, Any]) -> Settings:
        """Return the settings with the chosen values, the rest as in `fixed`.

        Raises:
            ConfigError: A chosen value that no setting may have.
        """
        plain = self.fixed.as_dict() | dict(chosen)
        if plain["num_workers"] == 0:
            plain |= {"prefetch_factor": None, "persistent_workers": False}
        if plain["precision"] in self.unfused:
            plain |= {"fused_optimizer": False}
        return settings_from_mapping(plain, prefix="search_space")

    def params(self, settings: Settings) -> dict[str, Any]:
        """Return the searched values of `settings` as Optuna's parameters."""
        plain = settings.as_dict()
        return {knob: plain[knob] for knob in self.values if self._applies(knob, plain)}

    def contains(self, settings: Settings) -> bool:
        """Return whether `settings` is a point of the space."""
        params = self.params(settings)
        if any(value not in self.choices(knob) for knob, value in params.items()):
            return False
        return self.complete(params) == settings

    def all(self) -> Iterator[Settings]:
        """Yield every distinct setting, the last setting varying fastest."""
        free = [knob for knob in self.values if knob not in _CONDITIONAL]
        tied = [knob for knob in self.values if knob in _CONDITIONAL]
        for values in itertools.product(*(self.choices(knob) for knob in free)):
            chosen = dict(zip(free, values, strict=True))
            applying = [knob for knob in tied if self._applies(knob, chosen)]
            for more in itertools.product(*(self.choices(knob) for knob in applying)):
                yield self.complete(chosen | dict(zip(applying, more, strict=True)))

    def draw(self, rng: random.Random) -> Settings:
        """Return a random point, each value of a setting being equally likely."""
        return self.complete({knob: rng.choice(self.choices(knob)) for knob in self.values})

    def text(self) -> str:
        """Return the space as stable JSON text, for comparing and for showing."""
        values = {knob: self.choices(knob) for knob in self.values}
        fixed = {knob: value for knob, value in self.fixed.as_dict().items() if knob not in values}
        return json.dumps({"values": values, "fixed": fixed})

    def fingerprint(self) -> str:
        """Return a short text that differs between different spaces."""
        return hashlib.sha256(self.text().encode()).hexdigest()[:16]

    def _applies(self, knob: str, chosen: Mapping[str, Any]) -> bool:
        if knob in WORKER_KNOBS:
            return bool(chosen.get("num_workers", self.fixed.num_workers) > 0)
        if knob == "fused_optimizer":
            return chosen.get("precision", self.fixed.precision) not in self.unfused
        return True


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, StrEnum) else value
