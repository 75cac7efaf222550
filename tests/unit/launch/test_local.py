from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factories import make_measurement

from autotune.config import ProbeConfig
from autotune.launch.launcher import ScoredInterrupt
from autotune.launch.local import Watch
from autotune.launch.vigil import Use
from autotune.measurement import FailureKind, Measurement, TrialFailure, to_json
from autotune.settings import Settings
from autotune.trial.messages import Kind, send

SCORED = to_json(make_measurement()).encode()


class Receiver:
    """A pipe's end, as a connection has one."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd


class Process:
    """A trial's process that lives until it is told to have ended."""

    def __init__(self) -> None:
        self.exitcode: int | None = None
        self.sentinel, self._alive = os.pipe()

    def die(self, code: int) -> None:
        self.exitcode = code
        os.close(self._alive)

    def is_alive(self) -> bool:
        return self.exitcode is None

    def join(self, timeout: float) -> None:
        """Nothing to wait for."""


class Family:
    """A family that computes nothing."""

    def use(self) -> Use | None:
        return Use(0.0, 0.0)

    def stacks(self, log: Path) -> str | None:
        return "where it was"


class Trial:
    """What a launcher watches, without any process.

    Attributes:
        fd: Where the trial writes its messages.
    """

    def __init__(self, folder: Path, *, limit_s: float = 10.0, hang_s: float = 60.0) -> None:
        reading, self.fd = os.pipe()
        self.process = Process()
        self.stages: list[str] = []
        self.on_stage: Callable[[str], None] = self.stages.append
        request: Any = type(
            "Request",
            (),
            {
                "limit_s": limit_s,
                "folder": str(folder),
                "probe": ProbeConfig(hang_s=hang_s),
                "device": "cpu",
                "settings": Settings(batch_size=8),
            },
        )
        process: Any = self.process
        family: Any = Family()
        receiver: Any = Receiver(reading)
        self.watch = Watch(process, family, receiver, request, lambda stage: self.on_stage(stage))


@pytest.mark.parametrize("scored", [False, True])
def test_an_interrupt_leaves_the_score_that_stood(tmp_path: Path, scored: bool) -> None:
    trial = Trial(tmp_path)

    def interrupted(stage: str) -> None:
        if stage == "trace":
            raise KeyboardInterrupt

    trial.on_stage = interrupted
    if scored:
        send(trial.fd, Kind.SCORED, SCORED)
    send(trial.fd, Kind.STAGE, b"trace")
    with pytest.raises(KeyboardInterrupt) as caught:
        trial.watch.record()
    assert isinstance(caught.value, ScoredInterrupt) is scored
    if isinstance(caught.value, ScoredInterrupt):
        kept = caught.value.measurement
        assert kept.window == make_measurement().window
        assert kept.notes[-1].endswith("during trace: interrupted by the user")


def test_the_record_is_returned_as_it_was_sent(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    send(trial.fd, Kind.STAGE, b"window")
    send(trial.fd, Kind.BEAT, b"3")
    send(trial.fd, Kind.RECORD, SCORED)
    assert trial.watch.record() == make_measurement()
    assert trial.stages == ["start", "window"]


@pytest.mark.parametrize("scored", [False, True])
def test_what_is_no_message_ends_the_trial_but_not_its_score(tmp_path: Path, scored: bool) -> None:
    trial = Trial(tmp_path)
    if scored:
        send(trial.fd, Kind.SCORED, SCORED)
    os.write(trial.fd, b"debug: here\n")
    seen = trial.watch.record()
    if scored:
        assert isinstance(seen, Measurement)
        assert "did not open" in seen.notes[-1]
    else:
        assert isinstance(seen, TrialFailure)
        assert seen.failure is FailureKind.CRASH
        assert "did not open" in seen.message


def test_a_closed_pipe_of_a_process_that_lives_is_told_as_that(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    os.close(trial.fd)
    seen = trial.watch.record()
    assert isinstance(seen, TrialFailure)
    assert "closed its connection" in seen.message


def test_death_is_seen_though_a_worker_keeps_the_pipe_open(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    send(trial.fd, Kind.STAGE, b"window")
    threading.Timer(0.1, trial.process.die, [-signal.SIGSEGV]).start()
    seen = trial.watch.record()
    assert isinstance(seen, TrialFailure)
    assert "SIGSEGV during window" in seen.message


@pytest.mark.parametrize("scored", [False, True])
def test_half_a_message_does_not_hold_up_the_limit(tmp_path: Path, scored: bool) -> None:
    trial = Trial(tmp_path, limit_s=0.3)
    if scored:
        send(trial.fd, Kind.SCORED, SCORED)
    os.write(trial.fd, b"R\x00\x00\xff\xff{")
    seen = trial.watch.record()
    if scored:
        assert isinstance(seen, Measurement)
        assert "0.3 s" in seen.notes[-1]
    else:
        assert isinstance(seen, TrialFailure)
        assert seen.failure is FailureKind.TIME_LIMIT
        assert seen.evidence == "where it was"


def test_a_trial_that_does_nothing_hangs(tmp_path: Path) -> None:
    trial = Trial(tmp_path, limit_s=60.0, hang_s=0.5)
    seen = trial.watch.record()
    assert isinstance(seen, TrialFailure)
    assert seen.failure is FailureKind.HANG
    assert "probe.hang_s" in seen.message
