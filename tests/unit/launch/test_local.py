from __future__ import annotations

from pathlib import Path

from autotune.launch.local import LOG_BYTES, _shorten


def test_a_long_log_loses_its_middle(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"first\n" + b"." * (2 * LOG_BYTES) + b"\nlast")
    _shorten(log)
    text = log.read_bytes()
    assert LOG_BYTES < len(text) < LOG_BYTES + 100
    assert text.startswith(b"first\n.")
    assert text.endswith(b".\nlast")
    assert b"bytes left out" in text


def test_a_short_log_and_a_missing_one_stay_as_they_are(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    _shorten(log)
    assert not log.exists()
    log.write_bytes(b"." * LOG_BYTES)
    _shorten(log)
    assert log.read_bytes() == b"." * LOG_BYTES
