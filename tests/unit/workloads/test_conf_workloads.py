"""The YAML files of the groups model, data, loss and optimizer build what they say."""

from pathlib import Path

import pytest
import torch
import yaml

from autotune.config import WorkloadSpec
from autotune.paths import conf_folder
from autotune.workloads.build import build_workload
from autotune.workloads.forward import forward_loss
from autotune.workloads.resident import ResidentImages

GROUPS = {
    "model": {
        "convnext_tiny",
        "custom",
        "mobilenet_v3_small",
        "resnet18",
        "resnet50",
        "tiny",
        "torchvision",
        "vit_b_16",
    },
    "data": {"custom", "imagefolder", "photos", "resident", "tiny"},
    "loss": {"cross_entropy", "custom", "none"},
    "optimizer": {"adamw", "custom", "sgd"},
}


def read(group: str, name: str) -> dict:
    return yaml.safe_load((conf_folder() / group / f"{name}.yaml").read_text())


def workload(*, model="tiny", data="tiny", loss="cross_entropy", optimizer="sgd", **data_values):
    values = read("data", data) | data_values
    return build_workload(
        WorkloadSpec(
            model=read("model", model),
            collate=values.pop("collate"),
            data=values,
            loss=read("loss", loss),
            optimizer=read("optimizer", optimizer),
        )
    )


@pytest.mark.parametrize(("group", "names"), GROUPS.items())
def test_choices(group: str, names: set[str]):
    assert {path.stem for path in (conf_folder() / group).glob("*.yaml")} == names


@pytest.mark.parametrize("path", [p for g in GROUPS for p in (conf_folder() / g).glob("*.yaml")])
def test_first_line_says_how_to_choose_it(path: Path):
    first = path.read_text().splitlines()[0]
    group, name = path.parent.name, path.stem
    assert first.startswith(f"# {group}._target_=" if name == "custom" else f"# {group}={name}")


@pytest.mark.parametrize("name", sorted(GROUPS["model"] - {"custom", "torchvision"}))
def test_models(name: str):
    with torch.device("meta"):  # no time for real weights
        model = workload(model=name).build_model()
    weights = list(model.parameters())
    assert weights[-1].shape == (1000,)


@pytest.mark.parametrize("optimizer", sorted(GROUPS["optimizer"] - {"custom"}))
@pytest.mark.parametrize("fused", [True, False])
def test_optimizers(optimizer: str, fused: bool):
    work = workload(optimizer=optimizer)
    built = work.build_optimizer(work.build_model().parameters(), fused=fused)
    assert type(built).__name__.lower() == optimizer
    assert bool(built.defaults["fused"]) is fused


def test_tiny_job_trains():
    work = workload()
    batch = torch.utils.data.default_collate([work.dataset[index] for index in range(4)])
    loss = forward_loss(work, work.build_model(), batch)
    loss.backward()
    assert torch.isfinite(loss)


def test_no_loss():
    assert workload(loss="none").loss is None


def test_photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path))
    work = workload(data="photos", files=2)
    assert len(work.dataset) == 1_281_167
    assert work.dataset[0][0].shape == (3, 224, 224)


def test_resident():
    work = workload(data="resident")
    assert work.resident
    assert isinstance(work.dataset, ResidentImages)


@pytest.mark.parametrize(
    ("group", "name", "key"),
    [
        ("model", "torchvision", "name"),
        ("model", "custom", "_target_"),
        ("data", "custom", "_target_"),
        ("data", "imagefolder", "root"),
    ],
)
def test_what_the_user_must_give(group: str, name: str, key: str):
    assert read(group, name)[key] == "???"
