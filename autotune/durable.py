"""Files that hold their old content or the new one, whatever ends the process or the machine."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from autotune.errors import OutputError

_SUFFIX = ".unfinished"

_REMEDIES = {
    errno.ENOSPC: "Free some space on its disk",
    errno.EDQUOT: "Free some space: the quota is used up",
    errno.EFBIG: "Raise the limit on the size of files (ulimit -f)",
    errno.EMFILE: "Raise the limit on open files (ulimit -n)",
    errno.EACCES: "Make its folder writable",
    errno.EPERM: "Make its folder writable",
    errno.EROFS: "Make its disk writable",
    errno.ENOENT: "Make its folder again: it is gone",
    errno.EIO: "See to its disk, which fails",
}
"""What to do about an error of the system."""

_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
"""What file systems that cannot flush a folder answer."""


def write_whole(path: Path, content: str | bytes, *, todo: str) -> None:
    """Replace a file's content. When this returns, the new content is on the disk.

    Until then a reader finds the old file, whole; a killed process leaves that and at most an
    unfinished one beside it, which `remove_unfinished` removes.

    Args:
        path: The file; its folder must exist.
        content: Bytes, or a text to be stored as UTF-8.
        todo: What a user can do next, in a sentence, once the cause is gone.

    Raises:
        OutputError: It cannot be written; nothing has changed.
    """
    data = content.encode() if isinstance(content, str) else content
    # In the same folder, since a file cannot be renamed to another disk.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}{_SUFFIX}")
    try:
        with open(unfinished, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error, todo) from error
    finally:
        _discard(unfinished)


def cannot_write(path: Path, error: OSError, todo: str) -> OutputError:
    """Return the error for a file or folder that the system does not let us write.

    Args:
        path: The file or folder.
        error: What the system said.
        todo: What a user can do next, in a sentence, once the cause is gone.
    """
    remedy = _REMEDIES.get(error.errno or 0)
    steps = todo if remedy is None else f"{remedy}. {todo}"
    return OutputError(f"cannot write {path}: {error.strerror or error}. {steps}")


def remove_unfinished(folder: Path) -> None:
    """Remove what writers that were killed left in a folder and below it.

    Nobody else may be writing there.
    """
    for left in folder.rglob(f".*{_SUFFIX}"):
        _discard(left)


def _sync_folder(folder: Path) -> None:
    """Have the folder itself on the disk: before that, a crash may undo the renaming."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(handle)


def _discard(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:  # a disk that became read-only: it stays, and does no harm
        return
