from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.durable import cannot_write, remove_unfinished, write_whole
from autotune.errors import OutputError

TODO = "Then run it again."


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file.txt"
    path.write_text("old")
    return path


def test_a_text_replaces_the_file_and_leaves_nothing_else(path: Path) -> None:
    write_whole(path, "nö", todo=TODO)
    assert path.read_bytes() == "nö".encode()
    assert list(path.parent.iterdir()) == [path]


def test_others_may_read_it_as_any_new_file(path: Path) -> None:
    plain = path.with_name("plain")
    plain.touch()
    write_whole(path, b"", todo=TODO)
    assert path.stat().st_mode == plain.stat().st_mode


def test_a_write_that_breaks_half_way_leaves_the_old_file(path: Path) -> None:
    # In a process of its own: the limit would hold for pytest's own output too.
    program = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from autotune.durable import write_whole\n"
        "from autotune.errors import OutputError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"
        "try: write_whole(Path(sys.argv[1]), b'x' * 10_000, todo='Then run it again.')\n"
        "except OutputError as error: print(error)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(path)], check=True, capture_output=True, text=True
    )
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]
    assert ended.stdout.strip() == (
        f"cannot write {path}: File too large. Raise the limit on the size of files (ulimit -f). "
        "Then run it again."
    )


@pytest.mark.parametrize("call", ["open", "os.fsync", "os.replace"])
def test_a_full_disk_at_any_moment_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(f"builtins.{call}" if call == "open" else call, full)
    with pytest.raises(OutputError, match=r"file\.txt: No space left.*Free some space.*again"):
        write_whole(path, "new", todo=TODO)
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_a_file_system_that_cannot_flush_a_folder_will_do(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = os.fsync

    def no_folders(handle: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        flush(handle)

    monkeypatch.setattr(os, "fsync", no_folders)
    write_whole(path, "new", todo=TODO)
    assert path.read_text() == "new"


def test_a_writer_killed_before_the_end_leaves_the_old_file_and_one_that_is_removed(
    path: Path,
) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from autotune.durable import write_whole\n"
        "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_whole(Path(sys.argv[1]), 'new', todo='')"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    assert len(list(path.parent.iterdir())) == 2
    deeper = path.parent / "trials" / "0003"
    deeper.mkdir(parents=True)
    (deeper / ".record.json.77.unfinished").touch()
    remove_unfinished(path.parent)
    assert sorted(path.parent.rglob("*.*")) == [path]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "No space left on device. Free some space on its disk. Then run it again."),
        (errno.EROFS, "Read-only file system. Make its disk writable. Then run it again."),
        (errno.EACCES, "Permission denied. Make its folder writable. Then run it again."),
        (errno.EISDIR, "Is a directory. Then run it again."),
    ],
)
def test_what_to_do_follows_from_the_cause(number: int, words: str) -> None:
    error = cannot_write(Path("/runs/a"), OSError(number, os.strerror(number)), TODO)
    assert str(error) == f"cannot write /runs/a: {words}"
