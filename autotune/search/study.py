"""The Optuna study on disk: what it is told, and what it must match to be continued."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.exceptions import StorageInternalError
from optuna.trial import TrialState
from sqlalchemy.exc import SQLAlchemyError

from autotune.errors import StudyError, root_cause
from autotune.result import TrialRecord
from autotune.result import TrialState as Ended
from autotune.search.exclusions import lacks_memory
from autotune.search.identity import StudyIdentity, check_identity
from autotune.search.records import DATABASE
from autotune.search.space import SearchSpace
from autotune.settings import Settings

MEMORY_CONSTRAINT = "memory"
"""Name of the constraint that a setting fits into memory: above 0 where it does not, and where it
must not be used for its numbers."""

_P = ParamSpec("_P")
_R = TypeVar("_R")

_RECORD = "record"
_LOCK_WAIT_S = 60.0


def _usable(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Turn what the database raises, such as on a full disk, into an error for the user."""

    @functools.wraps(method)
    def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(*args, **kwargs)
        except (StorageInternalError, SQLAlchemyError) as error:
            raise StudyError(
                f"the study's database {DATABASE} cannot be used any more: {root_cause(error)}. "
                "Free some space or make the folder writable; study.resume=true then goes on from "
                "the last finished trial."
            ) from error

    return guarded


class SearchStudy:
    """An Optuna study over a search space. Settings go in and out; parameters stay inside.

    Each method raises a `StudyError` when the database can no longer be read or written.

    Args:
        study: Maximises throughput in samples/s.
        space: What is searched.
    """

    def __init__(self, study: optuna.Study, space: SearchSpace) -> None:
        self._study = study
        self._space = space

    @_usable
    def ask(self) -> tuple[optuna.Trial, Settings]:
        """Return a new trial and the settings that the sampler proposes for it."""
        trial = self._study.ask()
        return trial, self._space.suggest(trial)

    @_usable
    def tell(self, trial: optuna.Trial, record: TrialRecord) -> None:
        """End a trial by the record of its settings."""
        told = _told(record)
        trial.set_user_attr(_RECORD, record.number)
        if told.state is not TrialState.FAIL:
            trial.set_constraint(MEMORY_CONSTRAINT, told.memory)
        if told.state is TrialState.COMPLETE:
            self._study.tell(trial, told.value)
            return
        if told.state is TrialState.PRUNED and told.value is not None:
            trial.report(told.value, step=0)
        self._study.tell(trial, state=told.state)

    @_usable
    def skip(self, trial: optuna.Trial, *, lacks_memory: bool) -> None:
        """End a trial that was not run, as its settings cannot work."""
        trial.set_constraint(MEMORY_CONSTRAINT, 1.0 if lacks_memory else -1.0)
        self._study.tell(trial, state=TrialState.PRUNED)

    @_usable
    def end_running(self) -> list[Settings]:
        """End as failed what still runs: cut off from outside, it says nothing of its settings.

        Returns:
            The settings of those trials.
        """
        cut_off: list[Settings] = []
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self._study.tell(trial.number, state=TrialState.FAIL)
            settings = self._space.complete(trial.params)
            # Cut off while the sampler chose, it has only some of the parameters.
            if set(trial.params) == set(self._space.params(settings)):
                cut_off.append(settings)
        return cut_off

    @_usable
    def add(self, record: TrialRecord) -> None:
        """Add a trial that was not asked for, if its settings are in the space."""
        if not self._space.contains(record.settings):
            return
        params = self._space.params(record.settings)
        told = _told(record)
        seen = told.value is not None and told.state is TrialState.PRUNED
        self._study.add_trial(
            optuna.create_trial(
                state=told.state,
                value=told.value,
                params=params,
                distributions={
                    knob: CategoricalDistribution(self._space.choices(knob)) for knob in params
                },
                intermediate_values={0: told.value} if seen and told.value is not None else None,
                constraints=None
                if told.state is TrialState.FAIL
                else {MEMORY_CONSTRAINT: told.memory},
                user_attrs={_RECORD: record.number},
            )
        )

    def reconcile(self, records: Iterable[TrialRecord]) -> list[Settings]:
        """Bring the study in line with the records after a tuner was killed.

        A record that the study does not know is added; what was left running is ended.

        Returns:
            Settings of the trials that were in flight and have no record.
        """
        trials = self._study.get_trials(deepcopy=False)
        told = {trial.user_attrs.get(_RECORD) for trial in trials if trial.state.is_finished()}
        records = list(records)
        for record in records:
            if record.number not in told:
                self.add(record)
        finished = {record.settings for record in records}
        return [settings for settings in self.end_running() if settings not in finished]


@dataclass(frozen=True)
class _Told:
    """How a record is told to Optuna.

    Attributes:
        state: State of the trial.
        value: Throughput in samples/s, or None.
        memory: Value of the memory constraint.
    """

    state: TrialState
    value: float | None
    memory: float


def _told(record: TrialRecord) -> _Told:
    """Return what Optuna is told of a record.

    Lack of memory, or other numbers than fp32's, is a constraint on a pruned trial: TPE leaves
    failed trials out of its model and would walk into the same wall again.
    """
    memory = 1.0 if record.infeasible is not None or lacks_memory(record) else -1.0
    if record.state is Ended.COMPLETE:
        return _Told(TrialState.COMPLETE, record.score, memory)
    if record.state is Ended.PRUNED:
        return _Told(TrialState.PRUNED, record.score, memory)
    return _Told(TrialState.FAIL, None, memory)


def open_study(
    folder: Path,
    name: str,
    space: SearchSpace,
    sampler: optuna.samplers.BaseSampler,
    identity: StudyIdentity,
) -> SearchStudy:
    """Create the study in its folder, or continue the one that is there.

    Args:
        folder: Existing folder of the study.
        name: Name of the study.
        space: What is searched.
        sampler: Who proposes.
        identity: What the study must match to be continued.

    Raises:
        StudyError: The study that is there does not match `identity`, or its database cannot be
            used.
    """
    # Optuna reports each trial on the log; the screen is ours.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = folder / DATABASE
    try:
        study = optuna.create_study(
            storage=_storage(path),
            sampler=sampler,
            study_name=name,
            direction="maximize",
            load_if_exists=True,
        )
        known = study.user_attrs
        # A tuner killed at the very start leaves only some of them.
        for key, text in _attributes(identity, space).items():
            if key not in known:
                study.set_user_attr(key, text)
    except Exception as error:
        # SQLAlchemy, Optuna and SQLite each have their own; a file that is no database ends here.
        raise StudyError(
            f"the study's database {path} cannot be used: {root_cause(error)}. Free some space if "
            "the disk is full; move the file away if it is no database. The records of finished "
            "trials lie beside it, and study.resume=true takes them up."
        ) from error
    check_identity(folder, known, identity)
    return SearchStudy(study, space)


def _storage(path: Path) -> optuna.storages.BaseStorage:
    return optuna.storages.RDBStorage(
        f"sqlite:///{path}",
        # A reader such as optuna-dashboard may hold the file for a while.
        engine_kwargs={"connect_args": {"timeout": _LOCK_WAIT_S}},
    )


def _attributes(identity: StudyIdentity, space: SearchSpace) -> dict[str, str]:
    return asdict(identity) | {"space_fingerprint": space.fingerprint()}
