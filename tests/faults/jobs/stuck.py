"""Jobs that hang, hide or make a mess."""

import atexit
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
from healthy import Numbers

STEPS_BEFORE = 20


class Stepping(torch.nn.Linear):
    """A layer that does something at one of its steps."""

    def __init__(self, action):
        super().__init__(8, 4)
        self.action, self.calls = action, 0

    def forward(self, rows):
        self.calls += 1
        if self.calls == STEPS_BEFORE:
            self.action()
        return super().forward(rows)


def _wait_for_a_lock_that_is_never_given():
    threading.Event().wait()


def _spin():
    while True:
        pass


def _stray_write():
    for fd in range(3, 64):
        try:
            mode = os.fstat(fd).st_mode
            if stat.S_ISFIFO(mode):
                os.write(fd, b"debug: we are here\n")
        except OSError:
            continue


def _talk():
    for _ in range(200):
        sys.stdout.write("x" * 1_000_000 + "\n")


def _detach():
    """Start a process the way daemons do: forked twice, in a session of its own."""
    if (child := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            os.execlp("sleep", "sleep", "86399")
        os._exit(0)
    os.waitpid(child, 0)
    time.sleep(0.1)


def _litter():
    for _ in range(5):
        descriptor, _ = tempfile.mkstemp()
        os.close(descriptor)
    tempfile.mkdtemp()
    subprocess.run(["mktemp"], check=True, stdout=subprocess.DEVNULL)


def _stay():
    atexit.register(time.sleep, 3600)
    threading.Thread(target=time.sleep, args=(3600,)).start()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


ACTIONS = {
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "silent exit": lambda: os._exit(0),
    "closed descriptors": lambda: os.closerange(3, 256),
    "closed output": lambda: os.closerange(0, 3),
    "stray write": _stray_write,
    "lock": _wait_for_a_lock_that_is_never_given,
    "spin": _spin,
    "talk": _talk,
    "detach": _detach,
    "litter": _litter,
    "stay": _stay,
    "tell oom score": lambda: print(
        "oom score", Path("/proc/self/oom_score_adj").read_text().strip(), flush=True
    ),
}


def stepping(action):
    return Stepping(ACTIONS[action])


class Stuck(Numbers):
    """A dataset whose 300th read never comes back."""

    def __init__(self):
        super().__init__()
        self.reads = 0

    def __getitem__(self, index):
        self.reads += 1
        if self.reads == 300:
            _wait_for_a_lock_that_is_never_given()
        return super().__getitem__(index)


class Mount(Numbers):
    """A dataset on a file system that never answers."""

    def __init__(self):
        super().__init__()
        _wait_for_a_lock_that_is_never_given()
