import functools
import sys
from pathlib import Path

import pytest
import torch

from autotune.config import LoaderConfig, WorkloadSpec
from autotune.errors import ConfigError, UnsupportedSetting, WorkloadError
from autotune.workloads.build import build_workload

JOB = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from autotune.workloads.tiny import TinyImages

calls = []

class Net(torch.nn.Linear):
    def __init__(self, width=2):
        super().__init__(width, 2)
        calls.append("model")

class Squares:
    def __init__(self, length=4, transform=None):
        self.length, self.transform = length, transform
    def __len__(self): return self.length
    def __getitem__(self, index): return torch.tensor([index, index**2.0]), 0

class Stream(IterableDataset):
    def __iter__(self): return iter([torch.zeros(2)])

class NoLength:
    def __getitem__(self, index): return index

class Loss:
    def __init__(self, scale=1.0): self.scale = scale
    def __call__(self, output, target): return self.scale * output.sum()

class Plain(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1): super().__init__(params, {"lr": lr})
    def step(self, closure=None): pass

def scaled_loss(output, target, scale=1.0): return scale * output.sum()
def first(samples, factor=1): return factor * samples[0][0]
def loader(): return DataLoader(Squares())
def splits(): return Squares(), Squares()
def nothing(): return None
def raises(): raise KeyError("no such split: 'trian'")
def leaves(): sys.exit("usage: train.py --data DIR")
def picky_optimizer(params, fused=False):
    if fused: raise RuntimeError("fused=True is not supported on this device")
    return torch.optim.SGD(params, lr=0.1)
