"""The same command from a wheel, from a checkout, from anywhere, with files of the user's own."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def python(*words: str, folder: Path, import_from: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in `folder` with only `import_from` on its path besides what is installed."""
    environment = os.environ | {"PYTHONPATH": str(import_from)}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = python(
        *("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(REPOSITORY)),
        folder=folder,
        import_from=folder,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (file,) = folder.glob("autotune-*.whl")
    return file


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    done = python(
        *("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder)),
        str(wheel),
        folder=folder,
        import_from=folder,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_wheel_holds_every_configuration_file(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("conf", "search_spaces"):
        files = sorted((REPOSITORY / folder).rglob("*.yaml"))
        assert files
        for file in files:
            assert f"autotune/{file.relative_to(REPOSITORY).as_posix()}" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert all(name.startswith(("autotune/", "autotune-")) for name in names)


@pytest.mark.parametrize("source", ["wheel", "checkout"])
def test_runs_from_an_empty_folder(
    source: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    import_from = request.getfixturevalue("installed") if source == "wheel" else REPOSITORY
    where = python(
        "-c", "import autotune; print(autotune.__file__)", folder=tmp_path, import_from=import_from
    )
    assert Path(where.stdout.strip()).is_relative_to(import_from)
    for words, part in ((["--help"], "search_space  auto"), (["--cfg", "model=tiny"], "cuda:")):
        done = python("-m", "autotune", *words, folder=tmp_path, import_from=import_from)
        assert done.returncode == 0, done.stderr
        assert part in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_wheel_knows_its_version(installed: Path, tmp_path: Path) -> None:
    done = python("-m", "autotune", "--version", folder=tmp_path, import_from=installed)
    assert done.stdout.startswith("autotune 0.")


def test_own_model_group_from_a_folder_of_the_users(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "model" / "small.yaml").write_text("_target_: my.models.small\n")
    words = ("-m", "autotune", "--config-dir", "mine", "model=small", "--cfg")
    done = python(*words, folder=tmp_path, import_from=installed)
    assert done.returncode == 0, done.stderr
    assert "_target_: my.models.small" in done.stdout


def test_a_typo_in_the_installed_command(installed: Path, tmp_path: Path) -> None:
    done = python("-m", "autotune", "model=resnet5O", folder=tmp_path, import_from=installed)
    assert done.returncode == 2
    assert "Did you mean 'resnet50'?" in done.stderr
    assert "Traceback" not in done.stderr
