"""Trials that hang, hide or make a mess: each ends as a typed result, and nothing of it stays."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from conftest import QUICK

from autotune.launch.remains import LOG_BYTES
from autotune.measurement import FailureKind, Measurement, TrialFailure
from autotune.settings import Settings

HANGS_SOON = replace(QUICK, hang_s=2.0)
PLAIN = Settings(batch_size=8)


def quiet(stage):
    """Listen to no progress."""


@pytest.fixture
def measured(launcher, ask, workload):
    """Put a job that does one thing to a trial, and return what came of it."""

    def run(action, **changes):
        job = workload("stuck.stepping")
        job = replace(job, model={**job.model, "action": action})
        return launcher.run(ask(job, PLAIN, **{"probe": HANGS_SOON, **changes}), quiet)

    return run


def sleepers():
    """Return the processes that `detach` started."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if process.info["cmdline"] == ["sleep", "86399"]:
            found.append(process.pid)
    return found


def test_a_stopped_trial_hangs(measured):
    """A debugger, a batch system or SIGSTOP stops the process: it is ended, not waited for."""
    seen = measured("stopped")
    assert isinstance(seen, TrialFailure)
    assert seen.failure is FailureKind.HANG


def test_a_lock_that_is_never_given_hangs_and_says_where(measured):
    """The step waits forever; the stacks of all threads are the evidence."""
    seen = measured("lock")
    assert isinstance(seen, TrialFailure)
    assert seen.failure is FailureKind.HANG
    assert "probe.hang_s" in seen.message
    assert "_wait_for_a_lock_that_is_never_given" in seen.evidence


@pytest.mark.parametrize("workers", [0, 2])
def test_a_read_that_never_comes_back_hangs(launcher, ask, workload, workers):
    """A sample on a dead mount, read by the main process or by workers."""
    settings = Settings(batch_size=8, num_workers=workers, persistent_workers=workers > 0)
    request = ask(workload(data="stuck.Stuck"), settings, probe=HANGS_SOON)
    seen = launcher.run(request, quiet)
    assert isinstance(seen, TrialFailure)
    assert seen.failure is FailureKind.HANG
    assert "_wait_for_a_lock_that_is_never_given" in seen.evidence


def test_a_dataset_that_never_opens_hangs_at_setup(launcher, ask, workload):
    """The folder of the data does not answer at all."""
    request = ask(workload(data="stuck.Mount"), PLAIN, probe=HANGS_SOON)
    for seen in (launcher.run(request, quiet), launcher.inspect(request)):
        assert isinstance(seen, TrialFailure)
        assert seen.failure is FailureKind.HANG
        assert seen.stage == "setup"


def test_a_busy_loop_ends_at_the_limit(measured):
    """It computes, so it does not hang; the limit ends it, and says where it was."""
    seen = measured("spin", limit_s=5.0)
    assert isinstance(seen, TrialFailure)
    assert seen.failure is FailureKind.TIME_LIMIT
    assert "_spin" in seen.evidence


def test_an_exit_without_a_word_is_a_crash(measured):
    """`os._exit(0)` in the user's code: exit code 0 is no success."""
    seen = measured("silent exit")
    assert isinstance(seen, TrialFailure)
    assert seen.failure is FailureKind.CRASH
    assert "exit code 0" in seen.message


def test_closed_descriptors_end_the_trial_soon(measured):
    """The job closes every file it did not open, as daemons do; the pipe is one of them."""
    began = time.monotonic()
    seen = measured("closed descriptors")
    assert isinstance(seen, TrialFailure)
    assert seen.failure is FailureKind.CRASH
    assert time.monotonic() - began < 40.0, "not only at its limit of 60 s"


def test_a_stray_write_into_the_pipe_ends_the_trial(measured):
    """The job writes to a number that is our pipe's."""
    seen = measured("stray write")
    assert isinstance(seen, TrialFailure)
    assert seen.failure is FailureKind.CRASH
    assert "did not open" in seen.message


@pytest.mark.parametrize("action", ["closed output", "stay"])
def test_a_closed_output_or_a_late_exit_does_not_matter(measured, action):
    """No stdout and stderr; an exit hook, a thread and an ignored SIGTERM that would keep it."""
    assert isinstance(measured(action), Measurement)


def test_a_log_without_end_stays_short(measured, tmp_path):
    """A job that prints 200 MB."""
    assert isinstance(measured("talk"), Measurement)
    assert (tmp_path / "log.txt").stat().st_size < 2 * LOG_BYTES


def test_a_daemon_of_the_job_ends_with_it(measured):
    """Forked twice, in a session of its own: nothing but its adoption leads to it."""
    assert isinstance(measured("detach"), Measurement)
    assert sleepers() == []


def test_temporary_files_go_with_the_trial(measured, own_temporary_folder):
    """Files and folders that the job, or a program that it started, left behind."""
    before = set(own_temporary_folder.iterdir())
    assert isinstance(measured("litter"), Measurement)
    assert set(own_temporary_folder.iterdir()) == before


def test_the_kernel_is_told_whom_to_spare(measured, tmp_path):
    """Out of host memory, a trial is to go before the controller."""
    assert isinstance(measured("tell oom score"), Measurement)
    words = (tmp_path / "log.txt").read_text().split("oom score ")[1].split()
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert int(words[0]) > own


def test_a_healthy_job_is_left_alone(launcher, ask, workload):
    """With as little patience as above."""
    settings = Settings(batch_size=8, num_workers=1)
    seen = launcher.run(ask(workload(), settings, probe=HANGS_SOON), quiet)
    assert isinstance(seen, Measurement)
