"""What `--help` and a bare command print. Loads no framework, so that it answers at once."""

from __future__ import annotations

import json
import textwrap
from dataclasses import fields

from autotune.cli.choices import Choices
from autotune.config import (
    BudgetConfig,
    NumericsConfig,
    ObjectiveConfig,
    OutputConfig,
    ProbeConfig,
    SearchConfig,
    StudyConfig,
    TrackingConfig,
)

_USAGE = "usage: python -m autotune model=MODEL [data=DATA] [key=value ...] [--config-dir DIR]"

_GROUPS = {
    "model": "what is trained",
    "data": "what it is trained on",
    "loss": "",
    "optimizer": "",
    "search_space": "which settings may take which values",
    "search": "who proposes the next trial",
    "budget": "how long it may take",
    "probe": "how carefully a trial is measured",
    "baseline": "your own settings, which gains are stated against",
    "tracking": "where runs are logged",
}
"""Groups in the order in which a user meets them."""

_KEYS: tuple[tuple[str, type, str, str], ...] = (
    ("budget", BudgetConfig, "minutes", "wall-clock minutes for everything"),
    ("budget", BudgetConfig, "trials", "trials of the search at most; null: as many as fit"),
    ("objective", ObjectiveConfig, "metric", "throughput, or energy: samples per joule"),
    ("objective", ObjectiveConfig, "planned_steps", "yours; then compile time counts"),
    ("search", SearchConfig, "sampler", "tpe, gp, random, grid, brute_force"),
    ("probe", ProbeConfig, "window_s", "seconds at most that a trial is timed"),
    ("probe", ProbeConfig, "profile", "traces of which trials: best, all, none"),
    ("probe", ProbeConfig, "loader_ceiling", "time the loader alone in: best, all, none"),
    ("numerics", NumericsConfig, "guard", "hold the losses of fast trials against fp32"),
    ("study", StudyConfig, "name", "null: the model's name"),
    ("study", StudyConfig, "resume", "true: go on with the newest study of this name"),
    ("output", OutputConfig, "dir", "folder for results, from where you start"),
    ("tracking", TrackingConfig, "uri", "an MLflow server; null: a file in output.dir"),
)

_HELP = """\
autotune measures which DataLoader, precision, compile and batch settings train your
PyTorch job fastest, proves the gain against your own settings, and writes them down.

{usage}

Try it:
  python -m autotune model=resnet50                   # photographs that come with it
  python -m autotune model=resnet50 data=imagefolder data.root=/data/train
  python -m autotune model=tiny data=tiny budget=quick

Your own job, importable from the folder you start in, nothing to register:
  python -m autotune model._target_=my.models.build data._target_=my.data.make_dataset \\
      loss._target_=my.losses.focal model.width=2 baseline.num_workers=4

Narrow or widen the search:
  python -m autotune model=resnet50 search_space=loader
  python -m autotune model=resnet50 'search_space.batch_size=[64,128]'

Groups, chosen with GROUP=CHOICE (first the default; more with --config-dir DIR, which
adds DIR/GROUP/CHOICE.yaml):
{groups}

Keys most often set, with their defaults (all of them: add --cfg):
{keys}
  {baseline_key}your own settings, such as baseline.batch_size=64
  {space_key}values to try, in brackets; null: leave it alone

Values that hold = # ; ~ ( ) need quotes inside quotes: 'data.root="/data/a=b"'

Options:
  --cfg              print the whole configuration as YAML, and stop
  --config-dir DIR   a folder with your own files for the groups (may be repeated)
  --version          print the version, and stop
  -h, --help         print this, and stop

Results go to {output}/NAME-DATE-TIME/ below the folder you start in:
  tuned.yaml    the settings, for autotune.load_tuned("tuned.yaml")
  summary.md    the whole story, with every trial
and to MLflow; the command and the address that show it are printed at the end. Ctrl-C
once ends the search and keeps the best so far; twice stops at once. On the screen bs is
batch_size, w num_workers, pin pin_memory, pf prefetch_factor.

Exit codes: 0 done, whatever the verdict; 1 the job, the machine or the budget did not
allow it; 2 a setting or word is wrong; 130 interrupted with nothing to show.
"""


def usage(choices: Choices) -> str:
    """Return the short usage with the models that can be named."""
    models = textwrap.fill(
        "models: " + ", ".join(sorted(choices["model"])), 88, subsequent_indent="        "
    )
    return (
        f"{_USAGE}\n{models}\nexample: python -m autotune model=resnet50\n"
        "your own: python -m autotune model._target_=package.module.function\nmore: --help"
    )


def help_text(choices: Choices, defaults: dict[str, str]) -> str:
    """Return the help.

    Args:
        choices: Every choice of every group.
        defaults: Default choice of the groups that have one.
    """
    return _HELP.format(
        usage=_USAGE,
        groups="\n".join(_group(group, choices, defaults.get(group)) for group in _GROUPS),
        keys="\n".join(_key(*key) for key in _KEYS),
        baseline_key="baseline.KNOB".ljust(30),
        space_key="search_space.KNOB".ljust(30),
        output=OutputConfig().dir,
    )


def _group(group: str, choices: Choices, default: str | None) -> str:
    names = sorted(choices[group], key=lambda name: (name != default, name))
    about = f"  ({_GROUPS[group]})" if _GROUPS[group] else ""
    return textwrap.fill(f"  {group:<14}{', '.join(names)}{about}", 88, subsequent_indent=" " * 16)


def _key(section: str, kind: type, name: str, about: str) -> str:
    default = next(field.default for field in fields(kind) if field.name == name)
    shown = default if isinstance(default, str) else json.dumps(default)
    return f"  {f'{section}.{name}={shown}':<30}{about}"
