"""Entry of a trial's process. Imports torch only once it runs: the controller imports this module.

What the process sends back are byte messages: `S` and a stage, `M` and a measurement as JSON once
its score stands, and at the end `R` and one record as JSON. Nothing is judged from what it
prints; that goes to `log.txt` in the trial's folder.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import time
from dataclasses import replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.interrupts import die_with_parent
from autotune.measurement import Measurement, Record, TrialFailure, to_json
from autotune.request import TrialRequest
from autotune.trial.outer_run import leave_outer_run

if TYPE_CHECKING:
    from autotune.trial.probe import Probe
    from autotune.workloads.workload import Workload

STAGE = b"S"
SCORED = b"M"
RECORD = b"R"
LOG_FILE = "log.txt"


def run_trial(
    connection: Connection, request: TrialRequest, sent_at: float, start_method: str
) -> None:
    """Measure one request in this process and send the record.

    Args:
        connection: Where messages go.
        request: What to measure.
        sent_at: `time.monotonic()` of the request.
        start_method: How the controller's interpreter starts processes, and so loader workers.
    """
    multiprocessing.set_start_method(start_method, force=True)
    _serve(connection, request, sent_at, inspect_only=False)


def run_inspection(
    connection: Connection, request: TrialRequest, sent_at: float, start_method: str
) -> None:
    """Look at the job once in this process and send the facts. Arguments as `run_trial`."""
    multiprocessing.set_start_method(start_method, force=True)
    _serve(connection, request, sent_at, inspect_only=True)


def _serve(
    connection: Connection, request: TrialRequest, sent_at: float, *, inspect_only: bool
) -> None:
    _isolate(Path(request.folder))
    stages = _Stages(connection)
    keep: list[object] = []
    record = _measure(request, sent_at, stages, keep, inspect_only=inspect_only)
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(BrokenPipeError):  # the controller is gone; so will be this process
        connection.send_bytes(RECORD + to_json(record).encode())
    # What counts has been sent. Closing a loader would wait for batches that nobody needs, and exit
    # hooks of the user's libraries could hang: the controller ends this whole group at once.
    while True:
        signal.pause()


class _Stages:
    """Sends each stage as it begins and remembers the last one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.last = "start"
        self.measurement: Measurement | None = None

    def __call__(self, stage: str) -> None:
        self.last = stage
        with contextlib.suppress(BrokenPipeError):
            self._connection.send_bytes(STAGE + stage.encode())

    def scored(self, measurement: Measurement) -> None:
        """Send what is measured already: it counts if the rest of the trial is cut off."""
        self.measurement = measurement
        with contextlib.suppress(BrokenPipeError):
            self._connection.send_bytes(SCORED + to_json(measurement).encode())


def _measure(
    request: TrialRequest,
    sent_at: float,
    stages: _Stages,
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
        stages("setup")
        workload = build_workload(request.workload)
        if inspect_only:
            return inspect_job(workload, request, device)
        probe = Probe(request, device, start_s, stages, stages.scored)
        keep.append(probe)
        return probe.run(workload)
    except BaseException as error:
        told = failures.diagnose(error, device, kills)
        if told.kind is FailureKind.CRASH and workload is not None:
            left_s = request.limit_s - (time.monotonic() - sent_at)
            if (plain := reason_on_cpu(workload, request, left_s)) is not None:
                told = replace(told, message=f"{told.message} On a CPU the same job says: {plain}")
        if stages.measurement is not None:
            return without_extras(stages.measurement, stages.last, told.message)
        return TrialFailure(
            settings=request.settings,
            failure=told.kind,
            message=told.message,
            setting=told.setting,
            stage=stages.last,
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


def _isolate(folder: Path) -> None:
    """Own session and process group, death with the parent, own log, a traceback on a crash."""
    os.setsid()
    # The fork server lives while any process holds this descriptor. Without ours it ends with the
    # controller, and we with it.
    if (alive := getattr(forkserver._forkserver, "_forkserver_alive_fd", None)) is not None:
        os.close(alive)
    die_with_parent()
    controller = multiprocessing.parent_process()
    if controller is not None and not controller.is_alive():
        os._exit(1)  # it died before the line above could help
    log = os.open(folder / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable()
    leave_outer_run()
    # One compile cache per study: warm from its second trial on, and gone with its folder.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder.parent / "compile-cache"))
