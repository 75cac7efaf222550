import pytest

from autotune.errors import ConfigError
from autotune.settings import KNOBS, CompileMode, Precision, Settings, settings_from_mapping


def test_words_become_enumerations_and_back():
    values = {"batch_size": 64, "num_workers": 4, "precision": "bf16", "compile": "reduce-overhead"}
    settings = settings_from_mapping(values, prefix="baseline")
    assert settings.precision is Precision.BF16
    assert settings.compile is CompileMode.REDUCE_OVERHEAD
    assert settings_from_mapping(settings.as_dict(), prefix="tuned") == settings
    assert tuple(settings.as_dict()) == KNOBS


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"batch_size": 0}, ["baseline.batch_size", "got 0", "1 or more"]),
        ({"num_workers": 2}, ["baseline.batch_size", "got None"]),
        ({"batch_size": 8, "num_worker": 2}, ["baseline.num_worker", "'num_workers'"]),
        ({"batch_size": 8, "precision": "bf61"}, ["baseline.precision", "Did you mean 'bf16'"]),
        ({"batch_size": 8, "compile": True}, ["baseline.compile", "got True", "off"]),
        ({"batch_size": 8, "pin_memory": "yes"}, ["baseline.pin_memory", "true or false"]),
        ({"batch_size": True}, ["baseline.batch_size", "whole number"]),
        ({"batch_size": 8, "prefetch_factor": 2}, ["num_workers", "prefetch_factor=2"]),
        ({"batch_size": 8, "persistent_workers": True}, ["persistent_workers=True"]),
        ({"batch_size": 8, "num_workers": 1, "prefetch_factor": 0}, ["prefetch_factor", "got 0"]),
    ],
)
def test_a_wrong_value_is_named_with_its_key(values, words):
    with pytest.raises(ConfigError) as raised:
        settings_from_mapping(values, prefix="baseline")
    for word in words:
        assert word in str(raised.value)


def test_off_as_yaml_reads_it_means_off():
    assert settings_from_mapping({"batch_size": 1, "compile": False}, prefix="x").compile == "off"


def test_describe_shows_only_what_differs():
    slow = Settings(batch_size=32)
    fast = Settings(batch_size=32, num_workers=8, pin_memory=True)
    assert fast.describe(slow) == "num_workers=8 pin_memory=true"
    assert slow.describe(slow) == "(the same settings)"
    assert "prefetch_factor=null persistent_workers=false precision=default" in slow.describe()


def test_label_is_short_and_leaves_out_what_is_off():
    fast = Settings(
        batch_size=256,
        num_workers=16,
        pin_memory=True,
        prefetch_factor=2,
        precision=Precision.BF16,
        compile=CompileMode.DEFAULT,
    )
    assert fast.label() == "bs=256 w=16 pin pf=2 bf16 compile=default"
    assert Settings(batch_size=32).label() == "bs=32 w=0"


def test_label_against_others_names_what_was_turned_off():
    fast = Settings(batch_size=32, num_workers=2, prefetch_factor=4, precision=Precision.TF32)
    slow = Settings(batch_size=32)
    assert slow.label(fast) == "w=0 no-pf precision=default"
    assert fast.label(slow) == "w=2 pf=4 tf32"
    assert slow.label(slow) == ""
