"""One study from its configuration to its files."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn

from autotune.cli.compose import Composed
from autotune.cli.ending import ending
from autotune.cli.folder import study_folder
from autotune.cli.screen import Screen
from autotune.config import Config, resolve_output
from autotune.durable import write_whole
from autotune.result import StudyResult
from autotune.tracking.tracker import Tracker

_WORKLOADS = "autotune.workloads"
_REWRITE = "study.resume=true goes on with what was measured and writes it again."


def tune(composed: Composed) -> int:
    """Run a study and write its files; return the exit code 0.

    Raises:
        AutotuneError: It cannot be done; the message is for the user.
        KeyboardInterrupt: Stopped before there was anything to keep, or a second time.
    """
    config = composed.config
    output = resolve_output(config.output)
    folder = study_folder(output, config.study_name, resume=config.study.resume, now=datetime.now())
    with _sigterm_as_interrupt(), folder as path, Screen() as screen:
        _prepare_data(config, screen)
        screen.prepared()
        _run(composed, output, path, screen)
    return 0


def _prepare_data(config: Config, screen: Screen) -> None:
    """Make or check our own kinds of data here, before any trial is started for them."""
    target = str(config.data["_target_"])
    if target.startswith(f"{_WORKLOADS}.photos."):
        from autotune.workloads.photos import ensure_photos

        ensure_photos(
            config.data["files"],
            config.data["seed"],
            lambda done, total: screen.preparing("making photographs", done, total),
        )
    elif target.startswith(f"{_WORKLOADS}.imagefolder."):
        from autotune.workloads.imagefolder import check_imagefolder

        check_imagefolder(config.data["root"])


def _run(composed: Composed, output: Path, folder: Path, screen: Screen) -> None:
    # Imported now: optuna and mlflow take seconds, which an early refusal need not wait for.
    from autotune.launch.local import LocalLauncher
    from autotune.tracking import make_tracker
    from autotune.tuner import Tuner

    tracker = make_tracker(composed.config.tracking, output)
    try:
        tuner = Tuner(
            composed.config,
            folder=folder,
            launcher=LocalLauncher(),
            tracker=tracker,
            observer=screen,
            config_text=composed.yaml_text,
        )
        _finish(tuner.run(), folder, tracker, screen)
    except BaseException as error:
        tracker.abort(repr(error), killed=isinstance(error, KeyboardInterrupt))
        raise


def _finish(result: StudyResult, folder: Path, tracker: Tracker, screen: Screen) -> None:
    """Write the files, close the parent run and show the outcome."""
    from autotune.export import tuned_from, write_tuned
    from autotune.report import markdown

    tuned, summary = folder / "tuned.yaml", folder / "summary.md"
    view, address = tracker.view(), tracker.address()
    write_tuned(tuned_from(result), tuned)
    write_whole(summary, markdown(result, view=view, address=address), todo=_REWRITE)
    tracker.finish(result, (str(tuned), str(summary)))
    screen.show(ending(result, tuned=tuned, summary=summary, view=view, address=address))


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Treat the signal that a scheduler sends like Ctrl-C: finish up and keep the best so far."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
