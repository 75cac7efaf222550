"""Runs the checks one after the other, those that start workers last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autotune.measurement import Preflight
from autotune.trial import failures
from autotune.trial.preflight.batch_size import check_batch_size
from autotune.trial.preflight.found import Found
from autotune.trial.preflight.look import CannotTell, Look
from autotune.trial.preflight.passes import check_passes
from autotune.trial.preflight.picklable import check_picklable
from autotune.trial.time_limit import TooLong, time_limit

_CHECK_S = 15.0
"""Seconds that one check may take: a second or two for most jobs, and some for a start of workers
by spawn, which imports torch in each."""

Check = Callable[[Look, Found], None]

_CHECKS: tuple[tuple[str, Check], ...] = (
    ("whether workers can be sent what they need", check_picklable),
    ("whether the batch size is obeyed", check_batch_size),
    ("whether passes over the stream are alike", check_passes),
)


def run_preflight(look: Look) -> Preflight:
    """Run all checks within their time and return what they found. Never raises for the job."""
    found = Found()
    if look.workload.resident:
        return found.preflight
    until_s = look.clock() + look.scope.limit_s
    for what, check in _CHECKS:
        left_s = min(_CHECK_S, until_s - look.clock())
        if left_s <= 0:
            found.skip(what, "no time left")
            continue
        try:
            with time_limit(left_s):
                check(_narrowed(look, found), found)
        except TooLong:
            found.skip(what, f"not done after {left_s:.3g} s")
        except CannotTell as error:
            found.skip(what, str(error))
        except Exception as error:  # whatever the user's data may raise
            found.skip(what, failures.explain(error))
    return found.preflight


def _narrowed(look: Look, found: Found) -> Look:
    """Return a look at what may still be tried after what was found."""
    limit = found.preflight.max_workers
    if limit is None or limit >= look.scope.max_workers:
        return look
    return replace(look, scope=replace(look.scope, max_workers=limit))
