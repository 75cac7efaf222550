"""What is known at any moment of a study: its trials, the best of them, what need not be tried."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.measurement import FailureKind, Measurement
from autotune.result import Role, TrialRecord, TrialState
from autotune.search.exclusions import Exclusions
from autotune.settings import Settings


class Ledger:
    """All trials of a study, in the order in which they ended."""

    def __init__(self) -> None:
        self.exclusions = Exclusions()
        self._records: list[TrialRecord] = []
        self._by_settings: dict[Settings, TrialRecord] = {}

    def add(self, record: TrialRecord) -> None:
        """Take in a trial that has just ended."""
        self._records.append(record)
        if record.role is not Role.CONFIRMATION:
            self._by_settings[record.settings] = record
            self.exclusions.learn(record)

    def replay(self, records: Iterable[TrialRecord], *, limit_s: float) -> None:
        """Take in the trials of an earlier run of the study.

        Args:
            records: Finished trials.
            limit_s: The usual time limit. A trial that an ending budget cut shorter than that says
                nothing about its settings, so they may be tried again.
        """
        for record in records:
            failure = record.failure
            if (
                failure is not None
                and failure.failure is FailureKind.TIME_LIMIT
                and record.total_s < limit_s
            ):
                self._records.append(record)
            else:
                self.add(record)

    @property
    def records(self) -> tuple[TrialRecord, ...]:
        """All trials by number, the confirmation's included."""
        return tuple(sorted(self._records, key=lambda record: record.number))

    @property
    def searchable(self) -> list[TrialRecord]:
        """What a sampler can learn from: one trial of each setting, without the confirmation's."""
        return list(self._by_settings.values())

    @property
    def next_number(self) -> int:
        """Number of the trial that comes next."""
        return max((record.number for record in self._records), default=-1) + 1

    @property
    def baseline(self) -> TrialRecord | None:
        """The measured baseline, or None as long as there is none."""
        return self._last(Role.BASELINE, measured=True)

    @property
    def expert(self) -> TrialRecord | None:
        """The trial of the expert guess, however it ended, or None where it did not run."""
        return self._last(Role.EXPERT, measured=False)

    @property
    def yardsticks(self) -> list[TrialRecord]:
        """What a winner is compared to: the baseline, and the expert guess if it can be used."""
        found = (self.baseline, self.expert)
        return [record for record in found if record is not None and record.score is not None]

    @property
    def candidates(self) -> list[TrialRecord]:
        """Trials that beat the baseline, best first."""
        baseline = self.baseline
        if baseline is None:
            return []
        better = [
            record
            for record in self._by_settings.values()
            if record.state is TrialState.COMPLETE and _score(record) > _score(baseline)
        ]
        return sorted(better, key=_score, reverse=True)

    @property
    def best(self) -> TrialRecord | None:
        """The best trial: the baseline when nothing beat it, None while that is not measured."""
        return next(iter(self.candidates), self.baseline)

    @property
    def searched(self) -> int:
        """Number of trials besides the baseline and the confirmation."""
        return sum(record.role in (Role.EXPERT, Role.SEARCH) for record in self._records)

    @property
    def proposed(self) -> int:
        """Number of trials of the search itself."""
        return sum(record.role is Role.SEARCH for record in self._records)

    @property
    def measured(self) -> list[TrialRecord]:
        """Trials with a measurement, without the confirmation's."""
        return [record for record in self._by_settings.values() if record.measurement is not None]

    @property
    def measurements(self) -> list[Measurement]:
        """All measurements, the confirmation's included."""
        return [each.measurement for each in self._records if each.measurement is not None]

    @property
    def rejected(self) -> list[TrialRecord]:
        """Trials with more samples/s than the best, whose numbers were not those of fp32.

        Fastest first.
        """
        best = self.best
        if best is None or best.measurement is None:
            return []
        least = best.measurement.window.samples_per_s
        found = [
            (measurement.window.samples_per_s, record)
            for record in self._by_settings.values()
            if (measurement := record.measurement) is not None
            and measurement.numerics is not None
            and measurement.numerics.failed is not None
            and measurement.window.samples_per_s > least
        ]
        return [record for _, record in sorted(found, key=lambda item: item[0], reverse=True)]

    def known(self, settings: Settings) -> TrialRecord | None:
        """Return the trial of these settings, or None where they were not tried."""
        return self._by_settings.get(settings)

    def untried(self, settings: Settings) -> bool:
        """Return whether these settings were not tried and may work."""
        return settings not in self._by_settings and self.exclusions.reason(settings) is None

    def _last(self, role: Role, *, measured: bool) -> TrialRecord | None:
        found = [
            record
            for record in self._records
            if record.role is role and (record.score is not None or not measured)
        ]
        return found[-1] if found else None


def _score(record: TrialRecord) -> float:
    return record.score if record.score is not None else float("-inf")
