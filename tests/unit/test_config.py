import pytest

from autotune.config import SpaceConfig, parse_config
from autotune.errors import ConfigError
from autotune.settings import CompileMode


def values(**changes):
    least = {
        "model": {"_target_": "torchvision.models.get_model", "name": "resnet50"},
        "data": {"_target_": "mine.data.make", "root": "/x", "collate": {"_target_": "mine.pad"}},
        "loss": {"_target_": "torch.nn.functional.cross_entropy"},
        "optimizer": {"_target_": "torch.optim.SGD", "lr": 0.1},
        "search_spaces": {"any": {"batch_size": [8, 16]}},
    }
    return {**least, **changes}


def test_the_workload_keeps_collate_apart_from_the_datasets_arguments():
    config = parse_config(values())
    assert config.workload.data == {"_target_": "mine.data.make", "root": "/x"}
    assert config.workload.collate == {"_target_": "mine.pad"}
    assert config.study_name == "resnet50"


def test_a_model_without_a_name_is_called_after_its_callable():
    config = parse_config(values(model={"_target_": "my_pkg.nets.build"}))
    assert config.workload.model_name == "build"


def test_space_values_scalar_empty_and_repeated():
    space = {
        "batch_size": 8,
        "num_workers": "auto",
        "pin_memory": [],
        "compile": [False, "default"],
    }
    parsed = parse_config(values(search_spaces={"any": space})).search_spaces["any"]
    assert parsed == SpaceConfig(
        batch_size=(8,), num_workers="auto", compile=(CompileMode.OFF, CompileMode.DEFAULT)
    )
    twice = parse_config(values(search_spaces={"any": {"batch_size": [8, 8]}}))
    assert twice.search_spaces["any"].batch_size == (8,)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budget": {"minutes": -3}}, ["budget.minutes", "-3", "greater than 0"]),
        ({"objective": {"planned_steps": True}}, ["objective.planned_steps", "a whole number"]),
        ({"objective": {"planned_steps": 10**12}}, ["of at most 1000000000"]),
        ({"numerics": {"steps": True}}, ["numerics.steps: got True", "a whole number"]),
        ({"numerics": {"steps": 1000}}, ["a number of at most 100"]),
        ({"budget": {"minutes": True}}, ["budget.minutes: got True", "a number"]),
        ({"loader": {"shuffle": "perhaps"}}, ["loader.shuffle", "allowed: true or false"]),
        ({"study": {"name": ["x"]}}, ["study.name", "allowed: a text"]),
        ({"probe": 7}, ["probe: got 7", "keys below it, as in probe.name=value"]),
        ({"budget": {"minuts": 3}}, ["budget.minuts", "Did you mean 'minutes'"]),
        ({"probe": {"profile": "bst"}}, ["probe.profile", "best, all, none"]),
        ({"probe": {"loader_ceiling": "bst"}}, ["probe.loader_ceiling", "best, all, none"]),
        ({"probe": {"min_blocks": 1}}, ["probe.min_blocks"]),
        ({"search": {"sampler": "tpee"}}, ["search.sampler", "Did you mean 'tpe'"]),
        ({"confirmation": {"min_rounds": 2}}, ["confirmation.min_rounds", "3"]),
        (
            {"confirmation": {"min_rounds": 5, "max_rounds": 4}},
            ["confirmation.max_rounds", "confirmation.min_rounds (5)"],
        ),
        ({"baseline": {"precision": "bf61"}}, ["baseline.precision", "Did you mean 'bf16'"]),
        ({"baseline": {"batch_size": "much"}}, ["baseline.batch_size", "whole number"]),
        ({"baseline": {"batch_sise": 2}}, ["baseline.batch_sise", "Did you mean 'batch_size'"]),
        ({"search_spaces": {"any": {"batch_size": [-1]}}}, ["search_space.batch_size[0]"]),
        ({"search_spaces": {"any": {"precision": "auto"}}}, ["search_space.precision", "list"]),
        ({"search_spaces": {"any": {"wrkers": [1]}}}, ["search_space.wrkers"]),
        ({"device": "gpu"}, ["device", "cuda"]),
        ({"seed": -1}, ["seed"]),
        ({"model": {"name": "resnet50"}}, ["model._target_"]),
        ({"tracking": {"kind": "wandb"}}, ["tracking.kind", "mlflow, none"]),
    ],
)
def test_a_wrong_value_names_its_full_key(changes, words):
    with pytest.raises(ConfigError) as raised:
        parse_config(values(**changes))
    for word in words:
        assert word in str(raised.value), str(raised.value)


def test_planned_steps_go_with_throughput_only():
    parsed = parse_config(values(objective={"planned_steps": 100}))
    assert (parsed.objective.metric, parsed.objective.planned_steps) == ("throughput", 100)
    with pytest.raises(ConfigError, match="objective.planned_steps: got 100"):
        parse_config(values(objective={"metric": "energy", "planned_steps": 100}))
    with pytest.raises(ConfigError, match="objective.metric: got 'enery'"):
        parse_config(values(objective={"metric": "enery"}))
    with pytest.raises(ConfigError, match="objective.planned_steps"):
        parse_config(values(objective={"planned_steps": 0}))
