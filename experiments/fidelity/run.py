"""Whether a probe's throughput is that of a plain loop with the same settings.

Each setting is probed and then trained by plain.py, in fresh processes, one after the other; the
probe comes once more after it where --twice is given, since machines change within minutes.

    python experiments/fidelity/run.py --out FOLDER [--seconds 60] [--twice] [--device cuda]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from autotune.cli.compose import compose
from autotune.launch.local import LocalLauncher
from autotune.measurement import Measurement
from autotune.request import TrialRequest
from autotune.settings import Precision, Settings
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="new folder for the results")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each plain loop")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True)
    ensure_photos(2000, 0, lambda done, total: None)
    prober = Prober(
        [f"model={arguments.model}", f"device={arguments.device}"], arguments.out.absolute()
    )
    settings_by_name = ON_CPU if arguments.device == "cpu" else ON_DEVICE
    lines = [
        "| setting | batch | waited | device ceiling | probe, samples/s | plain loop | ratio |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    results = []
    for name, settings in settings_by_name.items():
        if arguments.only and name not in arguments.only:
            continue
        seen = [prober(settings, name)]
        by_hand = plain(settings, arguments.model, arguments.seconds, arguments.device)
        if arguments.twice:
            seen.append(prober(settings, f"{name} again"))
        rates = [each.window.throughput for each in seen]
        results.append(
            {
                "name": name,
                "settings": settings.as_dict(),
                "plain": by_hand,
                "probe": [[rate.value, rate.low, rate.high] for rate in rates],
            }
        )
        shown = "; ".join(f"{r.value:.0f} ({r.low or 0:.0f} to {r.high or 0:.0f})" for r in rates)
        mean = sum(rate.value for rate in rates) / len(rates)
        ceiling = seen[0].device_ceiling
        lines.append(
            f"| {name} | {settings.batch_size} | {seen[0].window.stall_share:.0%} "
            f"| {ceiling.value if ceiling else 0:.0f} | {shown} | {by_hand['rate']:.0f} "
            f"| {mean / by_hand['rate']:.3f} |"
        )
        print(lines[-1], flush=True)
        (arguments.out / "fidelity.json").write_text(json.dumps(results, indent=1))
        (arguments.out / "fidelity.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
