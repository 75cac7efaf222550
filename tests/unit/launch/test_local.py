from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from factories import make_measurement

from autotune.launch.launcher import ScoredInterrupt
from autotune.launch.local import LOG_BYTES, _listen, _shorten
from autotune.measurement import to_json
from autotune.trial.child import SCORED, STAGE


def test_a_long_log_loses_its_middle(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"first\n" + b"." * (2 * LOG_BYTES) + b"\nlast")
    _shorten(log)
    text = log.read_bytes()
    assert LOG_BYTES < len(text) < LOG_BYTES + 100
    assert text.startswith(b"first\n.")
    assert text.endswith(b".\nlast")
    assert b"bytes left out" in text


def test_a_short_log_and_a_missing_one_stay_as_they_are(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    _shorten(log)
    assert not log.exists()
    log.write_bytes(b"." * LOG_BYTES)
    _shorten(log)
    assert log.read_bytes() == b"." * LOG_BYTES


@pytest.mark.parametrize("scored", [False, True])
def test_an_interrupt_leaves_the_score_that_stood(scored: bool) -> None:
    def interrupted(stage: str) -> None:
        if stage == "trace":
            raise KeyboardInterrupt

    measurement = make_measurement()
    receiver, sender = multiprocessing.Pipe(duplex=False)
    if scored:
        sender.send_bytes(SCORED + to_json(measurement).encode())
    sender.send_bytes(STAGE + b"trace")
    request: Any = type("Request", (), {"limit_s": 10.0})
    process: Any = None
    with pytest.raises(KeyboardInterrupt) as caught:
        _listen(process, receiver, request, interrupted)
    assert isinstance(caught.value, ScoredInterrupt) is scored
    if isinstance(caught.value, ScoredInterrupt):
        kept = caught.value.measurement
        assert kept.window == measurement.window
        assert kept.notes[-1].endswith("during trace: interrupted by the user")
