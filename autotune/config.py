"""The typed configuration. Each section is given to the component it is for; nobody gets the whole.

Hydra composes the values (`autotune/cli/`), `parse_config` checks them and names the full key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from autotune.errors import ConfigError, config_error, nearest
from autotune.settings import KNOBS, CompileMode, Precision, knob_value

_STRICT = ConfigDict(extra="forbid")
_Seconds = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
_Share = Annotated[float, Field(strict=True, gt=0, lt=1)]
# Strict: true is no number here, though Python would take it for 1.
_Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)]

OPEN_SECTIONS = ("model", "data", "loss", "optimizer")
"""Sections that are `_target_` plus any keyword arguments of the callable."""

_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "string": "a text",
    "tuple": "a list of values",
    "missing": "a value, which must be given",
}
"""What is allowed where pydantic's type of error begins so."""

_LIMITS = {
    "greater_than": "greater than {gt:g}",
    "greater_than_equal": "of at least {ge:g}",
    "less_than": "less than {lt}",
    "less_than_equal": "of at most {le}",
}

AUTO = "auto"
"""Word for a value that is worked out from the machine and the job."""


@dataclass(frozen=True, config=_STRICT)
class LoaderConfig:
    """Loader options that belong to the job and are never searched."""

    shuffle: bool = True
    """Shuffle map-style datasets. Streams keep their own order."""
    drop_last: bool = True
    """Leave out the last batch of a pass when it is not full."""


@dataclass(frozen=True, config=_STRICT)
class ProbeConfig:
    """How one trial is measured. Times in seconds."""

    rel_halfwidth: _Share = 0.02
    """The window ends once the interval's half-width is below this share of the throughput."""
    window_s: _Seconds = 8.0
    """Time cap of the window."""
    min_blocks: Annotated[int, Field(strict=True, ge=2, le=1_000_000)] = 6
    """Blocks needed before the interval is believed."""
    min_steps: Annotated[int, Field(strict=True, ge=2, le=1_000_000)] = 3
    """Steps measured even when the time cap has passed."""
    warmup_s: _Seconds = 30.0
    """Time cap of draining the batches that the workers prepared before the window."""
    ceiling_s: _Seconds = 1.0
    """Time cap of the window with a resident batch, and of its steps' settling before it."""
    step_cap_s: _Seconds = 2.0
    """Automatic batch sizes are chosen so that a plain step takes about this long at most."""
    limit_s: _Seconds = 180.0
    """Wall-clock limit of a whole trial; its process group is killed after it."""
    hang_s: _Seconds = 60.0
    """A trial that neither does a step nor computes for so long hangs, and is ended."""
    profile: str = "best"
    """Which trials get a profiler trace after their score: best, all or none."""
    profile_steps: _Count = 3
    """Steps in the trace."""
    trace_max_mb: _Seconds = 25.0
    """Larger traces are not kept."""
    loader_ceiling: str = "best"
    """In which trials the loader is timed alone after their score: best, all or none."""
    loader_ceiling_s: _Seconds = 2.0
    """Time cap of the loader alone; as much again to use up what it had prepared."""

    def __post_init__(self) -> None:
        _word("probe.profile", self.profile, ("best", "all", "none"))
        _word("probe.loader_ceiling", self.loader_ceiling, ("best", "all", "none"))


@dataclass(frozen=True, config=_STRICT)
class SearchConfig:
    """Who proposes settings, and when a trial is stopped early."""

    sampler: str = "tpe"
    """tpe, gp, random, grid or brute_force."""
    pruning: str = "racing"
    """racing (stop a trial whose whole interval is below the best) or none."""
    guided_trials: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 4
    """Trials that go one step from the best (one knob, one value up) before the sampler's own."""
    startup_trials: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 4
    """Trials before the sampler's model is used; those before it, baseline and guided ones
    included, count as well."""
    expert_guess: bool = True
    """Measure the expert's usual settings right after the baseline."""

    def __post_init__(self) -> None:
        _word("search.sampler", self.sampler, ("tpe", "gp", "random", "grid", "brute_force"))
        _word("search.pruning", self.pruning, ("racing", "none"))


