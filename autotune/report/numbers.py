"""Numbers as a person reads them. A missing value is shown as `-`, never as 0."""

from __future__ import annotations

import math

from autotune.statistics import Estimate

MISSING = "-"

_MIN_DIGITS = 2
_MAX_DIGITS = 4
_PLAIN_DIGITS = 3
"""Significant digits of a value: at least and at most by its interval, and without one."""


def rate(throughput: Estimate | None, unit: str = "/s") -> str:
    """Return a throughput with its interval: `3,402/s (3,350 to 3,455)`."""
    return _with_interval(throughput, unit)


def ratio(times: Estimate | None) -> str:
    """Return a ratio with its interval: `2.91 x (2.85 to 2.97)`."""
    return _with_interval(times, " x")


def interval(throughput: Estimate | None) -> str:
    """Return the interval of a throughput alone: `3,350 to 3,455`."""
    return rate(throughput).partition(" ")[2].strip("()") or MISSING


def plain(value: float | None) -> str:
    """Return a number without a unit (it stands in the heading): `3.14`."""
    return _plain(value)


def milliseconds(value_ms: float | None) -> str:
    """Return milliseconds without the unit (it stands in the heading): `31.4`."""
    return _plain(value_ms)


def gibibytes(value_bytes: float | None) -> str:
    """Return bytes as GiB: `23.4 GiB`."""
    return MISSING if value_bytes is None else f"{_plain(value_bytes / 2**30)} GiB"


def share(value: float | None) -> str:
    """Return a share of 1 in percent: `61 %`; a share that would round to 0 is `<1 %`."""
    if value is None or not math.isfinite(value):
        return MISSING
    return "<1 %" if 0 < value < 0.005 else f"{value:.0%}".replace("%", " %")


def percent(value: float | None) -> str:
    """Return a small share of 1 in percent with a decimal: `0.4 %`, `3.1 %`; `<0.1 %`."""
    if value is None or not math.isfinite(value):
        return MISSING
    return "<0.1 %" if 0 < value < 0.0005 else f"{value:.1%}".replace("%", " %")


def duration(value_s: float | None) -> str:
    """Return a duration in the unit that suits it: `2.83 s`, `7.9 min`, `1.5 h`."""
    if value_s is None or not math.isfinite(value_s):
        return MISSING
    if value_s < 100:
        return f"{_plain(value_s)} s"
    minutes = value_s / 60
    return f"{minutes:.1f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def count(value: int | None) -> str:
    """Return a count: `1,281,167`."""
    return MISSING if value is None else f"{value:,}"


def _with_interval(estimate: Estimate | None, unit: str) -> str:
    if estimate is None or not math.isfinite(estimate.value):
        return MISSING
    value, low, high = estimate.value, estimate.low, estimate.high
    if low is None or high is None or not math.isfinite(high - low):
        return _plain(value) + unit
    shown, least, most = (_round(x, _place(x, (high - low) / 2)) for x in (value, low, high))
    return f"{shown}{unit} ({least} to {most})"


def _plain(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return MISSING
    return _round(value, _magnitude(value) - _PLAIN_DIGITS + 1)


def _place(value: float, halfwidth: float) -> int:
    """Return the decimal place to round to: the second digit of the half-width, within limits."""
    first, last = (_magnitude(value) - digits + 1 for digits in (_MIN_DIGITS, _MAX_DIGITS))
    wanted = _magnitude(halfwidth) - 1 if halfwidth > 0 else last
    return max(last, min(first, wanted))


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value else 0


def _round(value: float, place: int) -> str:
    return f"{round(value, -place):,.{max(0, -place)}f}"
