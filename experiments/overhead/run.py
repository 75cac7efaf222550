"""What measuring costs: the same training step plain and instrumented, in turns, in one process.

Loops over one batch that stays on the device, moved there all the same as any loop does with what
its loader gives:
  plain    a loop as in a tutorial, no clocks
  probe    the probe's own step (autotune.trial.job) with its timer
  marks    the plain loop with the probe's timer at each phase
  timer    the plain loop with a StepTimer's phases
  sync     the plain loop with a synchronisation and a host clock at each phase, as tutorials do
  again    the plain loop once more: the control; its cost is the error of the method

    python experiments/overhead/run.py --out FOLDER [--device cuda] [--seconds 20]
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import platform
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import autotune
from autotune.measure.device import resolve_device, synchronize
from autotune.measure.timers import Mark, make_timer
from autotune.settings import Settings
from autotune.statistics import geometric_mean_estimate
from autotune.trial.job import TrainingJob
from autotune.workloads.workload import Workload

BLOCK_S = 0.05
"""Short, so that neighbours share whatever the machine is up to."""
Step = Callable[[], None]
Block = Callable[[int], None]


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )


def resnet50() -> nn.Module:
    from torchvision.models import get_model

    model: nn.Module = get_model("resnet50", weights=None)
    return model


JOBS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "MLP, batch 128": (mlp, (256,), 128),
    "ResNet-50, batch 16": (resnet50, (3, 224, 224), 16),
    "ResNet-50, batch 128": (resnet50, (3, 224, 224), 128),
}


def loops(
    build: Callable[[], nn.Module], shape: tuple[int, ...], batch_size: int, device: torch.device
) -> dict[str, Block]:
    """Return what runs a number of steps, by name."""
    inputs = torch.randn(batch_size, *shape, device=device)
    target = torch.randint(0, 10, (batch_size,), device=device)
    model = build().to(device).train()
    loss_of = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def arrived() -> tuple[torch.Tensor, torch.Tensor]:
        return inputs.to(device, non_blocking=True), target.to(device, non_blocking=True)

    def plain(steps: int) -> None:
        for _ in range(steps):
            images, labels = arrived()
            loss = loss_of(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def marks(steps: int) -> None:
        timer = make_timer(device)
        timer.begin()
        for _ in range(steps):
            timer.mark(Mark.FETCHED)
            images, labels = arrived()
            timer.mark(Mark.COPIED)
            loss = loss_of(model(images), labels)
            timer.mark(Mark.FORWARD)
            loss.backward()
            timer.mark(Mark.BACKWARD)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            timer.mark(Mark.OPTIMIZER)

    kept = autotune.StepTimer(device)

    def timer(steps: int) -> None:
        for _ in range(steps):
            images, labels = arrived()
            with kept.phase("forward"):
                loss = loss_of(model(images), labels)
            with kept.phase("backward"):
                loss.backward()
            with kept.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            kept.step()

    def sync(steps: int) -> None:
        seconds = [0.0] * 3
        for _ in range(steps):
            images, labels = arrived()
            synchronize(device)
            began = time.perf_counter()
            loss = loss_of(model(images), labels)
            synchronize(device)
            seconds[0] += time.perf_counter() - began
            began = time.perf_counter()
            loss.backward()
            synchronize(device)
            seconds[1] += time.perf_counter() - began
            began = time.perf_counter()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            synchronize(device)
            seconds[2] += time.perf_counter() - began

    job = _job(build, shape, batch_size, device)
    batches = itertools.repeat((inputs, target))

    def probe(steps: int) -> None:
        timer = make_timer(device)
        timer.begin()
        for _ in range(steps):
            job.step(batches, timer)

    return {
        "plain": plain,
        "probe": probe,
        "marks": marks,
        "timer": timer,
        "sync": sync,
        "again": plain,
    }


def _job(
    build: Callable[[], nn.Module], shape: tuple[int, ...], batch_size: int, device: torch.device
) -> TrainingJob:
    data: Dataset[Any] = TensorDataset(torch.zeros(1, *shape), torch.zeros(1, dtype=torch.long))
    workload = Workload(
        dataset=data,
        collate=None,
        build_model=build,
        loss=nn.CrossEntropyLoss(),
        build_optimizer=lambda parameters, fused: torch.optim.SGD(
            parameters, lr=0.01, momentum=0.9
        ),
        shuffle=False,
        drop_last=True,
        resident=True,
    )
    return TrainingJob(workload, Settings(batch_size=batch_size), device, seed=0)


def timed(block: Block, steps: int, device: torch.device) -> float:
    synchronize(device)
    began = time.perf_counter()
    block(steps)
    synchronize(device)
    return (time.perf_counter() - began) / steps


def measure(blocks: dict[str, Block], device: torch.device, seconds: float) -> dict[str, Any]:
    """Time the loops in turns, in a new random order each round."""
    for block in blocks.values():
        timed(block, 3, device)
    step_s = min(timed(blocks["plain"], 5, device) for _ in range(3))
    steps = max(1, round(BLOCK_S / step_s))
    order, rng = list(blocks), random.Random(0)
    rounds: list[dict[str, float]] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(rounds) < 5:
        rng.shuffle(order)
        rounds.append({name: timed(blocks[name], steps, device) for name in order})
    found: dict[str, Any] = {"rounds": len(rounds), "steps_per_block": steps, "loops": {}}
    for name in blocks:
        ratio = geometric_mean_estimate([each[name] / each["plain"] for each in rounds])
        found["loops"][name] = {
            "step_ms": 1e3 * math.exp(sum(math.log(each[name]) for each in rounds) / len(rounds)),
            "cost_percent": 100 * (ratio.value - 1),
            "low_percent": None if ratio.low is None else 100 * (ratio.low - 1),
            "high_percent": None if ratio.high is None else 100 * (ratio.high - 1),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for overhead.json and .md")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=20.0, help="per job")
    parser.add_argument("--jobs", nargs="*", default=list(JOBS), choices=list(JOBS), metavar="JOB")
    arguments = parser.parse_args()
    device = resolve_device(arguments.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    results: dict[str, Any] = {"device": name, "torch": torch.__version__, "jobs": {}}
    lines = [
        f"Device: {name}; torch {torch.__version__}; cost against `plain`, 95 % interval.",
        "",
        "| job | loop | step, ms | cost |",
        "| --- | --- | ---: | ---: |",
    ]
    for label in arguments.jobs:
        build, shape, batch_size = JOBS[label]
        found = measure(loops(build, shape, batch_size, device), device, arguments.seconds)
        results["jobs"][label] = found
        for loop, each in found["loops"].items():
            cost = "" if loop == "plain" else f"{each['cost_percent']:+.2f} %"
            if each["low_percent"] is not None and loop != "plain":
                cost += f" ({each['low_percent']:+.2f} to {each['high_percent']:+.2f})"
            lines.append(f"| {label} | {loop} | {each['step_ms']:.3f} | {cost} |")
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "overhead.json").write_text(json.dumps(results, indent=1))
    (arguments.out / "overhead.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
