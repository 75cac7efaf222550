"""Whether the recommended settings learn what plain fp32 learns, in a sentence."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.measurement import Measurement, NumericsReport
from autotune.report import numbers
from autotune.result import StudyResult


def numerics(result: StudyResult) -> tuple[str, ...]:
    """Return what the guard says of the best settings, and steps that GradScaler skipped.

    Nothing about settings that are the user's own: there is nothing to hold them against.
    """
    best = result.best
    if best.measurement is None or best.settings == result.baseline.settings:
        return ()
    return tuple(_sentences(best.measurement, _best_report(result)))


def _best_report(result: StudyResult) -> NumericsReport | None:
    """Return the report on the best settings: of the trial that compared them, if one did."""
    of_search = result.best.measurement.numerics if result.best.measurement is not None else None
    found = [
        trial.measurement.numerics
        for trial in result.trials
        if trial.settings == result.best.settings and trial.measurement is not None
    ]
    compared = (report for report in found if report is not None and report.difference is not None)
    checked = of_search is not None and of_search.difference is not None
    return of_search if checked else next(compared, of_search)


def _sentences(measured: Measurement, report: NumericsReport | None) -> Iterator[str]:
    yield _verdict(report)
    if measured.skipped_steps:
        of = numbers.share(measured.skipped_steps / measured.window.steps)
        yield (
            f"GradScaler skipped {measured.skipped_steps} of {measured.window.steps} timed steps "
            f"({of}), which trained nothing"
        )


def _verdict(found: NumericsReport | None) -> str:
    if found is None:
        return "numbers unchecked: the guard did not run (numerics.guard=true turns it on)"
    if found.failed is not None:
        return f"not the numbers of fp32: {found.failed}"
    if found.unchecked is not None or found.difference is None:
        return f"numbers unchecked against fp32: {found.unchecked}"
    steps = len(found.reference)
    return (
        f"checked against fp32: losses within {numbers.percent(found.difference)} over {steps} "
        f"step{'' if steps == 1 else 's'} (allowed {numbers.percent(found.tolerance)})"
    )
