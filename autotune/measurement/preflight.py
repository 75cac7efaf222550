"""What a preflight found out about a job, and what that changes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingCode(StrEnum):
    """What was found, as a word that stays the same while messages may change."""

    BATCH_SIZE_IGNORED = "batch_size_ignored"
    """The size of the batches does not follow the batch size."""
    REPEATED_PER_WORKER = "repeated_per_worker"
    """Each worker delivers the whole stream."""
    LOST_IN_WORKERS = "lost_in_workers"
    """Workers deliver fewer samples than a pass has."""
    SECOND_PASS_EMPTY = "second_pass_empty"
    """The data can be gone through once only."""
    NOT_PICKLABLE = "not_picklable"
    """What a worker needs cannot be sent to it under the start method in use."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something about the job that the user should know, and what it changes.

    Attributes:
        code: What was found.
        message: The same for a person, in one line, with what it changes.
        max_workers: No setting with more workers is tried; None for no limit.
        kept: Names of settings that are not searched: they stay as in the baseline.
    """

    code: FindingCode
    message: str
    max_workers: int | None = None
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """What was found out about a job before its search.

    Attributes:
        findings: What was found.
        unchecked: What could not be checked, and why; it changes nothing.
        samples_per_pass: Samples of one pass over a stream, where it was gone through whole.
    """

    findings: tuple[Finding, ...] = ()
    unchecked: tuple[str, ...] = ()
    samples_per_pass: int | None = None

    def against_workers(self, workers: int) -> Finding | None:
        """Return what speaks against so many workers, or None."""
        limiting = (each for each in self.findings if each.max_workers is not None)
        return next((each for each in limiting if workers > (each.max_workers or 0)), None)

    @property
    def max_workers(self) -> int | None:
        """Most workers that are tried; None for no limit."""
        limits = [each.max_workers for each in self.findings if each.max_workers is not None]
        return min(limits, default=None)

    @property
    def kept(self) -> frozenset[str]:
        """Names of settings that are not searched."""
        return frozenset(name for each in self.findings for name in each.kept)

    @property
    def notes(self) -> tuple[str, ...]:
        """All of it in words, a line each."""
        return (
            *(each.message for each in self.findings),
            *(f"not checked: {what}" for what in self.unchecked),
        )
