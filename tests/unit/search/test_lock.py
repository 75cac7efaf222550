from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.errors import OutputError, StudyError
from autotune.search.lock import LOCK, StudyLock

HOLD = (
    "import sys, time; from pathlib import Path; from autotune.search.lock import StudyLock\n"
    "lock = StudyLock(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
)


def test_a_second_one_is_told_who_has_it(tmp_path: Path) -> None:
    with StudyLock(tmp_path):
        for _ in range(2):  # who is refused leaves the file as it is
            with pytest.raises(StudyError) as caught:
                StudyLock(tmp_path)
            who = rf"process {os.getpid()} on {re.escape(socket.gethostname())}, since \d{{4}}-"
            assert re.search(who, str(caught.value))
            assert "study.resume=false" in str(caught.value)
    StudyLock(tmp_path).__exit__(None, None, None)


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(StudyError, match=f"process {holder.pid} on"):
        StudyLock(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with StudyLock(tmp_path):
        assert str(os.getpid()) in (tmp_path / LOCK).read_text()


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"pid": 3}'])
def test_a_holder_that_does_not_say_who_it_is_holds_it_all_the_same(
    tmp_path: Path, text: str
) -> None:
    with StudyLock(tmp_path):
        (tmp_path / LOCK).write_text(text)
        with pytest.raises(StudyError, match=r"the study in [^:]+\. Wait until it has ended"):
            StudyLock(tmp_path)


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unknown)
    with pytest.raises(StudyError, match=r"No locks available.*output\.dir"):
        StudyLock(tmp_path)


def test_a_lock_that_cannot_be_made_is_an_error_of_the_output(tmp_path: Path) -> None:
    (tmp_path / LOCK).mkdir()
    with pytest.raises(OutputError, match=r"cannot write .*study\.lock: Is a directory"):
        StudyLock(tmp_path)
