"""Errors that a user can act on. Everything else that is raised is a bug of ours and propagates."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator


class AutotuneError(Exception):
    """Root of the errors shown to the user as one message, without a traceback."""

    exit_code = 1


class ConfigError(AutotuneError):
    """A configuration value or command-line word that cannot be used."""

    exit_code = 2


class WorkloadError(AutotuneError):
    """The user's model, data, loss or optimizer cannot be built or cannot train one plain step."""


class UnsupportedSetting(WorkloadError):  # noqa: N818 - names what it is
    """The device or the workload cannot run one of the settings; the job itself may be fine.

    Args:
        setting: Name of that setting.
        message: What is the matter, for a person.
    """

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(message)
        self.setting = setting


class WorkerDied(WorkloadError):  # noqa: N818 - names what it is
    """A DataLoader worker ended that was to go on.

    Args:
        message: What is known, for a person.
        code: As `multiprocessing.Process.exitcode`: the negative number of the signal that killed
            it; None where it is not known.
    """

    def __init__(self, message: str, code: int | None) -> None:
        super().__init__(message)
        self.code = code


class NonFiniteLoss(WorkloadError):  # noqa: N818 - names what it is
    """The loss became infinite or not a number; the setting trains nothing."""


class BudgetError(AutotuneError):
    """The budget is too small for the work that was asked for."""


class StudyError(AutotuneError):
    """A study cannot be created, resumed or finished."""


class TrackingError(AutotuneError):
    """The tracking store cannot be reached or written."""


class OutputError(AutotuneError):
    """A file or folder of results cannot be written."""


class TunedFileError(AutotuneError):
    """A `tuned.yaml` cannot be read or does not say what it must."""


class TimingError(AutotuneError):
    """`StepTimer` or `compare` is used in a way that measures nothing."""


def nearest(word: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed word closest to `word`, or None when none is close."""
    found = difflib.get_close_matches(word.lower(), list(allowed), n=1, cutoff=0.6)
    return found[0] if found else None


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that it came from: causes, contexts and members of groups.

    A context counts although `from None` hides it from the traceback: it happened.
    """
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        found = waiting.pop(0)
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        members = found.exceptions if isinstance(found, BaseExceptionGroup) else ()
        earlier = (found.__cause__, found.__context__, *members)
        waiting += [each for each in earlier if each is not None]


def root_cause(error: BaseException) -> BaseException:
    """Return the first error of a chain: it says what happened, the later ones what it broke."""
    while (earlier := error.__cause__ or error.__context__) is not None:
        error = earlier
    return error


def config_error(
    key: str, given: object, allowed: str, *, suggestion: str | None = None, todo: str | None = None
) -> ConfigError:
    """Build a `ConfigError` that names the key, what was given, what is allowed and what to do.

    Args:
        key: Full dotted key, as typed on the command line.
        given: The offending value.
        allowed: What would have been accepted, in words or as a list.
        suggestion: The nearest allowed word, if one is close.
        todo: What to do next, if it does not follow from `allowed`.
    """
    hint = f" Did you mean {suggestion!r}?" if suggestion else ""
    next_step = f" {todo}" if todo else ""
    return ConfigError(f"{key}: got {given!r}; allowed: {allowed}.{hint}{next_step}")
