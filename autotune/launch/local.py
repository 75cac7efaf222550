"""Trials on this machine: a fresh process each, from a warm fork server, killed whole."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psutil

from autotune.interrupts import held_interrupts
from autotune.launch.launcher import Progress, ScoredInterrupt
from autotune.measure.deaths import OomKills, ending, lacks_memory
from autotune.measurement import (
    FailureKind,
    JobFacts,
    Measurement,
    Outcome,
    Record,
    TrialFailure,
    from_json,
)
from autotune.request import TrialRequest
from autotune.trial.child import (
    LOG_FILE,
    RECORD,
    SCORED,
    STAGE,
    run_inspection,
    run_trial,
    without_extras,
)

PRELOAD = (
    "torch",
    "torchvision.transforms.v2",
    "scipy.special",
    "autotune.trial.child",
    "autotune.trial.probe",
    "autotune.trial.inspect",
    "autotune.trial.failures",
    "autotune.workloads.build",
)
"""Imported once by the fork server, so that a trial does not pay for it. None of these starts the
device or threads that a fork would break."""

END_S = 10.0
"""Seconds at most that killed processes are waited for."""

LOG_BYTES = 1_000_000
"""A longer log of a trial loses its middle: it is kept, and stored with the run, for each trial."""

_Target = Callable[[Connection, TrialRequest, float, str], None]


class LocalLauncher:
    """Runs trials one at a time on this machine.

    A trial's process is forked from a server that has torch imported but no device context, leads
    a process group of its own, and is killed with all its descendants when its time is up.
    """

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(PRELOAD))

    def inspect(self, request: TrialRequest) -> JobFacts | TrialFailure:
        """Look at the job once; see `Launcher.inspect`."""
        record = self._run(run_inspection, request, lambda stage: None)
        if isinstance(record, Measurement):
            raise TypeError("an inspection gave back a measurement")
        return record

    def run(self, request: TrialRequest, progress: Progress) -> Outcome:
        """Run one trial; see `Launcher.run`."""
        record = self._run(run_trial, request, progress)
        if isinstance(record, JobFacts):
            raise TypeError("a trial gave back facts of an inspection")
        return record

    def close(self) -> None:
        """Do nothing: trials are gone when `run` returns, and the fork server ends with us."""

    def _run(self, target: _Target, request: TrialRequest, progress: Progress) -> Record:
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=target,
            # Left alone, a process from a fork server would start loader workers through one too,
            # which takes seconds and is not what the user's own script does.
            args=(sender, request, time.monotonic(), multiprocessing.get_start_method()),
            name="autotune-trial",
        )
        try:
            process.start()
            sender.close()
            return _listen(process, receiver, request, progress)
        finally:
            with held_interrupts():
                _end(process)
                receiver.close()
                _shorten(Path(request.folder) / LOG_FILE)


def _listen(
    process: ForkServerProcess, receiver: Connection, request: TrialRequest, progress: Progress
) -> Record:
    """Wait for the record, the process's death or the limit, whichever comes first.

    A trial that is cut off after its score stood keeps it.

    Raises:
        KeyboardInterrupt: Ctrl-C; a `ScoredInterrupt` once there is a score.
    """
    deadline = time.monotonic() + request.limit_s
    kills = OomKills()
    stage = "start"
    scored: Measurement | None = None
    try:
        progress(stage)
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                if scored is not None:
                    return without_extras(scored, stage, f"the limit of {request.limit_s:.3g} s")
                return _failure(
                    request,
                    FailureKind.TIME_LIMIT,
                    stage,
                    f"not done after {request.limit_s:.3g} s (it was in: {stage}); killed. "
                    "probe.limit_s and budget.minutes set this limit.",
                )
            if not receiver.poll(min(left_s, 1.0)):
                continue
            try:
                message = receiver.recv_bytes()
            except (EOFError, OSError):
                failure = _died(process, request, stage, kills)
                return failure if scored is None else without_extras(scored, stage, failure.message)
            if message[:1] == STAGE:
                stage = message[1:].decode()
                progress(stage)
            elif message[:1] == SCORED:
                found = from_json(message[1:])
                scored = found if isinstance(found, Measurement) else None
            elif message[:1] == RECORD:
                return from_json(message[1:])
    except KeyboardInterrupt as interrupt:
        if scored is None:
            raise
        kept = without_extras(scored, stage, "interrupted by the user")
        raise ScoredInterrupt(kept) from interrupt


def _died(
    process: ForkServerProcess, request: TrialRequest, stage: str, kills: OomKills
) -> TrialFailure:
    process.join(END_S)
    code, killed = process.exitcode, kills.since()
    kind = FailureKind.OUT_OF_MEMORY if lacks_memory(code, killed) else FailureKind.CRASH
    text = f"the trial's process {ending(code, killed)} during {stage}, without a result"
    return _failure(request, kind, stage, f"{text}; see log.txt")


def _failure(request: TrialRequest, kind: FailureKind, stage: str, message: str) -> TrialFailure:
    return TrialFailure(settings=request.settings, failure=kind, message=message, stage=stage)


def _end(process: ForkServerProcess) -> None:
    """Leave nothing of a trial behind: its group, and descendants with a group of their own.

    A process that has sent its record waits for this, so that its family is still known. Its end is
    waited for as well: workers that still give back gigabytes would disturb the next trial.
    """
    pid = process.pid
    if pid is None:
        return
    strays = _descendants(pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if process.exitcode is None:
        process.kill()  # it may not lead its group yet
    for stray in strays:
        with contextlib.suppress(psutil.Error):
            stray.kill()
    process.join()
    process.close()
    deadline = time.monotonic() + END_S
    while any(map(_is_alive, strays)) and time.monotonic() < deadline:
        time.sleep(0.02)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _shorten(log: Path) -> None:
    """Keep the beginning and the end of a log that has become too long to store for each trial."""
    with contextlib.suppress(OSError):
        if (size := log.stat().st_size) <= LOG_BYTES:
            return
        half = LOG_BYTES // 2
        with log.open("r+b") as file:
            file.seek(size - half)
            end = file.read()
            file.seek(half)
            file.write(b"\n\n[... %d bytes left out ...]\n\n" % (size - LOG_BYTES) + end)
            file.truncate()


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
