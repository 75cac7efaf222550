from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
import yaml

from autotune.cli.compose import compose
from autotune.config import Config, SpaceConfig
from autotune.errors import ConfigError
from autotune.settings import CompileMode, Precision

SECTIONS = [
    field.name
    for field in fields(Config)
    if isinstance(field.default_factory, type) and is_dataclass(field.default_factory)
]


def config(*words: str, config_dirs: tuple[Path, ...] = ()) -> Config:
    return compose(words, config_dirs).config


@pytest.fixture
def own_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "my conf=1, 'x'"
    for group, name, text in (
        ("model", "mine", "_target_: my.models.build\nwidth: 2\n"),
        ("search_space", "few", "num_workers: [0, 2]\n"),
        ("search_space", "wrong", "workers: [0, 2]\n"),
        ("probe", "broken", "window_s: [1\n"),
    ):
        file = folder / group / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.mark.parametrize("section", SECTIONS)
def test_default_files_say_what_the_dataclasses_say(section: str) -> None:
    found = getattr(config("model=tiny"), section)
    assert found == type(found)()


@pytest.mark.parametrize("key", ["device", "seed"])
def test_default_values_outside_sections(key: str) -> None:
    default = next(field.default for field in fields(Config) if field.name == key)
    assert getattr(config("model=tiny"), key) == default


def test_auto_space_is_one_space_by_kind_of_device() -> None:
    spaces = config("model=tiny").search_spaces
    assert list(spaces) == ["cuda", "cpu"]
    assert spaces["cuda"].pin_memory == (True, False)
    assert spaces["cpu"].pin_memory is None
    assert CompileMode.OFF in (spaces["cuda"].compile or ())


def test_override_reaches_both_spaces_behind_auto() -> None:
    spaces = config("model=tiny", "search_space.batch_size=[64,128]").search_spaces
    assert spaces["cuda"].batch_size == spaces["cpu"].batch_size == (64, 128)


def test_named_space_serves_any_device_and_takes_scalars_off_and_null() -> None:
    spaces = config(
        "model=tiny",
        "search_space=device",
        "search_space.batch_size=64",
        "search_space.precision=bf16",
        "search_space.compile=[off,default]",
        "search_space.channels_last=null",
    ).search_spaces
    assert list(spaces) == ["any"]
    assert spaces["any"].batch_size == (64,)
    assert spaces["any"].precision == (Precision.BF16,)
    assert spaces["any"].compile == (CompileMode.OFF, CompileMode.DEFAULT)
    assert spaces["any"].channels_last is None


def test_own_job_needs_neither_choice_nor_plus() -> None:
    found = config(
        "model._target_=my.models.build",
        "model.width=2",
        "data._target_=my.data.make",
        "data.collate._target_=my.data.collate",
        "data.collate.pad=0",
        "loss._target_=my.losses.focal",
        "loss.gamma=2",
        "optimizer._target_=my.Optimizer",
    )
    assert found.model == {"_target_": "my.models.build", "width": 2}
    assert found.workload.collate == {"_target_": "my.data.collate", "pad": 0}
    assert found.loss == {"_target_": "my.losses.focal", "gamma": 2}
    assert found.optimizer == {"_target_": "my.Optimizer"}, "nothing is left of the default's"


def test_target_of_a_chosen_file_can_be_replaced_and_keeps_its_arguments() -> None:
    found = config("model=tiny", "model._target_=my.models.build")
    assert found.model["_target_"] == "my.models.build"
    assert "width" in found.model


def test_collate_of_our_data_takes_arguments() -> None:
    found = config("model=tiny", "data.collate._target_=my.collate", "data.collate.pad=0")
    assert found.workload.collate == {"_target_": "my.collate", "pad": 0}


def test_new_argument_with_a_plus() -> None:
    assert config("model=resnet50", "+model.dropout=0.1").model["dropout"] == 0.1


def test_no_loss_is_none() -> None:
    assert config("model=tiny", "loss=none").loss is None


def test_quoted_value_reaches_the_config() -> None:
    found = config("model=tiny", "data=imagefolder", "data.root='/data/a=b #1'")
    assert found.data["root"] == "/data/a=b #1"


def test_yaml_text_is_the_config_with_everything_resolved() -> None:
    values = yaml.safe_load(compose(["model=tiny", "budget=quick"]).yaml_text)
    assert values["budget"] == {"minutes": 3.0, "trials": None}
    assert set(values) == {field.name for field in fields(Config)}
    assert set(values["search_spaces"]["cpu"]) == {field.name for field in fields(SpaceConfig)}


def test_own_folder_adds_choices(own_folder: Path) -> None:
    found = config("model=mine", "search_space=few", config_dirs=(own_folder,))
    assert found.model == {"_target_": "my.models.build", "width": 2}
    assert found.search_spaces["any"] == SpaceConfig(num_workers=(0, 2))


