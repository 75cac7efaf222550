"""Whether a probe's throughput is that of a plain loop with the same settings.

Each setting is probed and trained by plain.py in turns, each in a fresh process: machines change
within minutes, and two processes with the same settings differ, so what counts is the ratio over
rounds, beside how much the plain loops differ among themselves.

    python experiments/fidelity/run.py --out FOLDER [--rounds 3] [--seconds 20] [--device cuda]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from autotune.cli.compose import compose
from autotune.launch.local import LocalLauncher
from autotune.measurement import Measurement
from autotune.request import TrialRequest
from autotune.settings import Precision, Settings
from autotune.statistics import ratio_estimate
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


class Prober:
    """Measures settings as a study does."""

    def __init__(self, words: list[str], out: Path) -> None:
        config = compose(words).config
        self._out = out
        self._launcher = LocalLauncher()
        self._request = TrialRequest(
            workload=config.workload,
            settings=Settings(batch_size=1),
            probe=config.probe,
            device=config.device,
            seed=config.seed,
            folder=str(out),
            limit_s=config.probe.limit_s,
        )

    def __call__(self, settings: Settings, name: str) -> Measurement:
        """Return one trial's measurement."""
        folder = self._out / name
        folder.mkdir(parents=True)
        request = replace(self._request, settings=settings, folder=str(folder))
        outcome = self._launcher.run(request, lambda stage: None)
        if not isinstance(outcome, Measurement):
            raise SystemExit(f"{name}: {outcome.failure}: {outcome.message}")
        return outcome


def plain(settings: Settings, model: str, seconds: float, device: str) -> dict[str, Any]:
    job = json.dumps({**settings.as_dict(), "model": model})
    script = Path(__file__).with_name("plain.py")
    words = [sys.executable, str(script), job, str(seconds), device]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def spread(rates: list[float]) -> str:
    """Return the standard deviation of the rates' logarithms in percent."""
    if len(rates) < 2:
        return ""
    return f"{100 * statistics.stdev(map(math.log, rates)):.1f} %"


def ratio(probes: list[float], by_hand: list[float]) -> str:
    """Return the geometric mean of the paired ratios with its 95 % interval."""
    found = ratio_estimate(probes, by_hand)
    if found.low is None or found.high is None:
        return f"{found.value:.3f}"
    return f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="new folder for the results")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each plain loop")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True)
    ensure_photos(2000, 0, lambda done, total: None)
    prober = Prober(
        [f"model={arguments.model}", f"device={arguments.device}"], arguments.out.absolute()
    )
    settings_by_name = ON_CPU if arguments.device == "cpu" else ON_DEVICE
    chosen = {
        name: settings
        for name, settings in settings_by_name.items()
        if not arguments.only or name in arguments.only
    }
    seen: dict[str, list[Measurement]] = {name: [] for name in chosen}
    by_hand: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    for turn in range(arguments.rounds):
        for name, settings in chosen.items():
            hand = partial(plain, settings, arguments.model, arguments.seconds, arguments.device)
            if turn % 2:
                by_hand[name].append(hand())
            seen[name].append(prober(settings, f"{name.replace(' ', '-').replace(',', '')}-{turn}"))
            if not turn % 2:
                by_hand[name].append(hand())
        text = table(chosen, seen, by_hand)
        (arguments.out / "fidelity.md").write_text(text + "\n")
        raw = {
            name: {
                "settings": chosen[name].as_dict(),
                "plain": by_hand[name],
                "probe": [asdict(each.window.throughput) for each in seen[name]],
            }
            for name in chosen
        }
        (arguments.out / "fidelity.json").write_text(json.dumps(raw, indent=1))
        print(f"round {turn + 1}\n{text}", flush=True)


def table(
    chosen: dict[str, Settings],
    seen: dict[str, list[Measurement]],
    by_hand: dict[str, list[dict[str, Any]]],
) -> str:
    """Return the outcome as Markdown."""
    lines = [
        "| setting | batch | waited | probes, samples/s | plain loops, samples/s "
        "| probes differ | plain loops differ | probe / plain |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, settings in chosen.items():
        probes = [each.window.samples_per_s for each in seen[name]]
        hands = [each["rate"] for each in by_hand[name]]
        waited = statistics.mean(each.window.stall_share for each in seen[name])
        lines.append(
            f"| {name} | {settings.batch_size} | {waited:.0%} "
            f"| {', '.join(f'{rate:.0f}' for rate in probes)} "
            f"| {', '.join(f'{rate:.0f}' for rate in hands)} "
            f"| {spread(probes)} | {spread(hands)} | {ratio(probes, hands)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
