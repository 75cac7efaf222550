from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import autotune
from autotune.__main__ import INTERRUPTED, main
from autotune.cli import run as run_module
from autotune.cli.choices import find_choices

HEAVY = ("torch", "torchvision", "mlflow", "optuna", "scipy", "sklearn")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_bare_command_shows_usage_and_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "usage: python -m autotune model=MODEL" in shown.err
    assert "resnet50" in shown.err


def test_help_names_every_choice_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for group, names in find_choices().items():
        assert group in text
        for name in names:
            assert name in text
    assert "budget.minutes=8.0" in text
    assert "search_space  auto, " in text, "the default comes first"
    assert "Exit codes" in text
    assert max(map(len, text.splitlines())) <= 88


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"autotune {autotune.__version__}\n"


def test_version_of_a_checkout_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", not_installed)
    assert autotune.__version__ == "0+unknown"


def test_cfg_prints_yaml_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model=tiny", "--cfg"]) == 0
    assert "search_spaces:" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_wrong_word_is_one_message_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model=resnet5O"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: model: got 'resnet5O'")
    assert list(tmp_path.iterdir()) == []


def test_interrupted_with_nothing_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(words: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "parse_command_line", interrupt)
    assert main(["model=tiny"]) == INTERRUPTED


@pytest.mark.parametrize(
    ("words", "code"),
    [(["--help"], 0), (["model=tiny", "--cfg"], 0), (["model=tiny", "budget.minuts=3"], 2)],
)
def test_quick_answers_load_no_framework(words: list[str], code: int) -> None:
    script = (
        "import sys; from autotune.__main__ import main; code = main(sys.argv[1:]); "
        f"print(*[m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    # The environment's PYTHONPATH serves a checkout that is not installed.
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1] == ""
