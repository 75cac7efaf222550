import os
import subprocess
import sys
from pathlib import Path

import pytest
from factories import BASELINE, make_result

import autotune
from autotune.errors import OutputError, TunedFileError
from autotune.export import Tuned, load_tuned, tuned_from, write_tuned, yaml_file

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def tuned() -> Tuned:
    return tuned_from(make_result())


@pytest.fixture
def path(tuned: Tuned, tmp_path: Path) -> Path:
    write_tuned(tuned, tmp_path / "tuned.yaml")
    return tmp_path / "tuned.yaml"


def test_round_trip(tuned: Tuned, path: Path) -> None:
    assert load_tuned(path) == tuned
    assert autotune.load_tuned(str(path)) == tuned


def test_round_trip_of_a_plain_baseline(tmp_path: Path) -> None:
    tuned = tuned_from(make_result(recommended=BASELINE))
    write_tuned(tuned, tmp_path / "tuned.yaml")
    assert load_tuned(tmp_path / "tuned.yaml") == tuned


def test_file_explains_itself(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("# Settings that autotune found for resnet50 on NVIDIA H200")
    assert "autotune.load_tuned(" in text
    assert "speedup: {value: 8.09201, low: 7.99212, high: 8.19314}" in text


def test_a_bare_off_means_off(path: Path) -> None:
    path.write_text(path.read_text().replace("compile: reduce-overhead", "compile: off"))
    assert load_tuned(path).settings.compile == "off"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("schema_version: 1", "schema_version: 2"), "schema_version: found 2; expected 1"),
        (("schema_version: 1", "schema_version: true"), "schema_version: found True; expected 1"),
        (("schema_version: 1\n", ""), "schema_version: found nothing; expected 1"),
        (("batch_size: 512", "batch_size: big"), "settings.batch_size: got 'big'"),
        (("batch_size: 512", "batch_size: 0"), "settings.batch_size: got 0"),
        (("precision: bf16", "precision: bf61"), "Did you mean 'bf16'"),
        (("num_workers: 16", "num_worker: 16"), "Did you mean 'num_workers'"),
        (("  pin_memory: true\n", ""), "settings.pin_memory: is missing"),
        (("num_workers: 16", "num_workers: 16\n  turbo: true"), "settings.turbo: got True"),
        (("num_workers: 16", "num_workers: 16\n  7: true"), "settings.7: got True"),
        (("num_workers: 16", "num_workers: 0"), "need num_workers of 1 or more"),
        (("verdict: FASTER", "verdict: GREAT"), "evidence.verdict: found 'GREAT'"),
        (("  confirmed: true\n", ""), "evidence.confirmed: is missing"),
        (("rounds: 3", "rounds: three"), "evidence.rounds: found 'three'"),
        (("rounds: 3", "rounds: 3\n  luck: 1"), "evidence.luck: is not a key"),
        (("low: 7.99212", "low: .nan"), "evidence.speedup.low: found nan"),
        (("torch: 2.14.1", "torch: 2.14"), "holds_for.torch: found 2.14"),
        (("created: 2026", "created: 20x6"), "created: found"),
        (("holds_for:", "holds_at:"), "holds_for: is missing"),
        (("schema_version: 1", "schema_version: 1\nmore: 1"), "more: is not a key"),
        (("schema_version: 1", "schema_version: 1\n3: 1"), "3: found 3; keys should be strings"),
        (("settings:", "settings: 3\nother:"), "settings: found 3"),
    ],
)
def test_every_fault_names_file_and_key(path: Path, change: tuple[str, str], words: str) -> None:
    before = path.read_text()
    assert change[0] in before
    path.write_text(before.replace(*change))
    with pytest.raises(TunedFileError) as caught:
        load_tuned(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "found nothing"),
        (b"[1, 2]", "found list"),
        (b"just words", "found str"),
        (b"settings: {", "is not valid YAML"),
        (b"\xff\xfe\x00", "is not text"),
        (b"!!python/object/apply:os.system ['true']", "is not valid YAML"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "tuned.yaml"
    path.write_bytes(content)
    with pytest.raises(TunedFileError, match=words):
        load_tuned(path)


def test_missing_file_says_where_it_comes_from(tmp_path: Path) -> None:
    with pytest.raises(TunedFileError, match="there is no such file.*writes tuned.yaml"):
        load_tuned(tmp_path / "tuned.yaml")


def test_folder_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(TunedFileError, match="cannot be read"):
        load_tuned(tmp_path)


def test_every_truncation_is_refused(path: Path) -> None:
    text = path.read_text()
    # The last value is a free word: what is left of it cannot be told from a whole one.
    for end in range(text.index("schema_version"), text.index("  data: "), 7):
        path.write_text(text[:end])
        with pytest.raises(TunedFileError):
            load_tuned(path)


def test_nothing_half_written(tuned: Tuned, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = path.read_text()
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match="No space left on device"):
        write_tuned(tuned, path)
    assert path.read_text() == before
    assert list(path.parent.iterdir()) == [path]


def test_unwritable_folder(tuned: Tuned, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        write_tuned(tuned, tmp_path / "file" / "tuned.yaml")


def test_another_torch_or_device_warns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_file, "_torch_version", lambda: "9.9")
    monkeypatch.setattr(yaml_file, "_cuda_names", lambda: ["NVIDIA A100"])
    with pytest.warns(UserWarning, match="measured with") as caught:
        load_tuned(path)
    texts = [str(warning.message) for warning in caught]
    assert any("torch 2.14.1; here it is torch 9.9" in text for text in texts)
    assert any("NVIDIA H200; here it is NVIDIA A100" in text for text in texts)
    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("error")
def test_the_same_machine_does_not_warn(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_file, "_torch_version", lambda: "2.14.1")
    monkeypatch.setattr(yaml_file, "_cuda_names", lambda: ["NVIDIA H200"])
    load_tuned(path)


def test_import_and_load_stay_light(path: Path) -> None:
    code = (
        "import sys, autotune; assert 'pydantic' not in sys.modules; "
        f"autotune.load_tuned({str(path)!r}); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"


def test_unknown_name_of_the_package() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tune_all'"):
        _ = autotune.tune_all
