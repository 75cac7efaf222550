"""A training loop as anybody would write it by hand, timed with a stopwatch.

Nothing here measures but two synchronisations and a clock. Called by run.py.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision.models import get_model

from autotune.workloads.photos import photos


def main(job: dict[str, Any], seconds: float, device: str) -> dict[str, Any]:
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = job["cudnn_benchmark"]
    if job["precision"] == "fp32":
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
    layout = torch.channels_last if job["channels_last"] else torch.contiguous_format
    model = get_model(job["model"], weights=None).to(device, memory_format=layout)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, fused=job["fused_optimizer"]
    )
    loss_of = nn.CrossEntropyLoss()
    workers = job["num_workers"]
    loader = DataLoader(
        photos(),
        batch_size=job["batch_size"],
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        pin_memory=job["pin_memory"],
        prefetch_factor=job["prefetch_factor"] if workers else None,
        persistent_workers=bool(workers),
    )

    def settle() -> None:
        if device.startswith("cuda"):
            torch.cuda.synchronize()

    # As many batches as the workers can hold ready, and some more, are not counted.
    unmeasured = 3 + 2 * workers * (job["prefetch_factor"] or 0)
    turns: list[tuple[float, int]] = []
    samples = done = 0
    started = turn = 0.0
    for images, labels in loader:
        if done == unmeasured:
            settle()
            started = turn = time.perf_counter()
            samples = 0
        images = images.to(device, memory_format=layout, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        with torch.autocast(
            device.split(":")[0], torch.bfloat16, enabled=job["precision"] == "bf16"
        ):
            loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        samples += len(labels)
        done += 1
        now = time.perf_counter()
        if done > unmeasured:
            if now - turn > 5:
                turns.append((now - started, samples))
                turn = now
            if now - started > seconds:
                break
    settle()
    elapsed = time.perf_counter() - started
    return {"rate": samples / elapsed, "elapsed_s": elapsed, "steps": done, "turns": turns}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]), float(sys.argv[2]), sys.argv[3])))