def test_composing_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    compose(["model=tiny"])
    assert list(tmp_path.iterdir()) == []
    assert Path.cwd() == tmp_path


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("model=resnet5O", ["model: got 'resnet5O'", "vit_b_16", "Did you mean 'resnet50'?"]),
        ("model=resnet50 data=fotos", ["data: got 'fotos'", "Did you mean 'photos'?"]),
        ("serach_space=x", ["serach_space: got 'x'", "Did you mean 'search_space'?"]),
        ("model=tiny +foo=1", ["foo: got 1", "allowed: the keys model, data"]),
        (
            "model=tiny budget.minuts=3",
            ["budget.minuts: got 3", "minutes, trials", "Did you mean 'minutes'?"],
        ),
        ("model=tiny +budget.hours=3", ["budget.hours: got 3", "minutes, trials"]),
        ("model=tiny budget.minutes=-3", ["budget.minutes: got -3", "greater than 0"]),
        ("model=tiny budget.minutes=long", ["budget.minutes: got 'long'", "number"]),
        ("model=tiny search_space.batch_size=4,8", ["search_space.batch_size", "[4,8]"]),
        ("model=tiny,resnet50", ["model: got 'tiny,resnet50'", "once for each"]),
        ("model=tiny search_space.workers=2", ["search_space.workers", "num_workers"]),
        ("model=tiny search_space.num_workers=[-1]", ["search_space.num_workers[0]: got -1"]),
        ("model=tiny search_space.precision=bf17", ["got 'bf17'", "Did you mean 'bf16'?"]),
        ("model=tiny baseline.batch_size=x", ["baseline.batch_size: got 'x'", "whole number"]),
        ("model=torchvision", ["model.name: has no value", "Add model.name=..."]),
        ("model=torchvision model.nam=x", ["model.nam: got 'x'", "'name'", "+model.nam="]),
        ("model=resnet50 model.name.x=1", ["model.name.x", "single value"]),
        ("model=custom", ["model._target_: has no value", "Add model._target_=..."]),
        ("model=tiny data=imagefolder", ["data.root: has no value", "Add data.root=..."]),
        ("data=photos", ["model: choose one of", "resnet50", "model._target_="]),
        ("model=tiny loss=null", ["loss: got None", "Did you mean 'none'?"]),
        ("model=tiny tracking.kind=wandb", ["tracking.kind: got 'wandb'", "mlflow, none"]),
        ("model=tiny tracking=wandb", ["tracking: got 'wandb'", "mlflow, none"]),
        ("model=tiny search.sampler=tp", ["search.sampler: got 'tp'", "Did you mean 'tpe'?"]),
        ("model=tiny device=gpu", ["device: got 'gpu'", "cuda:1"]),
        ("model=tiny ~loss", ["~loss", "cannot be removed"]),
        ("model=tiny model@other=tiny", ["model@other=tiny", "without '@'"]),
        ("model=tiny seed=${nothing}", ["seed", "nothing"]),
        ("model=tiny hydra.run.dir=x", ["hydra.run.dir: got 'x'", "the keys model"]),
        ("model=tiny study=first", ["study: got 'first'", "study.name=..., study.resume=..."]),
        ("model=tiny data.collate=my.collate", ["data.collate: got", "data.collate._target_="]),
        ("resnet50", ["Did you mean model=resnet50?"]),
        ("run model=tiny", ["run: neither a command nor a setting"]),
        ("=3", ["=3: neither a command nor a setting"]),
        ("model._target_=nodots", ["model._target_: got 'nodots'", "dotted name"]),
    ],
)
def test_wrong_words_are_named_with_what_is_allowed(words: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        compose(words.split())
    assert error.value.exit_code == 2
    for part in parts:
        assert part in str(error.value)


@pytest.mark.parametrize(
    "value", ["/data/a=b", "/data/#1", "/d/a;b", "/data/Fotos-für-uns", 'a"#b']
)
def test_unreadable_value_comes_with_the_words_to_type(value: str) -> None:
    import shlex

    words = ["model=tiny", "data=imagefolder"]
    with pytest.raises(ConfigError, match=r"data\.root: cannot read") as error:
        compose([*words, f"data.root={value}"])
    fixed = re.search(r"outer ones: (.*)$", str(error.value))
    assert fixed is not None
    assert config(*words, *shlex.split(fixed[1])).data["root"] == value


def test_home_folder_is_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere/me")
    with pytest.raises(ConfigError, match="/somewhere/me/images"):
        compose(["model=tiny", "data=imagefolder", "data.root=~/images"])


def test_unknown_knob_in_an_own_space(own_folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"search_space\.workers.*num_workers"):
        compose(["model=tiny", "search_space=wrong"], [own_folder])


def test_own_file_that_is_not_yaml(own_folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"broken\.yaml"):
        compose(["model=tiny", "probe=broken"], [own_folder])


def test_own_file_with_the_name_of_ours(own_folder: Path) -> None:
    (own_folder / "model" / "tiny.yaml").write_text("_target_: my.tiny\n")
    with pytest.raises(ConfigError, match="model=tiny is found twice.*Rename yours"):
        compose(["model=tiny"], [own_folder])


def test_own_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--config-dir.*nowhere.*an existing folder"):
        compose(["model=tiny"], [tmp_path / "nowhere"])
