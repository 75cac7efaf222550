from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from autotune.launch import remains
from autotune.launch.remains import LOG_BYTES, bound, free_shared_memory, scratch_folder, shorten


def test_a_long_log_loses_its_middle(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"first\n" + b"." * (2 * LOG_BYTES) + b"\nlast")
    shorten(log)
    text = log.read_bytes()
    assert LOG_BYTES < len(text) < LOG_BYTES + 100
    assert text.startswith(b"first\n.")
    assert text.endswith(b".\nlast")
    assert b"bytes left out" in text


def test_a_short_log_and_a_missing_one_stay_as_they_are(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    shorten(log)
    bound(log)
    assert not log.exists()
    log.write_bytes(b"." * LOG_BYTES)
    shorten(log)
    bound(log)
    assert log.read_bytes() == b"." * LOG_BYTES


def test_a_log_without_end_is_cut_while_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remains, "_GROWS_TO", 2 * LOG_BYTES)
    log = tmp_path / "log.txt"
    with log.open("ab", buffering=0) as file:
        file.write(b"first\n" + b"." * (2 * LOG_BYTES))
        bound(log)
        file.write(b"last")
    text = log.read_bytes()
    assert len(text) == LOG_BYTES // 2 + len(b"last")
    assert text.startswith(b"first\n")
    assert text.endswith(b".last")


def test_a_scratch_folder_goes_with_all_that_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fail(folder: Path) -> None:
        (folder / "deep").mkdir()
        (folder / "deep" / "file").touch()
        raise KeyError

    with pytest.raises(KeyError), scratch_folder() as folder:  # noqa: PT012 - the block is the test
        assert folder.parent == tmp_path
        fail(folder)
    assert list(tmp_path.iterdir()) == []


def test_only_the_familys_shared_memory_is_freed(tmp_path: Path) -> None:
    names = ("torch_12_345_6", "torch_123_4_5", "torch_12x", "psm_12", "other")
    for name in names:
        (tmp_path / name).touch()
    free_shared_memory({12}, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(names[1:])
    free_shared_memory({12}, tmp_path / "missing")
