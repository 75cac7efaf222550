"""What an exported file holds, and how it drops into the user's own training code."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, FiniteFloat

from autotune.settings import Settings
from autotune.statistics import Verdict

if TYPE_CHECKING:
    import torch

SCHEMA_VERSION: Literal[1] = 1
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A measured figure with its 95 % interval, where there is one."""

    __pydantic_config__ = _STRICT

    value: FiniteFloat
    low: FiniteFloat | None
    high: FiniteFloat | None


@dataclass(frozen=True, kw_only=True)
class Compiling:
    """What compiling costs a run, and when that has paid.

    Attributes:
        compile_s: Seconds at the start of a run.
        cold_cache: Whether they are of a fresh machine; None where torch does not tell.
        pays_off_after_steps: Steps of the settings in the file after which those seconds have
            paid, against the fastest setting that does not compile; None when they never do. An
            upper end of None: it may never pay.
        pays_off_after_epochs: The same in passes over the data; None for a stream, too.
    """

    __pydantic_config__ = _STRICT

    compile_s: FiniteFloat
    cold_cache: bool | None
    pays_off_after_steps: Figure | None
    pays_off_after_epochs: FiniteFloat | None


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What was maximised, where it is not the throughput.

    Attributes:
        metric: Its name, with its unit.
        tuned: Score of the settings in the file.
        baseline: Score of the user's own settings.
    """

    __pydantic_config__ = _STRICT

    metric: str
    tuned: Figure | None
    baseline: Figure | None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Why these settings.

    Attributes:
        verdict: What can be said of the best found against the baseline.
        confirmed: Baseline and best were measured again, interleaved, in fresh processes.
        tuned_samples_per_s: Throughput of the settings in the file.
        baseline_samples_per_s: Throughput of the user's own settings.
        expert_samples_per_s: Throughput of the expert guess; None where it was not measured.
        speedup: Settings in the file over the baseline, by the score; None where they are the
            baseline's own.
        rounds: Rounds of the confirmation.
        search_trials: Trials of the study before the confirmation.
        compiling: What compiling costs; None where the settings do not compile.
        scores: What was maximised, where it is not the throughput; None where it is.
    """

    __pydantic_config__ = _STRICT

    verdict: Verdict
    confirmed: bool
    tuned_samples_per_s: Figure
    baseline_samples_per_s: Figure
    expert_samples_per_s: Figure | None
    speedup: Figure | None
    rounds: int
    search_trials: int
    compiling: Compiling | None = None
    scores: Scores | None = None


@dataclass(frozen=True, kw_only=True)
class HoldsFor:
    """Where the evidence was taken; elsewhere another setting may be faster.

    Attributes:
        device_kind: `cuda`, `xpu` or `cpu`.
        device_name: Name of the device or processor.
        cpus: Processors that loading and training could use.
        torch: Version of torch.
        python: Version of Python.
        model: Short name of the model.
        data: Short name of the data.
    """

    __pydantic_config__ = _STRICT

    device_kind: str
    device_name: str
    cpus: int
    torch: str | None
    python: str
    model: str
    data: str


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """Settings with their evidence, ready for use in a training loop.

    Attributes:
        schema_version: Version of the file's layout.
        created: Day of the study.
        settings: The settings to train with.
        evidence: Why.
        holds_for: Where.
    """

    __pydantic_config__ = _STRICT

    schema_version: Literal[1] = SCHEMA_VERSION
    created: date
    settings: Settings
    evidence: Evidence
    holds_for: HoldsFor

    def dataloader_kwargs(self) -> dict[str, Any]:
        """Return keyword arguments for `torch.utils.data.DataLoader`."""
        settings = self.settings
        kwargs: dict[str, Any] = {
            "batch_size": settings.batch_size,
            "num_workers": settings.num_workers,
            "pin_memory": settings.pin_memory,
            "persistent_workers": settings.persistent_workers,
        }
        if settings.prefetch_factor is not None:  # DataLoader refuses it without workers
            kwargs["prefetch_factor"] = settings.prefetch_factor
        return kwargs

    def optimizer_kwargs(self) -> dict[str, Any]:
        """Return keyword arguments to add to the optimizer's own."""
        return {"fused": True} if self.settings.fused_optimizer else {}

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context in which the forward pass and the loss run."""
        from autotune.precision import autocast

        return autocast(self.settings.precision, self.holds_for.device_kind)

    def grad_scaler(self) -> torch.amp.GradScaler:
        """Return the loss scaler: it works for fp16 and passes everything through otherwise."""
        from autotune.precision import grad_scaler

        return grad_scaler(self.settings.precision, self.holds_for.device_kind)

    def prepare(self, model: torch.nn.Module) -> torch.nn.Module:
        """Return the model as it was measured: memory format, compiled where that was faster.

        Sets torch's float32 and cuDNN modes for the whole process. Call it after moving the model
        to its device, and build the optimizer before or after: the parameters stay the same.
        """
        from autotune.workloads.model import prepare_model

        return prepare_model(model, self.settings)

    def to_device(self, batch: Any, device: torch.device | str) -> Any:
        """Return the batch on the device, in the memory format of the settings.

        Args:
            batch: A tensor, or tensors in lists, tuples, mappings or dataclasses.
            device: Where to.
        """
        import torch

        from autotune.workloads.batch import to_device

        return to_device(batch, torch.device(device), channels_last=self.settings.channels_last)
