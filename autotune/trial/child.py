"""Entry of a trial's process. Imports torch only once it runs: the controller imports this module.

What the process sends back are the messages of `autotune.trial.messages`, at the end one record.
Nothing is judged from what it prints; that goes to `log.txt` in the trial's folder.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import stat
import sys
import tempfile
import threading
import time
from dataclasses import replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.interrupts import adopt_orphans, die_with_parent
from autotune.measurement import Measurement, Record, TrialFailure, to_json
from autotune.request import TrialRequest
from autotune.trial.messages import Kind, send
from autotune.trial.outer_run import leave_outer_run
from autotune.trial.pulse import Pulse, beating

if TYPE_CHECKING:
    from autotune.trial.probe import Probe
    from autotune.workloads.workload import Workload

LOG_FILE = "log.txt"

STACKS_SIGNAL = signal.SIGUSR2
"""Has a trial and its forked workers write the stacks of all their threads into the log."""

_OOM_SCORE = 500
"""Added to a trial's score for the kernel's out-of-memory killer, of 1000: the controller, without
which nothing is kept, is to be spared (proc_pid_oom_score_adj(5))."""


def run_trial(
    connection: Connection, request: TrialRequest, sent_at: float, start_method: str, scratch: str
) -> None:
    """Measure one request in this process and send the record.

    Args:
        connection: Where messages go.
        request: What to measure.
        sent_at: `time.monotonic()` of the request.
        start_method: How the controller's interpreter starts processes, and so loader workers.
        scratch: Existing folder for temporary files, which is removed with the trial.
    """
    multiprocessing.set_start_method(start_method, force=True)
    _serve(connection, request, sent_at, scratch, inspect_only=False)


def run_inspection(
    connection: Connection, request: TrialRequest, sent_at: float, start_method: str, scratch: str
) -> None:
    """Look at the job once in this process and send the facts. Arguments as `run_trial`."""
    multiprocessing.set_start_method(start_method, force=True)
    _serve(connection, request, sent_at, scratch, inspect_only=True)


def _serve(
    connection: Connection,
    request: TrialRequest,
    sent_at: float,
    scratch: str,
    *,
    inspect_only: bool,
) -> None:
    _isolate(Path(request.folder), scratch)
    reports = _Reports(connection)
    keep: list[object] = []
    with beating(reports.pulse, reports.beat):
        record = _measure(request, sent_at, reports, keep, inspect_only=inspect_only)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the job may have closed it
            stream.flush()
    reports.record(record)
    # What counts has been sent. Closing a loader would wait for batches that nobody needs, and exit
    # hooks of the user's libraries could hang: the controller ends this whole group at once.
    while True:
        signal.pause()


class _Reports:
    """Sends what the controller is to know; remembers the last stage and the score.

    A process whose pipe is gone has nobody to measure for, and ends.

    Attributes:
        last: The stage that it is in.
        measurement: What is measured already; None before the score stands.
        pulse: Counts its steps.
    """

    def __init__(self, connection: Connection) -> None:
        self._fd = connection.fileno()
        self._connection = connection  # closed with its object
        self._pipe = os.fstat(self._fd).st_ino
        self._turn = threading.Lock()
        self.last = "start"
        self.measurement: Measurement | None = None
        self.pulse = Pulse()

    def __call__(self, stage: str) -> None:
        self.last = stage
        self._send(Kind.STAGE, stage.encode())

    def beat(self, steps: int) -> None:
        """Tell how many steps are done; called from a thread of its own."""
        self._send(Kind.BEAT, str(steps).encode())

    def scored(self, measurement: Measurement) -> None:
        """Send what is measured already: it counts if the rest of the trial is cut off."""
        self.measurement = measurement
        self._send(Kind.SCORED, to_json(measurement).encode())

    def record(self, record: Record) -> None:
        """Send the record, the last message."""
        self._send(Kind.RECORD, to_json(record).encode())

    def _send(self, kind: Kind, body: bytes) -> None:
        with self._turn:
            try:
                # The job may have closed the pipe, and opened a file that has its number now.
                told = os.fstat(self._fd)
                if not stat.S_ISFIFO(told.st_mode) or told.st_ino != self._pipe:
                    os._exit(os.EX_IOERR)
                send(self._fd, kind, body)
            except OSError:
                os._exit(os.EX_IOERR)


def _measure(
    request: TrialRequest,
    sent_at: float,
    reports: _Reports,
    keep: list[object],
    *,
    inspect_only: bool,
) -> Record:
    """Return the record of whatever happens; the user's job may raise anything, even SystemExit.

    What must not be taken down before the record is sent is put into `keep`.
    """
    import torch

    from autotune.measure.deaths import OomKills
    from autotune.measure.device import resolve_device, synchronize
    from autotune.measurement import Costs, FailureKind
    from autotune.trial import failures
    from autotune.trial.inspect import inspect_job
    from autotune.trial.probe import Probe
    from autotune.trial.second_look import reason_on_cpu
    from autotune.workloads.build import build_workload

    device: torch.device | None = None
    workload: Workload | None = None
    probe: Probe | None = None
    kills = OomKills()
    try:
        device = resolve_device(request.device)
        if device.type != "cpu":
            torch.accelerator.set_device_index(device.index or 0)
            torch.empty(1, device=device)  # creates the context
            synchronize(device)
        start_s = time.monotonic() - sent_at
        reports("setup")
        workload = build_workload(request.workload)
        if inspect_only:
            return inspect_job(workload, request, device)
        probe = Probe(request, device, start_s, reports, reports.scored, reports.pulse)
        keep.append(probe)
        return probe.run(workload)
    except BaseException as error:
        told = failures.diagnose(error, device, kills)
        if told.kind is FailureKind.CRASH and workload is not None:
            left_s = request.limit_s - (time.monotonic() - sent_at)
            if (plain := reason_on_cpu(workload, request, left_s)) is not None:
                told = replace(told, message=f"{told.message} On a CPU the same job says: {plain}")
        if reports.measurement is not None:
            return without_extras(reports.measurement, reports.last, told.message)
        return TrialFailure(
            settings=request.settings,
            failure=told.kind,
            message=told.message,
            setting=told.setting,
            stage=reports.last,
            evidence=failures.evidence(error),
            costs=probe.costs if probe is not None else Costs(),
        )


def without_extras(scored: Measurement, stage: str, why: str) -> Measurement:
    """Return a measurement whose trial ended before its extras (trace, checks) were complete."""
    numerics = scored.numerics
    if numerics is not None and numerics.failed is None and numerics.unchecked is None:
        numerics = replace(numerics, unchecked="the trial was cut off before")
    note = f"the trial was cut off after its score, during {stage}: {why}"
    return replace(scored, numerics=numerics, notes=(*scored.notes, note))


def _isolate(folder: Path, scratch: str) -> None:
    """Own session, death with the parent, own log and temporary files, a traceback on a crash."""
    os.setsid()
    # The fork server lives while any process holds this descriptor. Without ours it ends with the
    # controller, and we with it.
    if (alive := getattr(forkserver._forkserver, "_forkserver_alive_fd", None)) is not None:
        os.close(alive)
    die_with_parent()
    controller = multiprocessing.parent_process()
    if controller is not None and not controller.is_alive():
        os._exit(1)  # it died before the line above could help
    adopt_orphans()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
    log = os.open(folder / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    faulthandler.enable()
    faulthandler.register(STACKS_SIGNAL, all_threads=True)
    os.environ["TMPDIR"] = tempfile.tempdir = scratch
    leave_outer_run()
    # One compile cache per study: warm from its second trial on, and gone with its folder.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder.parent / "compile-cache"))
