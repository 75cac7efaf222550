from __future__ import annotations

import pytest

from autotune.config import LoaderConfig, WorkloadSpec
from autotune.errors import ConfigError, WorkloadError
from autotune.trial.failures import evidence
from autotune.workloads.build import build_workload


def build_with(model: str) -> BaseException:
    spec = WorkloadSpec(
        model={"_target_": model},
        data={"_target_": "autotune.workloads.tiny.tiny_images"},
        collate=None,
        loss=None,
        optimizer={"_target_": "torch.optim.SGD"},
        loader=LoaderConfig(),
    )
    with pytest.raises(WorkloadError) as caught:
        build_workload(spec).build_model()
    return caught.value


def _shown(error: BaseException) -> str:
    text = evidence(error)
    assert text is not None
    return text


def failing() -> None:
    raise ValueError("the user's own words")


def leaving() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("name", "last"), [("failing", "ValueError: the user's own words"), ("leaving", "3")]
)
def test_the_evidence_begins_with_the_users_own_lines(name: str, last: str) -> None:
    lines = _shown(build_with(f"{__name__}.{name}")).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert f"in {name}" in lines[1]
    assert lines[-1].endswith(last)
    assert sum(line.startswith("Traceback") for line in lines) == 1
    assert not any("build.py" in line for line in lines)


def test_the_users_own_chain_of_errors_is_kept() -> None:
    try:
        try:
            failing()
        except ValueError as error:
            raise RuntimeError("what came of it") from error
    except RuntimeError as error:
        text = _shown(error)
    assert text.index("the user's own words") < text.index("what came of it")


def test_what_we_say_ourselves_needs_no_evidence() -> None:
    assert evidence(ConfigError("batch_size: got 8")) is None
    assert evidence(build_with("builtins.dict")) is None


def test_a_fault_of_our_own_keeps_our_lines() -> None:
    with pytest.raises(KeyError) as caught:
        build_workload(WorkloadSpec(model={}, data={}, collate=None, loss=None, optimizer={}))
    assert "build.py" in _shown(caught.value)
