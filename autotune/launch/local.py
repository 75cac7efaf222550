"""Trials on this machine: a fresh process each, from a warm fork server, killed whole."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from autotune.interrupts import held_interrupts
from autotune.launch.family import END_S, Family
from autotune.launch.launcher import Progress, ScoredInterrupt
from autotune.launch.remains import bound, free_shared_memory, scratch_folder, shorten
from autotune.launch.vigil import Alarm, Vigil
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
from autotune.trial.child import LOG_FILE, run_inspection, run_trial, without_extras
from autotune.trial.messages import Inbox, Kind, Message, UnreadableMessage

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

_LOOK_S = 1.0
"""Seconds between two looks at a trial that sends nothing."""

_Target = Callable[[Connection, TrialRequest, float, str, str], None]


class LocalLauncher:
    """Runs trials one at a time on this machine.

    A trial's process is forked from a server that has torch imported but no device context, leads
    a session of its own, and is killed with all its descendants when it is done, hangs, or its
    time is up.
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
        log = Path(request.folder) / LOG_FILE
        with scratch_folder() as scratch:
            receiver, sender = self._context.Pipe(duplex=False)
            process = self._context.Process(
                target=target,
                # Left alone, a process from a fork server would start loader workers through one
                # too, which takes seconds and is not what the user's own script does.
                args=(
                    sender,
                    request,
                    time.monotonic(),
                    multiprocessing.get_start_method(),
                    str(scratch),
                ),
                name="autotune-trial",
            )
            family = Family(process)
            try:
                process.start()
                sender.close()
                return Watch(process, family, receiver, request, progress).record()
            finally:
                with held_interrupts():
                    family.end()
                    receiver.close()
                    free_shared_memory(family.pids)
                    shorten(log)


class Watch:
    """Waits for one trial's record, its death, a hang or its limit, whichever comes first.

    Args:
        process: The trial's process, started.
        family: That process and its descendants.
        receiver: Reading end of its pipe.
        request: What it was asked to do.
        progress: Told the stages that it reaches.
    """

    def __init__(
        self,
        process: ForkServerProcess,
        family: Family,
        receiver: Connection,
        request: TrialRequest,
        progress: Progress,
    ) -> None:
        self._process, self._family, self._receiver = process, family, receiver
        self._request, self._progress = request, progress
        self._log = Path(request.folder) / LOG_FILE
        self._inbox = Inbox(receiver.fileno())
        self._kills = OomKills()
        self._stage = "start"
        self._scored: Measurement | None = None
        self._vigil = Vigil(
            limit_s=request.limit_s,
            hang_s=request.probe.hang_s,
            spins=request.device != "cpu",
            use=family.use,
            clock=time.monotonic,
        )

    def record(self) -> Record:
        """Return what came of the trial. One that is cut off after its score stood keeps it.

        Raises:
            KeyboardInterrupt: Ctrl-C; a `ScoredInterrupt` once there is a score.
        """
        try:
            self._progress(self._stage)
            while True:
                if (found := self._heard()) is not None:
                    return found
                if (alarm := self._vigil.alarm()) is not None:
                    return self._cut_off(alarm)
                bound(self._log)
                wait(
                    [self._receiver, self._process.sentinel],
                    min(_LOOK_S, max(0.01, self._vigil.left_s)),
                )
        except KeyboardInterrupt as interrupt:
            if self._scored is None:
                raise
            kept = without_extras(self._scored, self._stage, "interrupted by the user")
            raise ScoredInterrupt(kept) from interrupt

    def _heard(self) -> Record | None:
        """Take the messages that have come; return the record, or what the trial's end means."""
        dead = not self._process.is_alive()  # asked first: what it sent before is there then
        try:
            for message in self._inbox.read():
                if (record := self._take(message)) is not None:
                    return record
        except EOFError:
            return self._died()
        except UnreadableMessage as error:
            return self._ended(
                FailureKind.CRASH,
                f"something else than autotune wrote into the trial's pipe ({error}) during "
                f"{self._stage}: does the job write to file descriptors that it did not open?",
            )
        return self._died() if dead else None

    def _take(self, message: Message) -> Record | None:
        match message.kind:
            case Kind.STAGE:
                self._stage = message.body.decode()
                self._vigil.enter(self._stage)
                self._progress(self._stage)
            case Kind.BEAT:
                self._vigil.beat(int(message.body))
            case Kind.SCORED:
                found = from_json(message.body)
                self._scored = found if isinstance(found, Measurement) else None
            case Kind.RECORD:
                return from_json(message.body)
        return None

    def _died(self) -> Record:
        self._process.join(END_S / 5)
        code, killed = self._process.exitcode, self._kills.since()
        if code is None:
            return self._ended(
                FailureKind.CRASH,
                f"the trial closed its connection to autotune during {self._stage}, though it "
                "still runs: does the job close file descriptors that it did not open?",
            )
        kind = FailureKind.OUT_OF_MEMORY if lacks_memory(code, killed) else FailureKind.CRASH
        text = f"the trial's process {ending(code, killed)} during {self._stage}, without a result"
        return self._ended(kind, text)

    def _cut_off(self, alarm: Alarm) -> Record:
        if self._scored is not None:
            return without_extras(self._scored, self._stage, alarm.why)
        return self._failure(alarm.kind, alarm.why, self._family.stacks(self._log))

    def _ended(self, kind: FailureKind, text: str) -> Record:
        if self._scored is not None:
            return without_extras(self._scored, self._stage, text)
        return self._failure(kind, f"{text}; see log.txt", None)

    def _failure(self, kind: FailureKind, message: str, evidence: str | None) -> TrialFailure:
        return TrialFailure(
            settings=self._request.settings,
            failure=kind,
            message=message,
            stage=self._stage,
            evidence=evidence,
        )
