"""Whether a probe's throughput is that of a plain loop with the same settings.

Two processes with the same settings differ by more than the 3 % in question, and a machine changes
within minutes. So one process takes the plain loop of plain.py and the probe in turns, each with a
model and a loader of its own: plain, probe, plain, probe, ... plain. Each probe is held against the
geometric mean of the plain loops before and after it, which a steady drift leaves alone; the
interval comes from these ratios.

    python experiments/fidelity/run.py --out FOLDER [--rounds 4] [--seconds 12] [--device cuda]
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from plain import Plain, train

from autotune.cli.compose import compose
from autotune.measurement import Measurement
from autotune.request import TrialRequest
from autotune.settings import Precision, Settings, settings_from_mapping
from autotune.statistics import ratio_estimate
from autotune.trial.probe import Probe
from autotune.workloads.build import build_workload
from autotune.workloads.photos import ensure_photos

BF16 = Precision.BF16


def loaded(workers: int, batch_size: int, **others: Any) -> Settings:
    if workers == 0:
        return Settings(batch_size=batch_size, **others)
    return Settings(
        batch_size=batch_size,
        num_workers=workers,
        prefetch_factor=2,
        persistent_workers=True,
        **others,
    )


ON_DEVICE = {
    "no workers": loaded(0, 32),
    "4 workers": loaded(4, 64, precision=BF16),
    "8 workers, pinned": loaded(8, 128, pin_memory=True, precision=BF16),
    "16 workers, pinned": loaded(
        16, 256, pin_memory=True, precision=BF16, channels_last=True, cudnn_benchmark=True
    ),
    "small batch": loaded(12, 16, pin_memory=True, precision=BF16),
    "strict fp32": loaded(12, 128, pin_memory=True, precision=Precision.FP32),
}
ON_CPU = {
    "no workers": loaded(0, 4),
    "1 worker": loaded(1, 4),
    "2 workers": loaded(2, 8),
}


@dataclass(frozen=True)
class Series:
    """One setting's rates in samples/s.

    Attributes:
        plain: Of the plain loops, one more than probes.
        probes: Of the probes, each between two plain loops.
        waited: Mean share of the probes' windows without a batch.
        ends_s: Of the plain loops' steps, by loop.
        step_s: Of the probes' windows, by window.
    """

    plain: tuple[float, ...]
    probes: tuple[float, ...]
    waited: float
    ends_s: tuple[tuple[float, ...], ...]
    step_s: tuple[tuple[float, ...], ...]

    @property
    def neighbours(self) -> list[float]:
        """What each probe is held against."""
        return [math.sqrt(a * b) for a, b in zip(self.plain, self.plain[1:], strict=False)]


def probe(words: list[str], settings: Settings, out: Path) -> Measurement:
    """Measure settings as a trial does, in this process."""
    config = compose(words).config
    request = TrialRequest(
        workload=config.workload,
        settings=settings,
        probe=config.probe,
        device=config.device,
        seed=config.seed,
        folder=str(out),
        limit_s=config.probe.limit_s,
    )
    return Probe(request, torch.device(config.device), 0.0, lambda stage: None).run(
        build_workload(request.workload)
    )


def series(
    settings: Settings, *, model: str, device: str, rounds: int, seconds: float, out: Path
) -> Series:
    """Take plain loop and probe in turns, in this process."""

    def by_hand() -> Plain:
        gc.collect()  # the probe before: its loader's workers end here
        return train(settings, model, device, seconds)

    plain, seen = [by_hand()], []
    for _ in range(rounds):
        gc.collect()
        seen.append(probe([f"model={model}", f"device={device}"], settings, out).window)
        plain.append(by_hand())
    return Series(
        plain=tuple(each.samples_per_s for each in plain),
        probes=tuple(window.samples_per_s for window in seen),
        waited=statistics.mean(window.stall_share for window in seen),
        ends_s=tuple(each.ends_s for each in plain),
        step_s=tuple(tuple(window.step_s) for window in seen),
    )


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def spread(rates: tuple[float, ...]) -> str:
    """Return the standard deviation of the rates' logarithms in percent."""
    return f"{100 * statistics.stdev(map(math.log, rates)):.1f} %"


def table(found: dict[str, Series], settings_by_name: dict[str, Settings]) -> str:
    """Return the outcome as Markdown."""
    lines = [
        "| setting | batch | waited | probes, samples/s | plain loops, samples/s "
        "| probes differ | plain loops differ | probe / plain |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, each in found.items():
        ratio = ratio_estimate(each.probes, each.neighbours)
        interval = (
            ""
            if ratio.low is None or ratio.high is None
            else f" ({ratio.low:.3f} to {ratio.high:.3f})"
        )
        lines.append(
            f"| {name} | {settings_by_name[name].batch_size} | {each.waited:.0%} "
            f"| {', '.join(f'{rate:.4g}' for rate in each.probes)} "
            f"| {', '.join(f'{rate:.4g}' for rate in each.plain)} "
            f"| {spread(each.probes)} | {spread(each.plain)} | {ratio.value:.3f}{interval} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=12.0, help="of each plain loop")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--only", nargs="*", default=[], help="settings by name")
    parser.add_argument(
        "--settings", help="measure these here and print the rates (used by itself)"
    )
    arguments = parser.parse_args()
    if arguments.settings is not None:
        here = series(
            settings_from_mapping(json.loads(arguments.settings), prefix="settings"),
            model=arguments.model,
            device=arguments.device,
            rounds=arguments.rounds,
            seconds=arguments.seconds,
            out=arguments.out,
        )
        print(json.dumps(asdict(here)), flush=True)
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    ensure_photos(2000, 0, lambda done, total: None)
    settings_by_name = ON_CPU if arguments.device == "cpu" else ON_DEVICE
    results = arguments.out / "fidelity.json"
    raw = json.loads(results.read_text()) if results.exists() else {}
    for name, settings in settings_by_name.items():
        if arguments.only and name not in arguments.only:
            continue
        words = [sys.executable, *sys.argv, "--settings", json.dumps(settings.as_dict())]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        raw[name] = json.loads(done.stdout.splitlines()[-1])
        results.write_text(json.dumps(raw))
        found = {
            each: Series(**{key: _frozen(value) for key, value in rates.items()})
            for each, rates in raw.items()
        }
        text = table(found, settings_by_name)
        (arguments.out / "fidelity.md").write_text(text + "\n")
        print(text, flush=True)


if __name__ == "__main__":
    main()
