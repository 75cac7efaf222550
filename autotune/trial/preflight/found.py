"""What the checks have found so far."""

from __future__ import annotations

from autotune.measurement import Finding, Preflight


class Found:
    """Takes in findings as they come: those before an interruption count.

    Attributes:
        samples_per_pass: As in `Preflight`.
    """

    def __init__(self) -> None:
        self.samples_per_pass: int | None = None
        self._findings: list[Finding] = []
        self._unchecked: list[str] = []

    def add(self, finding: Finding) -> None:
        """Take in a finding."""
        self._findings.append(finding)

    def skip(self, what: str, why: str) -> None:
        """Take in that something was not checked."""
        self._unchecked.append(f"{what}: {why}")

    @property
    def preflight(self) -> Preflight:
        """All of it."""
        return Preflight(
            findings=tuple(self._findings),
            unchecked=tuple(self._unchecked),
            samples_per_pass=self.samples_per_pass,
        )
