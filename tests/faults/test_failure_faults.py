"""What a failure is called, put to real trials and commands: by type, state, signal and counter."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace

import pytest
from command import QUICK, run
from conftest import JOBS

from autotune.config import LoaderConfig
from autotune.measurement import FailureKind, JobFacts, Measurement, TrialFailure
from autotune.settings import CompileMode, Precision, Settings

PLAIN = Settings(batch_size=8)
LARGE = Settings(batch_size=32)


@pytest.fixture
def fails(launcher, ask):
    """Run a trial that must fail, and return the failure."""

    def run(spec, settings, **changes):
        seen = launcher.run(ask(spec, settings, **changes), lambda stage: None)
        assert isinstance(seen, TrialFailure), seen
        return seen

    return run


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("plain", "no room for 32 rows"),
        ("cublas", "CUBLAS_STATUS_ALLOC_FAILED"),
        ("mps", "MPS backend out of memory"),
        ("xpu", "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"),
        ("host", "allocate"),
        ("errno", "Cannot allocate memory"),
        ("wrapped", "StepError: the step failed, which came from OutOfMemoryError: CUDA out"),
        ("hidden", "StepError: the step failed, which came from OutOfMemoryError: CUDA out"),
        ("group", "which came from OutOfMemoryError"),
    ],
)
def test_lack_of_memory_under_any_name(fails, workload, how, words):
    spec = replace(workload(), model={"_target_": "failing.refusing", "how": how})
    seen = fails(spec, LARGE)
    assert seen.failure is FailureKind.OUT_OF_MEMORY, seen
    assert words in seen.message
    assert "failing.py" in seen.evidence


@pytest.mark.parametrize("how", ["cudnn", "grid"])
def test_what_is_no_lack_of_memory_by_the_devices_state_is_not_called_so(fails, workload, how):
    spec = replace(workload(), model={"_target_": "failing.refusing", "how": how})
    seen = fails(spec, LARGE)
    assert seen.failure is FailureKind.USER_ERROR


def test_a_smaller_trial_after_lack_of_memory_is_as_it_would_be_alone(
    launcher, ask, fails, workload
):
    spec = replace(workload(), model={"_target_": "failing.refusing", "how": "plain"})
    assert fails(spec, LARGE).failure is FailureKind.OUT_OF_MEMORY
    again = launcher.run(ask(spec, PLAIN), lambda stage: None)
    assert isinstance(again, Measurement), again


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("Corrupt", "BadImageError: sample 37: truncated header"),
        ("EndsEarly", "EOFError: Ran out of input"),
        ("Unreachable", "ConnectionResetError: the image server hung up"),
    ],
)
def test_a_broken_sample_is_the_datas_fault_with_and_without_workers(
    fails, workload, data, words, workers
):
    seen = fails(workload(data=f"failing.{data}"), replace(PLAIN, num_workers=workers))
    assert seen.failure is FailureKind.DATASET_ERROR, seen
    assert words in seen.message
    assert "in odd" in seen.evidence


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_that_lacks_host_memory(fails, workload, workers):
    seen = fails(workload(data="failing.Greedy"), replace(PLAIN, num_workers=workers))
    assert seen.failure is FailureKind.OUT_OF_MEMORY
    assert "no room for the decoded image" in seen.message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("Killed", "was killed by SIGKILL ("),
        ("BusError", "was killed by SIGBUS"),
        ("Segfault", "was killed by SIGSEGV"),
    ],
)
def test_a_worker_that_dies_is_told_by_its_signal(fails, workload, data, words):
    seen = fails(workload(data=f"failing.{data}"), replace(PLAIN, num_workers=2))
    assert seen.failure is FailureKind.WORKER_DIED, seen
    assert words in seen.message
    assert "most likely" not in seen.message


def test_samples_of_unequal_length_are_the_datas_fault(fails, workload):
    seen = fails(workload(data="failing.Unequal"), PLAIN)
    assert seen.failure is FailureKind.DATASET_ERROR
    assert "stack expects each tensor to be equal size" in seen.message


@pytest.mark.skipif(multiprocessing.get_start_method() != "fork", reason="of the usual start")
def test_what_cannot_be_sent_to_workers_is_no_fault_of_the_data(fails, workload, monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none=False: "spawn")
    seen = fails(workload(data="failing.Unpickled"), replace(PLAIN, num_workers=2))
    assert seen.failure is FailureKind.UNSUPPORTED, seen
    assert seen.setting == "num_workers"
    assert "start method spawn" in seen.message


def test_a_model_that_raises_under_autocast(fails, launcher, ask, workload):
    spec = workload(model="failing.Pooling")
    seen = fails(spec, replace(PLAIN, precision=Precision.BF16))
    assert seen.failure is FailureKind.USER_ERROR
    assert "index_add" in seen.message
    assert isinstance(launcher.run(ask(spec, PLAIN), lambda stage: None), Measurement)


def test_a_missing_compiler_is_a_failure_to_compile(fails, workload):
    seen = fails(
        workload(model="failing.without_a_compiler"), replace(PLAIN, compile=CompileMode.DEFAULT)
    )
    assert seen.failure is FailureKind.COMPILE_FAILED, seen
    assert seen.stage == "compile"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "failing.frozen"}, "model: all 2 parameters of Linear are frozen"),
        ({"model": "failing.empty"}, "model: Flatten has no parameters"),
        ({"loss": "failing.deaf"}, "loss: it does not depend on any parameter"),
        ({"loss": "failing.several"}, "loss: got a tuple as the loss"),
        ({"loss": "failing.nothing"}, "loss: got None as the loss; expected a tensor"),
        ({"loss": "failing.number"}, "not its .item()"),
        ({"loss": "failing.whole"}, "Reduce it, for example with .mean()"),
        ({"optimizer": "failing.stranger"}, "optimizer: none of the parameters of SGD got a"),
        ({"optimizer": "failing.lbfgs"}, "optimizer: LBFGS needs a closure"),
        ({"optimizer": "failing.sparse_adam"}, "optimizer: RuntimeError: SparseAdam does not"),
    ],
)
def test_what_cannot_be_trained_is_told_by_its_key(fails, workload, changes, words):
    spec = replace(workload(), **{key: {"_target_": name} for key, name in changes.items()})
    seen = fails(spec, PLAIN)
    assert seen.failure is FailureKind.USER_ERROR
    assert words in seen.message


@pytest.mark.parametrize(
    ("data", "options", "changes", "words"),
    [
        # A stream; a pass that ends within the window; one that does not.
        ("failing.Stream", {}, {"model": "failing.normed"}, "Expected more than 1 value"),
        ("failing.Numbers", {"samples": 97}, {"model": "failing.normed"}, "Expected more than 1"),
        (
            "failing.Numbers",
            {"samples": 400_001},
            {"loss": "failing.nan_of_one"},
            "the loss is nan",
        ),
    ],
)
def test_a_tail_that_cannot_be_trained_is_told_alike_wherever_it_is_met(
    fails, workload, data, options, changes, words
):
    spec = replace(workload(data=data, **options), loader=LoaderConfig(drop_last=False))
    spec = replace(spec, **{key: {"_target_": name} for key, name in changes.items()})
    seen = fails(spec, Settings(batch_size=16))
    assert seen.failure is FailureKind.BAD_SETTING, seen
    assert words in seen.message
    assert "holds 1 of 16 samples" in seen.message
    assert "Use loader.drop_last=true" in seen.message
    assert seen.setting == "batch_size"


def test_a_loss_that_is_not_a_number_is_seen_by_the_first_look(launcher, ask, workload):
    spec = replace(workload(), loss={"_target_": "failing.not_a_number"})
    seen = launcher.inspect(ask(spec, PLAIN))
    assert not isinstance(seen, JobFacts)
    assert seen.failure is FailureKind.NON_FINITE
    assert "the loss is nan" in seen.message


def command(tmp_path, monkeypatch, *words):
    """Run the real command on a job of `jobs/failing.py`."""
    monkeypatch.setattr("command.JOBS", JOBS)
    return run(
        *QUICK,
        "model=custom",
        "data=custom",
        "optimizer.lr=1e-6",
        "tracking=none",
        "search_space.batch_size=null",
        "search_space.persistent_workers=null",
        "search_space.precision=null",
        *words,
        folder=tmp_path,
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("model._target_=healthy.linear", "data._target_=failing.WrongLabel"),
            "IndexError: Target 4 is out of bounds.",
        ),
        (
            ("model._target_=healthy.linear", "data._target_=failing.Corrupt"),
            "BadImageError: sample 37: truncated header",
        ),
        (
            (
                "model._target_=healthy.linear",
                "data._target_=healthy.Numbers",
                "loss=custom",
                "loss._target_=failing.not_a_number",
            ),
            "non finite at",
        ),
    ],
)
def test_a_job_that_fails_by_itself_exports_nothing(tmp_path, monkeypatch, words, said):
    ended = command(tmp_path, monkeypatch, *words)
    assert ended.code == 1, ended
    assert said in ended.err
    assert list(tmp_path.rglob("tuned.yaml")) == []


def test_workers_that_always_die_cost_two_trials_and_the_rest_is_tuned(tmp_path, monkeypatch):
    ended = command(
        tmp_path,
        monkeypatch,
        "model._target_=healthy.linear",
        "data._target_=failing.Killed",
        "search_space.num_workers=[0,1,2,3]",
        "search_space.cudnn_benchmark=[false,true]",
        "budget.trials=6",
    )
    assert ended.code == 0, ended
    assert "num_workers of 1 or more is left out from here on: worker died" in ended.out
    assert "failed trials: 2 worker_died" in ended.out
    assert "was killed by SIGKILL" in ended.out
    (tuned,) = tmp_path.rglob("tuned.yaml")
    assert "num_workers: 0" in tuned.read_text()


def test_a_baseline_that_is_halved_is_not_called_kept(tmp_path, monkeypatch):
    ended = command(
        tmp_path,
        monkeypatch,
        "model._target_=failing.refusing",
        "+model.how=wrapped",
        "data._target_=healthy.Numbers",
        "baseline.batch_size=32",
        "search_space.num_workers=null",
        "search.expert_guess=false",
        "budget.trials=1",
    )
    assert ended.code == 0, ended
    assert "your 32 does not fit into memory, 16 does" in ended.out
    assert "Nothing to change" not in ended.out
    (tuned,) = tmp_path.rglob("tuned.yaml")
    assert "batch_size: 16" in tuned.read_text()