@dataclass(frozen=True, config=_STRICT)
class ObjectiveConfig:
    """What is maximised."""

    metric: str = "throughput"
    """throughput (samples/s) or energy (samples per joule of the device)."""
    planned_steps: _Count | None = None
    """Optimizer steps that are planned with the baseline's batch size. What a run pays once, its
    first step with compiling, is spread over as many samples; null charges nothing."""

    def __post_init__(self) -> None:
        _word("objective.metric", self.metric, ("throughput", "energy"))
        if self.metric != "throughput" and self.planned_steps is not None:
            raise config_error(
                "objective.planned_steps",
                self.planned_steps,
                "null with objective.metric=energy: the energy of a start-up is not measured",
            )


@dataclass(frozen=True, config=_STRICT)
class BudgetConfig:
    """What the whole command may spend, confirmation included."""

    minutes: _Seconds = 8.0
    """Wall-clock minutes."""
    trials: _Count | None = None
    """Trials besides the baseline and the confirmation; null for no limit."""


@dataclass(frozen=True, config=_STRICT)
class ConfirmationConfig:
    """Interleaved re-measurement of baseline and best in fresh processes."""

    min_rounds: Annotated[int, Field(strict=True, ge=3, le=1000)] = 3
    """Rounds in which each of them is measured once."""
    max_rounds: Annotated[int, Field(strict=True, ge=3, le=1000)] = 6
    """Rounds at most, while the verdict is not clear and time is left."""
    rel_halfwidth: _Share = 0.01
    """As `probe.rel_halfwidth`, for the confirmation's windows: twice as sharp, since the headline
    comes from them. Their time cap is `probe.window_s` all the same."""

    def __post_init__(self) -> None:
        if self.max_rounds < self.min_rounds:
            raise config_error(
                "confirmation.max_rounds",
                self.max_rounds,
                f"confirmation.min_rounds ({self.min_rounds}) or more",
            )


@dataclass(frozen=True, config=_STRICT)
class NumericsConfig:
    """Whether a faster setting still learns what the plain fp32 job learns."""

    guard: bool = True
    """Hold the first losses of fast settings against fp32 eager; false to trust every setting."""
    steps: Annotated[int, Field(strict=True, ge=2, le=100)] = 8
    """Steps on one batch that are compared, fewer where steps are slow."""

    @property
    def watched_steps(self) -> int:
        """Steps that a trial keeps the losses of; 0 without the guard."""
        return self.steps if self.guard else 0


@dataclass(frozen=True, config=_STRICT)
class TrackingConfig:
    """Where runs are logged."""

    kind: str = "mlflow"
    """mlflow or none."""
    uri: str | None = None
    """Tracking URI of a server or store; null for a SQLite file in the output folder."""
    experiment: str = "autotune"
    """Name of the MLflow experiment."""

    def __post_init__(self) -> None:
        _word("tracking.kind", self.kind, ("mlflow", "none"))


@dataclass(frozen=True, config=_STRICT)
class StudyConfig:
    """Name and life of the study."""

    name: str | None = None
    """Name of the study and of its folder; null for the model's name."""
    resume: bool = False
    """Continue the newest study of this name instead of starting a new one."""


@dataclass(frozen=True, config=_STRICT)
class OutputConfig:
    """Where files go."""

    dir: str = "autotune_runs"
    """Folder for studies and the MLflow store; relative to the folder the command starts in."""


