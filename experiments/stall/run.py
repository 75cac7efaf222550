"""Does an injected loader delay show up as stall, and a hidden one as nothing?

    python experiments/stall/run.py --out autotune_runs/stall

Steps of about 20 ms run behind loaders whose batches take a given time longer. Where the delay is:

- `step`: the training process itself sleeps before each batch (no workers). On a CPU nothing can
  hide it; on a GPU, the work queued on the device hides what is shorter than a step.
- `worker`: one DataLoader worker sleeps before each batch, while the step runs.

Each row is one timed window of the same real training step that a trial runs. Intervals are 95 %
intervals of the mean over the window's blocks.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from autotune.loader import build_loader, endless
from autotune.measure.device import device_info, resolve_device, synchronize
from autotune.measure.timers import make_timer
from autotune.measure.window import StopRule, run_window, steps_per_block
from autotune.measurement import Phase, Window
from autotune.settings import Settings
from autotune.statistics import Estimate, block_means, mean_estimate
from autotune.trial.job import TrainingJob
from autotune.trial.loading import drain
from autotune.workloads.workload import Workload

BATCH = 8
STEP_MS = 20.0
DELAYS_MS = (0.0, 5.0, 10.0, 20.0, 40.0, 60.0)
WINDOW_S = 1.5


class Delayed(Dataset[torch.Tensor]):
    """Samples of which the first of each batch takes `delay_ms` longer, slept away."""

    def __init__(self, delay_ms: float) -> None:
        self._delay_s = delay_ms / 1e3
        self._samples = torch.randn(BATCH * 4096, 64)

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % BATCH == 0 and self._delay_s:
            time.sleep(self._delay_s)
        return self._samples[index]


class Products(torch.nn.Module):
    """As many matrix products as asked for; all other work is small beside them."""

    matrix: torch.Tensor

    def __init__(self, products: int, size: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 1)
        self.register_buffer("matrix", torch.randn(size, size) / size)
        self._products = products

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Return a loss."""
        product = self.matrix
        with torch.no_grad():
            for _ in range(self._products):
                product = product @ self.matrix
        loss: torch.Tensor = self.layer(batch).mean() + product.mean()
        return loss


@dataclass(frozen=True)
class Row:
    """One window. Milliseconds per step."""

    delay_in: str
    delay_ms: float
    steps: int
    step: Estimate
    stall: Estimate
    host_wait: Estimate
    forward: Estimate
    untimed_share: float


def job_of(products: int, size: int, dataset: Dataset[Any], device: torch.device) -> TrainingJob:
    return TrainingJob(workload(products, size, dataset), Settings(batch_size=BATCH), device, 0)


def workload(products: int, size: int, dataset: Dataset[Any]) -> Workload:
    return Workload(
        dataset=dataset,
        collate=None,
        build_model=lambda: Products(products, size),
        loss=None,
        build_optimizer=lambda parameters, fused: torch.optim.SGD(parameters, lr=1e-3),
        shuffle=False,  # the delay sits in each batch's first sample
        drop_last=True,
        resident=False,
    )


def calibrated(size: int, device: torch.device) -> int:
    """Return how many products take about `STEP_MS` on the device."""
    products = 4
    for _ in range(2):  # the first look is taken while clocks and caches are cold
        job = job_of(products, size, Delayed(0.0), device)
        batches = repeated(device)
        for _ in range(3):
            job.step(batches, make_timer(device))
        synchronize(device)
        started = time.perf_counter()
        for _ in range(5):
            job.step(batches, make_timer(device))
        synchronize(device)
        step_ms = 1e3 * (time.perf_counter() - started) / 5
        products = max(1, round(products * STEP_MS / step_ms))
    return products


def repeated(device: torch.device) -> Iterator[torch.Tensor]:
    batch = torch.randn(BATCH, 64, device=device)
    while True:
        yield batch


def measure(delay_in: str, delay_ms: float, products: int, size: int, device: torch.device) -> Row:
    settings = Settings(
        batch_size=BATCH,
        num_workers=0 if delay_in == "step" else 1,
        prefetch_factor=None if delay_in == "step" else 2,
    )
    dataset = Delayed(delay_ms)
    job = job_of(products, size, dataset, device)
    wait = partial(synchronize, device)
    loader = build_loader(workload(products, size, dataset), settings, seed=0)
    with closing(endless(loader)) as batches:
        step = partial(job.step, batches)
        drained = drain(
            step, timer=make_timer(device), settings=settings, cap_s=2.0, synchronize=wait
        )
        window = run_window(
            step,
            timer=make_timer(device),
            rule=StopRule(
                rel_halfwidth=1e-9,  # to the time cap, for windows alike
                cap_s=WINDOW_S,
                min_blocks=4,
                min_steps=8,
                steps_per_block=steps_per_block(settings.num_workers, drained.step_s),
            ),
            synchronize=wait,
        )
    return row_of(delay_in, delay_ms, window)


def row_of(delay_in: str, delay_ms: float, window: Window) -> Row:
    def mean_ms(seconds: Sequence[float]) -> Estimate:
        return mean_estimate([1e3 * mean for mean in block_means(seconds, window.steps_per_block)])

    return Row(
        delay_in=delay_in,
        delay_ms=delay_ms,
        steps=window.steps,
        step=mean_ms(window.step_s),
        stall=mean_ms(window.stall_s),
        host_wait=mean_ms(window.host_wait_s),
        forward=mean_ms(window.phase_s[Phase.FORWARD]),
        untimed_share=window.untimed_share,
    )


def markdown(rows: Sequence[Row]) -> str:
    def shown(estimate: Estimate) -> str:
        if estimate.low is None or estimate.high is None:
            return f"{estimate.value:.2f}"
        return f"{estimate.value:.2f} ± {(estimate.high - estimate.low) / 2:.2f}"

    lines = [
        "| delay in | delay, ms | stall, ms | host wait, ms | forward, ms | step, ms | untimed |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        figures = (row.stall, row.host_wait, row.forward, row.step)
        cells = " | ".join(shown(figure) for figure in figures)
        untimed = f"{100 * row.untimed_share:.2f} %"
        lines.append(f"| {row.delay_in} | {row.delay_ms:g} | {cells} | {untimed} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for result.json and .md")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, xpu, or such as cuda:1")
    arguments = parser.parse_args()
    device = resolve_device(arguments.device)
    torch.set_num_threads(1)  # leaves a core to the worker
    size = 384 if device.type == "cpu" else 4096
    products = calibrated(size, device)
    rows = [
        measure(delay_in, delay_ms, products, size, device)
        for delay_in in ("step", "worker")
        for delay_ms in DELAYS_MS
    ]
    table = markdown(rows)
    head = (
        f"{device_info(device).name}, {platform.platform()}, Python {platform.python_version()}, "
        f"torch {torch.__version__}; {products} products of {size} x {size} in a step"
    )
    print(f"{head}\n\n{table}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "result.md").write_text(f"{head}\n\n{table}\n")
    result = {"machine": head, "rows": [asdict(row) for row in rows]}
    (arguments.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
