from __future__ import annotations

import signal
from typing import Any

import pytest
import torch

from autotune.config import LoaderConfig, WorkloadSpec
from autotune.errors import ConfigError, WorkerDied, WorkloadError
from autotune.measure.deaths import OomKills
from autotune.measurement import FailureKind
from autotune.trial import failures, out_of_memory
from autotune.trial.failures import classify, diagnose, evidence
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


CUDA = torch.device("cuda", 0)
NO_FUSED_KERNEL = "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"


class Kills(OomKills):
    """A kernel that has killed so many processes for lack of memory."""

    def __init__(self, since: int | None = 0) -> None:
        self._since = since

    def since(self) -> int | None:
        return self._since


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A device whose state a test decides."""
    state: dict[str, Any] = {"free": 50, "stats": {}, "broken": False}

    def synchronize(device: torch.device) -> None:
        if state["broken"]:
            raise torch.AcceleratorError("CUDA error: device-side assert triggered")

    class Module:
        @staticmethod
        def memory_stats(device: torch.device) -> dict[str, int]:
            stats: dict[str, int] = state["stats"]
            return stats

    monkeypatch.setattr(failures, "synchronize", synchronize)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (state["free"], 100))
    monkeypatch.setattr(torch, "get_device_module", lambda device: Module)
    return state


@pytest.mark.parametrize(
    ("free", "ooms", "kind"),
    [
        (50, 0, FailureKind.USER_ERROR),
        (2, 0, FailureKind.OUT_OF_MEMORY),
        (50, 1, FailureKind.OUT_OF_MEMORY),
    ],
)
def test_a_librarys_status_is_lack_of_memory_only_by_the_devices_state(
    gpu: dict[str, Any], free: int, ooms: int, kind: FailureKind
) -> None:
    gpu |= {"free": free, "stats": {"num_ooms": ooms}}
    assert classify(RuntimeError(NO_FUSED_KERNEL), CUDA) is kind
    assert classify(RuntimeError(NO_FUSED_KERNEL), torch.device("cpu")) is FailureKind.USER_ERROR


def test_lack_of_memory_that_the_job_caught_is_known_by_the_allocators_counter(
    gpu: dict[str, Any],
) -> None:
    gpu["stats"] = {"num_ooms": 2}
    assert classify(ValueError("the step failed"), CUDA) is FailureKind.OUT_OF_MEMORY
    assert classify(SystemExit(1), CUDA) is FailureKind.OUT_OF_MEMORY


def test_the_runtimes_error_code_tells_lack_of_memory(gpu: dict[str, Any]) -> None:
    error = torch.AcceleratorError("CUDA error: an error that has no name yet")
    assert classify(error, CUDA) is FailureKind.CRASH
    error.error_code = 2  # type: ignore[attr-defined]
    assert classify(error, CUDA) is FailureKind.OUT_OF_MEMORY


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError("CUDA error: device-side assert triggered"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"),
        ValueError("the user's own, since a number made no sense"),
    ],
)
def test_a_broken_device_is_a_crash_whatever_was_raised(
    gpu: dict[str, Any], error: Exception
) -> None:
    gpu["broken"] = True
    found = diagnose(error, CUDA, Kills())
    assert found.kind is FailureKind.CRASH
    assert str(error) in found.message
    assert "reports errors late" in found.message
    assert "CUDA_LAUNCH_BLOCKING=1" in found.message


def test_fragmentation_is_named_with_the_allocators_option(gpu: dict[str, Any]) -> None:
    error = torch.OutOfMemoryError("CUDA out of memory")
    gib = 2**30
    gpu["stats"] = {"reserved_bytes.all.current": 10 * gib}
    gpu["stats"] |= {"allocated_bytes.all.current": 6 * gib}
    message = diagnose(error, CUDA, Kills()).message
    assert "fragmentation: 4.0 of the 10.0 GiB" in message
    assert "PYTORCH_ALLOC_CONF=expandable_segments:True" in message
    gpu["stats"] |= {"allocated_bytes.all.current": 9 * gib}
    assert out_of_memory.fragmentation(CUDA) is None


@pytest.mark.parametrize(
    ("code", "killed", "kind"),
    [
        (-signal.SIGKILL, 1, FailureKind.OUT_OF_MEMORY),
        (-signal.SIGKILL, 0, FailureKind.WORKER_DIED),
        (-signal.SIGKILL, None, FailureKind.WORKER_DIED),
        (1, 1, FailureKind.WORKER_DIED),
    ],
)
def test_a_killed_worker_lacked_memory_where_the_kernel_counted_it(
    code: int, killed: int | None, kind: FailureKind
) -> None:
    assert diagnose(WorkerDied("gone", code), None, Kills(killed)).kind is kind


def test_an_error_of_the_thread_that_pins_is_about_pinning() -> None:
    error = RuntimeError("Caught RuntimeError in pin memory thread for device 0.\nno")
    found = diagnose(error, None, Kills())
    assert (found.kind, found.setting) == (FailureKind.UNSUPPORTED, "pin_memory")


def test_a_gradscaler_without_a_gradient_is_told_in_plain_words() -> None:
    model, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    scaler = torch.amp.GradScaler("cpu")  # type: ignore[attr-defined]
    scaler.scale(model(torch.ones(1, 2)).sum()).backward()
    with pytest.raises(AssertionError) as caught:
        scaler.step(torch.optim.SGD(other.parameters()))
    found = diagnose(caught.value, None, Kills())
    assert found.kind is FailureKind.USER_ERROR
    assert found.message.startswith("loss: no parameter of the optimizer got a gradient")
    assert "No inf checks were recorded" in found.message


def test_a_batch_that_is_lost_on_its_way_from_a_worker_is_no_fault_of_the_data() -> None:
    place = "multiprocessing/reduction.py"
    text = "def recvfds():\n    raise RuntimeError('received 0 items of ancdata')"
    spaces: dict[str, Any] = {}
    exec(compile(text, f"/lib/{place}", "exec"), spaces)
    exec(compile("def get(ask):\n    ask()", "/lib/torch/utils/data/dataloader.py", "exec"), spaces)
    with pytest.raises(RuntimeError) as caught:
        spaces["get"](spaces["recvfds"])
    found = diagnose(caught.value, None, Kills())
    assert found.kind is FailureKind.WORKER_DIED
    assert "ulimit -n" in found.message