@dataclass(frozen=True, config=_STRICT)
class SpaceConfig:
    """Which values each setting may take. Null: not searched, stays as in the baseline."""

    batch_size: tuple[int, ...] | str | None = None
    num_workers: tuple[int, ...] | str | None = None
    pin_memory: tuple[bool, ...] | None = None
    prefetch_factor: tuple[int, ...] | None = None
    persistent_workers: tuple[bool, ...] | None = None
    precision: tuple[Precision, ...] | None = None
    compile: tuple[CompileMode, ...] | None = None
    channels_last: tuple[bool, ...] | None = None
    fused_optimizer: tuple[bool, ...] | None = None
    cudnn_benchmark: tuple[bool, ...] | None = None


@dataclass(frozen=True, config=_STRICT)
class BaselineConfig:
    """The user's own untuned settings."""

    batch_size: int | str = AUTO
    """A number, or auto: 32, or what the device and `probe.step_cap_s` allow."""
    num_workers: int = 0
    pin_memory: bool = False
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    precision: Precision = Precision.DEFAULT
    compile: CompileMode = CompileMode.OFF
    channels_last: bool = False
    fused_optimizer: bool = False
    cudnn_benchmark: bool = False


@dataclass(frozen=True, config=_STRICT)
class Config:
    """Everything a run needs to know."""

    model: Mapping[str, Any]
    """`_target_` of a callable that returns the model, and its keyword arguments."""
    data: Mapping[str, Any]
    """`_target_` of a callable that returns the dataset, its keyword arguments, and `collate`."""
    loss: Mapping[str, Any] | None
    """`_target_` of the loss; null when the model returns its own loss."""
    optimizer: Mapping[str, Any]
    """`_target_` of an optimizer class, and its keyword arguments."""
    search_spaces: Mapping[str, SpaceConfig]
    """Search space by device kind; the key `any` serves every kind."""
    baseline: BaselineConfig = field(default_factory=BaselineConfig)
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    probe: ProbeConfig = field(default_factory=ProbeConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    confirmation: ConfirmationConfig = field(default_factory=ConfirmationConfig)
    numerics: NumericsConfig = field(default_factory=NumericsConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    study: StudyConfig = field(default_factory=StudyConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    device: str = AUTO
    """auto, cpu, cuda, or one device such as cuda:1."""
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = 0

    def __post_init__(self) -> None:
        kind, _, index = self.device.partition(":")
        if kind not in (AUTO, "cpu", "cuda", "xpu") or (":" in self.device and not index.isdigit()):
            raise config_error("device", self.device, "auto, cpu, cuda, xpu, or one such as cuda:1")
        for section in ("model", "data", "optimizer"):
            _require_target(section, getattr(self, section))
        if self.loss is not None:
            _require_target("loss", self.loss)
        collate = self.data.get("collate")
        if collate is not None and not isinstance(collate, Mapping):
            raise config_error(
                "data.collate", collate, "data.collate._target_=package.module.function, or null"
            )

    @property
    def workload(self) -> WorkloadSpec:
        """The part that says what is trained."""
        data = {key: value for key, value in self.data.items() if key != "collate"}
        return WorkloadSpec(
            model=self.model,
            data=data,
            collate=self.data.get("collate"),
            loss=self.loss,
            optimizer=self.optimizer,
            loader=self.loader,
        )

    @property
    def study_name(self) -> str:
        """Name of the study: as given, else the model's."""
        return self.study.name or self.workload.model_name


@dataclass(frozen=True, config=_STRICT)
class WorkloadSpec:
    """What is trained, as plain values: it is built inside each trial's process.

    Attributes:
        model, data, collate, loss, optimizer: `_target_` and keyword arguments; None for none.
        loader: Loader options that belong to the job.
    """

    model: Mapping[str, Any]
    data: Mapping[str, Any]
    collate: Mapping[str, Any] | None
    loss: Mapping[str, Any] | None
    optimizer: Mapping[str, Any]
    loader: LoaderConfig = field(default_factory=LoaderConfig)

    @property
    def model_name(self) -> str:
        """Short name of the model, fit for a file name."""
        name = self.model.get("name") or str(self.model["_target_"]).rpartition(".")[2]
        return _file_name(str(name))

    @property
    def data_name(self) -> str:
        """Short name of the data, fit for a file name."""
        return _file_name(str(self.data["_target_"]).rpartition(".")[2])


def parse_config(values: Mapping[str, Any]) -> Config:
    """Return the checked configuration.

    Args:
        values: Composed plain values, by section.

    Raises:
        ConfigError: The first value that is wrong, with its full key.
    """
    checked = dict(values)
    checked["search_spaces"] = {
        kind: _clean_space(space) for kind, space in values["search_spaces"].items()
    }
    if isinstance(baseline := values.get("baseline"), Mapping):
        checked["baseline"] = {
            key: knob_value(key, value, key=f"baseline.{key}")
            if key in KNOBS and value != AUTO
            else value
            for key, value in baseline.items()
        }
    try:
        return TypeAdapter(Config).validate_python(checked)
    except ValidationError as error:
        raise _explain(error) from None


def resolve_output(config: OutputConfig) -> Path:
    """Return the absolute output folder."""
    return Path(config.dir).expanduser().absolute()


def _clean_space(space: Mapping[str, Any]) -> dict[str, Any]:
    """Turn scalars into one-value lists, empty lists into null, and check each value's type."""
    clean: dict[str, Any] = {}
    for name, values in space.items():
        key = f"search_space.{name}"
        if name not in KNOBS:
            raise config_error(
                key, values, "one of " + ", ".join(KNOBS), suggestion=nearest(name, KNOBS)
            )
        if values is None or values == []:
            clean[name] = None
        elif values == AUTO:
            if name not in ("batch_size", "num_workers"):
                raise config_error(
                    key, values, "a list of values ('auto' is for batch_size and num_workers)"
                )
            clean[name] = AUTO
        else:
            items = values if isinstance(values, (list, tuple)) else [values]
            found = [knob_value(name, value, key=f"{key}[{i}]") for i, value in enumerate(items)]
            low = 0 if name == "num_workers" else 1
            for i, value in enumerate(found):
                if name in ("batch_size", "num_workers", "prefetch_factor") and (
                    value is None or value < low
                ):
                    raise config_error(f"{key}[{i}]", value, f"a whole number of {low} or more")
            clean[name] = tuple(dict.fromkeys(found))
    return clean


def _explain(error: ValidationError) -> ConfigError:
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    key = ".".join(path)
    if isinstance(cause := first.get("ctx", {}).get("error"), ConfigError):
        return cause
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        known = _known_keys(path[:-1])
        return config_error(
            key, first["input"], ", ".join(known), suggestion=nearest(path[-1], known)
        )
    return config_error(key, first.get("input"), _allowed(first["type"], first.get("ctx", {}), key))


def _allowed(kind: str, limits: Mapping[str, Any], key: str) -> str:
    """Return what is allowed, for an error of pydantic's by its type and limits."""
    if kind.startswith(("dataclass", "mapping", "dict")):
        return f"keys below it, as in {key}.name=value"
    if kind in _LIMITS:
        return "a number " + _LIMITS[kind].format(**limits)
    for start, words in _WORDS.items():
        if kind.startswith(start):
            return words
    return f"another kind of value ({kind.replace('_', ' ')})"


def _known_keys(path: list[str]) -> list[str]:
    known: Any = Config
    for part in path:
        section = {item.name: item for item in fields(known)}.get(part)
        kind = section.default_factory if section is not None else None
        if not (isinstance(kind, type) and is_dataclass(kind)):
            return []
        known = kind
    return [item.name for item in fields(known)]


def _require_target(section: str, values: Mapping[str, Any]) -> None:
    target = values.get("_target_")
    if not isinstance(target, str) or "." not in target:
        raise config_error(
            f"{section}._target_",
            target,
            "the dotted name of a callable, such as package.module.function",
        )


def _word(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise config_error(key, value, ", ".join(allowed), suggestion=nearest(value, allowed))


def _file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in text).strip(".") or "study"