not_callable = 3
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A module of the user's that is found only through the current folder."""
    (tmp_path / "my_job.py").write_text(JOB)
    (tmp_path / "my_script.py").write_text("import sys\nsys.exit(2)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("my_job", None)


def spec(**parts) -> WorkloadSpec:
    values = {
        "model": {"_target_": "my_job.Net"},
        "data": {"_target_": "my_job.Squares"},
        "collate": None,
        "loss": {"_target_": "torch.nn.CrossEntropyLoss"},
        "optimizer": {"_target_": "torch.optim.SGD", "lr": 0.5},
    }
    return WorkloadSpec(**{**values, **parts})


def message(error: type[Exception], **parts) -> str:
    with pytest.raises(error) as caught:
        build_workload(spec(**parts))
    return str(caught.value)


@pytest.mark.usefixtures("job")
class TestModel:
    def test_is_new_each_time_and_gets_its_arguments(self):
        workload = build_workload(spec(model={"_target_": "my_job.Net", "width": 7}))
        one, two = workload.build_model(), workload.build_model()
        assert one is not two
        assert one.in_features == 7

    def test_is_built_late(self):
        workload = build_workload(spec())
        assert sys.modules["my_job"].calls == []
        workload.build_model()
        assert sys.modules["my_job"].calls == ["model"]

    @pytest.mark.parametrize(
        ("target", "words"),
        [
            ("my_job.nothing", ["model:", "my_job.nothing", "None", "torch.nn.Module"]),
            ("my_job.Squares", ["model:", "a my_job.Squares", "torch.nn.Module"]),
            ("my_job.raises", ["model:", "KeyError", "no such split: 'trian'"]),
            ("my_job.leaves", ["model:", "my_job.leaves", "sys.exit", "usage: train.py"]),
        ],
    )
    def test_that_is_none_or_fails(self, target: str, words: list[str]):
        workload = build_workload(spec(model={"_target_": target}))
        with pytest.raises(WorkloadError) as caught:
            workload.build_model()
        assert [word for word in words if word not in str(caught.value)] == []

    def test_unknown_argument_is_told_in_the_users_words(self):
        workload = build_workload(spec(model={"_target_": "my_job.Net", "widht": 7}))
        with pytest.raises(WorkloadError, match=r"model: my_job\.Net failed: TypeError.*widht"):
            workload.build_model()

    def test_unknown_torchvision_name_gives_the_nearest(self):
        text = message(
            ConfigError, model={"_target_": "torchvision.models.get_model", "name": "resnet5O"}
        )
        assert "model.name: got 'resnet5O'" in text
        assert "'resnet50'" in text

    def test_torchvision_name_is_built(self):
        model = {"_target_": "torchvision.models.get_model", "name": "ResNet18", "weights": None}
        assert build_workload(spec(model=model)).build_model().fc.out_features == 1000


@pytest.mark.usefixtures("job")
class TestNames:
    @pytest.mark.parametrize("key", ["model", "data", "collate", "loss", "optimizer"])
    def test_missing_module_names_the_key_and_the_folder(self, key: str, tmp_path: Path):
        text = message(WorkloadError, **{key: {"_target_": "my_jbo.thing"}})
        assert text.startswith("data.collate:" if key == "collate" else f"{key}:")
        assert "my_jbo.thing" in text
        assert str(tmp_path) in text

    def test_missing_function(self):
        text = message(WorkloadError, loss={"_target_": "my_job.scaled_los"})
        assert "my_job has no 'scaled_los'" in text
        assert "Did you mean 'my_job.scaled_loss'?" in text

    def test_module_that_fails_keeps_its_own_words(self, tmp_path: Path):
        (tmp_path / "my_broken_job.py").write_text("import a_package_that_is_absent\n")
        text = message(WorkloadError, model={"_target_": "my_broken_job.Net"})
        assert "No module named 'a_package_that_is_absent'" in text

    def test_not_callable(self):
        assert "callable" in message(WorkloadError, loss={"_target_": "my_job.not_callable"})

    def test_script_that_ends_the_process_when_imported(self):
        text = message(WorkloadError, data={"_target_": "my_script.make"})
        assert "data:" in text
        assert "sys.exit(2)" in text

    def test_all_are_found_before_the_first_is_called(self):
        text = message(
            WorkloadError,
            data={"_target_": "my_job.raises"},
            optimizer={"_target_": "my_job.Missing"},
        )
        assert text.startswith("optimizer:")


@pytest.mark.usefixtures("job")
class TestData:
    def test_duck_typed_dataset_with_nested_target(self):
        nested = {"_target_": "torch.nn.Linear", "in_features": 2, "out_features": 1}
        data = {"_target_": "my_job.Squares", "length": 9, "transform": nested}
        workload = build_workload(spec(data=data))
        assert len(workload.dataset) == 9
        assert isinstance(workload.dataset.transform, torch.nn.Linear)

    def test_failing_nested_target(self):
        nested = {"_target_": "my_job.raises"}
        data = {"_target_": "my_job.Squares", "transform": nested}
        assert "trian" in message(WorkloadError, data=data)

    def test_missing_nested_target(self):
        data = {"_target_": "my_job.Squares", "transform": {"_target_": "my_job.absent"}}
        assert "my_job.absent" in message(WorkloadError, data=data)

    def test_stream(self):
        workload = build_workload(spec(data={"_target_": "my_job.Stream"}))
        assert not workload.resident

    @pytest.mark.parametrize(
        ("target", "words"),
        [
            ("my_job.loader", ["data:", "DataLoader", "Return the dataset", "data.collate"]),
            ("my_job.splits", ["data:", "a tuple", "one dataset"]),
            ("my_job.nothing", ["data:", "None", "IterableDataset"]),
            ("my_job.NoLength", ["data:", "NoLength", "__len__"]),
            ("my_job.raises", ["data:", "my_job.raises", "KeyError", "trian"]),
            ("my_job.leaves", ["data:", "sys.exit", "usage"]),
        ],
    )
    def test_that_is_none_or_fails(self, target: str, words: list[str]):
        text = message(WorkloadError, data={"_target_": target})
        assert [word for word in words if word not in text] == []

    def test_empty(self):
        text = message(WorkloadError, data={"_target_": "my_job.Squares", "length": 0})
        assert "empty" in text

    def test_own_errors_pass_as_they_are(self):
        data = {"_target_": "autotune.workloads.imagefolder.imagefolder", "root": "absent"}
        assert message(ConfigError, data=data).startswith("data.root: got 'absent'")

    def test_resident(self):
        data = {"_target_": "autotune.workloads.resident.resident", "image_size": 8}
        workload = build_workload(spec(data=data))
        assert workload.resident
        image, label = workload.dataset[1001]
        assert (tuple(image.shape), label) == ((3, 8, 8), 1)

    def test_loader_options_are_kept(self):
        workload = build_workload(spec(loader=LoaderConfig(shuffle=False, drop_last=False)))
        assert (workload.shuffle, workload.drop_last) == (False, False)


@pytest.mark.usefixtures("job")
class TestLossAndCollate:
    def test_class_is_built(self):
        loss = build_workload(spec(loss={"_target_": "my_job.Loss", "scale": 3.0})).loss
        assert loss(torch.ones(2), None) == 6.0

    def test_function_is_used_as_it_is(self):
        loss = build_workload(spec(loss={"_target_": "my_job.scaled_loss"})).loss
        assert loss is sys.modules["my_job"].scaled_loss

    def test_function_with_arguments_bound(self):
        loss = build_workload(spec(loss={"_target_": "my_job.scaled_loss", "scale": 3.0})).loss
        assert type(loss) is functools.partial
        assert loss(torch.ones(2), None) == 6.0

    def test_collate(self):
        collate = {"_target_": "my_job.first", "factor": 2}
        workload = build_workload(spec(collate=collate))
        assert workload.collate([(torch.ones(1), 0)]) == 2.0

    @pytest.mark.parametrize("none", [None, {"_target_": None}])
    def test_none(self, none):
        workload = build_workload(spec(loss=none, collate=none))
        assert workload.loss is None
        assert workload.collate is None

    def test_instance_that_cannot_be_called(self):
        text = message(WorkloadError, loss={"_target_": "my_job.Squares"})
        assert "loss: my_job.Squares returned a my_job.Squares" in text


@pytest.mark.usefixtures("job")
class TestOptimizer:
    parameters = (torch.nn.Parameter(torch.ones(1)),)

    def test_gets_its_arguments(self):
        optimizer = build_workload(spec()).build_optimizer(self.parameters)
        assert type(optimizer) is torch.optim.SGD
        assert optimizer.defaults["lr"] == 0.5
        assert not optimizer.defaults["fused"]

    def test_fused(self):
        optimizer = build_workload(spec()).build_optimizer(self.parameters, fused=True)
        assert optimizer.defaults["fused"] is True

    def test_without_fused(self):
        workload = build_workload(spec(optimizer={"_target_": "my_job.Plain"}))
        assert workload.build_optimizer(self.parameters).defaults["lr"] == 0.1
        with pytest.raises(UnsupportedSetting, match=r"fused_optimizer: my_job\.Plain.*'fused'"):
            workload.build_optimizer(self.parameters, fused=True)

    def test_fused_that_torch_refuses_here(self):
        workload = build_workload(spec(optimizer={"_target_": "my_job.picky_optimizer"}))
        with pytest.raises(UnsupportedSetting, match="not supported on this device"):
            workload.build_optimizer(self.parameters, fused=True)

    def test_fused_as_an_argument_is_refused(self):
        optimizer = {"_target_": "torch.optim.SGD", "fused": True}
        text = message(ConfigError, optimizer=optimizer)
        assert "optimizer.fused" in text
        assert "baseline.fused_optimizer" in text

    def test_bad_argument(self):
        workload = build_workload(spec(optimizer={"_target_": "torch.optim.SGD", "lr": -1}))
        with pytest.raises(WorkloadError, match="optimizer: .*Invalid learning rate: -1"):
            workload.build_optimizer(self.parameters)

    def test_wrong_type(self):
        workload = build_workload(spec(optimizer={"_target_": "builtins.list"}))
        with pytest.raises(WorkloadError, match=r"returned a list; expected a torch\.optim"):
            workload.build_optimizer(self.parameters)
