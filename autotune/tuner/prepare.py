"""What is settled before the search: the job's facts, its space, the study that proposes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from autotune.config import Config, ObjectiveConfig, SpaceConfig, WorkloadSpec
from autotune.environment import DeviceInfo, Environment, environment
from autotune.errors import ConfigError
from autotune.launch.launcher import Launcher
from autotune.measurement import JobFacts
from autotune.objective import Objective
from autotune.request import TrialRequest
from autotune.search.guess import baseline_settings, expert_settings
from autotune.search.identity import StudyIdentity
from autotune.search.records import load_facts, write_facts
from autotune.search.resolve import resolve_space
from autotune.search.space import SearchSpace
from autotune.settings import Settings
from autotune.tuner.baseline import inspect_job
from autotune.tuner.search import Search, SearchRules
from autotune.tuner.session import Session
from autotune.tuner.timeplan import TimePlan

_COMPARABLE = ("torch", "torchvision", "autotune")
"""Packages whose version decides what a trial measures."""


@dataclass(frozen=True, kw_only=True)
class PreparedJob:
    """A job and what can be tried for it.

    Attributes:
        environment: The machine and versions.
        facts: What the first look at the job told.
        configured: The user's own settings, as the configuration has them.
        baseline: The same, or with the smaller batch that fits into memory.
        space: What is searched around the baseline.
        expert: The expert guess; None when it is not asked for, or is the baseline.
    """

    environment: Environment
    facts: JobFacts
    configured: Settings
    baseline: Settings
    space: SearchSpace
    expert: Settings | None


@dataclass(frozen=True)
class OpenSearch:
    """A search that is ready to run.

    Attributes:
        search: The search.
        in_flight: Settings whose trial was cut off in an earlier run of the study.
    """

    search: Search
    in_flight: tuple[Settings, ...]


def facts_of(launcher: Launcher, template: TrialRequest, folder: Path, plan: TimePlan) -> JobFacts:
    """Look at the job, and keep what a resumed study must start from as well.

    Raises:
        WorkloadError: The job cannot be built or cannot train a plain step.
        BudgetError: The budget ended first.
        StudyError: The facts of an earlier run cannot be read.
        OutputError: A file cannot be written.
    """
    stored = load_facts(folder)
    if stored is not None:
        template = replace(template, preflight=None)
    facts = inspect_job(launcher, template, folder, plan)
    if stored is None:
        write_facts(folder, facts)
        return facts
    # The time of a plain step differs each time, and so may what a check had time for; the space
    # that follows from them must not.
    return replace(facts, seconds_per_sample=stored.seconds_per_sample, preflight=stored.preflight)


def prepare_job(config: Config, facts: JobFacts, measured: Settings | None) -> PreparedJob:
    """Work out baseline, space and expert guess.

    Args:
        config: The configuration.
        facts: What the first look at the job told.
        measured: The baseline that an earlier run of the study measured; None for none.

    Raises:
        ConfigError: There is no search space for the device.
    """
    configured = baseline_settings(config.baseline, facts, config.probe.step_cap_s)
    stamp = environment()
    baseline = configured if measured is None else measured
    space = _space(config, baseline, facts, stamp)
    return PreparedJob(
        environment=stamp,
        facts=facts,
        configured=configured,
        baseline=baseline,
        space=space,
        expert=_expert(config, baseline, space, facts, stamp),
    )


def around(job: PreparedJob, baseline: Settings, config: Config) -> PreparedJob:
    """Return the same job with its space and expert guess around another baseline."""
    space = _space(config, baseline, job.facts, job.environment)
    expert = _expert(config, baseline, space, job.facts, job.environment)
    return replace(job, baseline=baseline, space=space, expert=expert)


def open_search(
    config: Config, job: PreparedJob, folder: Path, session: Session, rules: SearchRules
) -> OpenSearch:
    """Open the study on disk and tell it what is known.

    Args:
        config: The configuration.
        job: What is searched.
        folder: Folder of the study.
        session: The run of the study.
        rules: What the configuration says of the search.

    Raises:
        StudyError: The study in the folder cannot be continued.
    """
    # Optuna takes a moment to import, and `--help` needs none of it.
    from autotune.search.samplers import make_sampler
    from autotune.search.study import open_study

    # With the same seed, a resumed study would be proposed the same settings once more.
    seed = config.seed + session.ledger.next_number
    sampler = make_sampler(config.search, job.space, seed)
    identity = _identity(config, job)
    study = open_study(folder, config.study_name, job.space, sampler, identity)
    in_flight = study.reconcile(session.ledger.searchable)
    search = Search(study, job.space, session, rules=rules, seed=seed)
    return OpenSearch(search, tuple(in_flight))


def space_for(spaces: Mapping[str, SpaceConfig], device: str) -> SpaceConfig:
    """Return the search space for a device kind.

    Args:
        spaces: By device kind; `any` serves every kind.
        device: Kind of the device.

    Raises:
        ConfigError: There is none.
    """
    for kind in ("any", device, "cuda" if device == "xpu" else device):
        if kind in spaces:
            return spaces[kind]
    raise ConfigError(
        f"search_space: there is none for the device kind {device!r}, only for "
        f"{', '.join(spaces)}. Choose another search_space, or one that serves any device."
    )


def _space(config: Config, baseline: Settings, facts: JobFacts, stamp: Environment) -> SearchSpace:
    return resolve_space(
        space_for(config.search_spaces, facts.device.kind),
        baseline,
        facts,
        usable_cpus=stamp.usable_cpus,
        step_cap_s=config.probe.step_cap_s,
    )


def _expert(
    config: Config,
    baseline: Settings,
    space: SearchSpace,
    facts: JobFacts,
    stamp: Environment,
) -> Settings | None:
    if not config.search.expert_guess:
        return None
    expert = expert_settings(baseline, space, facts, usable_cpus=stamp.usable_cpus)
    return expert if expert != baseline else None


def objective_of(config: ObjectiveConfig, baseline: Settings, device: DeviceInfo) -> Objective:
    """Return what is maximised.

    Args:
        config: What the configuration says.
        baseline: The user's own settings as configured: planned steps are theirs, even where such
            a batch turns out not to fit into memory.
        device: Where trials run.

    Raises:
        ConfigError: Energy is asked for on a CPU, which does not tell it.
    """
    if config.metric == "energy" and device.kind == "cpu":
        raise ConfigError(
            f"objective.metric: got energy, but {device.name} is a CPU and does not tell its "
            "energy; use throughput"
        )
    steps = config.planned_steps
    return Objective(
        metric=config.metric,
        planned_samples=None if steps is None else steps * baseline.batch_size,
    )


def _identity(config: Config, job: PreparedJob) -> StudyIdentity:
    from pydantic import TypeAdapter

    packages = job.environment.packages
    versions = {name: packages[name] for name in _COMPARABLE if name in packages}
    return StudyIdentity(
        space=job.space.text(),
        workload=TypeAdapter(WorkloadSpec).dump_json(config.workload).decode(),
        baseline=json.dumps(job.configured.as_dict()),
        device=job.facts.device.name,
        versions=json.dumps(versions),
        objective=json.dumps(
            asdict(objective_of(config.objective, job.configured, job.facts.device))
        ),
    )
