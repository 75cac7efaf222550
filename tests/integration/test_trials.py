"""Real trials in real processes on the CPU: what comes back, and that nothing stays behind."""

import gzip
import multiprocessing
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from autotune.config import ProbeConfig, WorkloadSpec
from autotune.launch.local import LocalLauncher
from autotune.measurement import FailureKind, JobFacts, Measurement, Phase, TrialFailure
from autotune.request import TrialRequest
from autotune.settings import CompileMode, Precision, Settings

JOBS = Path(__file__).parent / "jobs"
QUICK = ProbeConfig(window_s=0.6, warmup_s=0.5, ceiling_s=0.2, min_blocks=3)


def job(model="linear", data="Numbers"):
    return WorkloadSpec(
        model={"_target_": f"faulty.{model}"},
        data={"_target_": f"faulty.{data}"},
        collate=None,
        loss={"_target_": "torch.nn.functional.cross_entropy"},
        optimizer={"_target_": "torch.optim.SGD", "lr": 1e-6},
    )


TINY = WorkloadSpec(
    model={"_target_": "autotune.workloads.tiny.tiny_model"},
    data={"_target_": "autotune.workloads.tiny.tiny_images"},
    collate=None,
    loss={"_target_": "torch.nn.functional.cross_entropy"},
    optimizer={"_target_": "torch.optim.SGD", "lr": 0.01},
)


@pytest.fixture(scope="module")
def launcher():
    launcher = LocalLauncher()
    yield launcher
    launcher.close()


@pytest.fixture
def ask(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(JOBS))

    def build(workload, settings, **changes):
        values = {
            "workload": workload,
            "settings": settings,
            "probe": QUICK,
            "device": "cpu",
            "seed": 0,
            "folder": str(tmp_path),
            "limit_s": 60.0,
        }
        return TrialRequest(**{**values, **changes})

    return build


def leftovers():
    """Descendants of this process that are neither the fork server nor multiprocessing's own."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            command = " ".join(process.cmdline())
            if process.status() != psutil.STATUS_ZOMBIE and process.ppid() != os.getpid():
                found.append(command)
        except psutil.NoSuchProcess:
            continue
    return found


def quiet(stage):
    """Listen to no progress."""


def test_a_measurement_is_whole(launcher, ask, tmp_path):
    settings = Settings(
        batch_size=32,
        num_workers=2,
        prefetch_factor=2,
        precision=Precision.BF16,
        channels_last=True,
        fused_optimizer=True,
    )
    stages = []
    seen = launcher.run(ask(TINY, settings, profile_above=0.0, loader_above=0.0), stages.append)
    assert isinstance(seen, Measurement), seen
    measuring = ["warm-up", "ceiling", "warm-up", "window", "profile", "loader ceiling"]
    assert stages == ["start", "setup", *measuring]
    assert seen.settings == settings
    assert seen.window.samples == 32 * seen.window.steps
    parts = sum(sum(seen.window.phase_s[phase]) for phase in Phase)
    assert parts == pytest.approx(seen.window.elapsed_s, rel=0.01)
    assert seen.device_ceiling is not None
    assert seen.loader_ceiling is not None
    assert seen.optimizer_steps > seen.window.steps
    assert seen.memory.peak_reserved_bytes is None, "a CPU has no device memory"
    assert seen.memory.host_peak_bytes > 10e6
    with gzip.open(tmp_path / seen.trace) as trace:
        text = trace.read()
    assert text.count(b'"autotune::backward"') >= 1
    assert leftovers() == []


def test_without_ceiling_and_profile(launcher, ask):
    seen = launcher.run(ask(TINY, Settings(batch_size=16), measure_ceiling=False), quiet)
    assert seen.device_ceiling is None
    assert seen.trace is None
    assert seen.costs.profile_s is None


def test_a_slow_loader_shows_in_the_data_phase(launcher, ask):
    slow = WorkloadSpec(
        model=TINY.model,
        data={**TINY.data, "delay_ms": 2.0},
        collate=None,
        loss=TINY.loss,
        optimizer=TINY.optimizer,
    )
    seen = launcher.run(ask(slow, Settings(batch_size=8)), quiet).window
    # Eight samples sleep for 2 ms each; no load of the machine can make that shorter.
    assert seen.host_wait_ms >= 16
    assert seen.stall_ms >= 16
    assert seen.phase_ms(Phase.DATA) >= seen.stall_ms


def test_one_resident_batch_needs_no_loader(launcher, ask):
    resident = WorkloadSpec(
        model=TINY.model,
        data={"_target_": "autotune.workloads.resident.resident", "image_size": 32},
        collate=None,
        loss=TINY.loss,
        optimizer=TINY.optimizer,
    )
    seen = launcher.run(ask(resident, Settings(batch_size=16)), quiet)
    assert seen.window.stall_share < 0.5
    facts = launcher.inspect(ask(resident, Settings(batch_size=1)))
    assert facts.resident
    assert facts.dataset_size is None


def test_facts_of_a_job(launcher, ask):
    facts = launcher.inspect(ask(TINY, Settings(batch_size=1)))
    assert isinstance(facts, JobFacts)
    assert facts.dataset_size == 2048
    assert facts.image_input
    assert facts.parameters > 1000
    assert not launcher.inspect(ask(job(), Settings(batch_size=1))).image_input


@pytest.mark.parametrize(
    ("workload", "settings", "kind", "words"),
    [
        (job("raising"), {}, FailureKind.USER_ERROR, "the user's own words"),
        (job("leaving"), {}, FailureKind.USER_ERROR, "called sys.exit(3)"),
        (job("segfaulting"), {}, FailureKind.CRASH, "SIGSEGV"),
        (job("exploding"), {}, FailureKind.NON_FINITE, "the loss is"),
        (job("hungry"), {"batch_size": 32}, FailureKind.OUT_OF_MEMORY, "no room for 32 rows"),
        (job("absent"), {}, FailureKind.USER_ERROR, "faulty.absent"),
        (job(data="Corrupt"), {}, FailureKind.DATASET_ERROR, "sample 37: truncated header"),
        (
            job(data="Corrupt"),
            {"num_workers": 2},
            FailureKind.DATASET_ERROR,
            "sample 37: truncated header",
        ),
        (job(data="Deadly"), {"num_workers": 1}, FailureKind.WORKER_DIED, "worker"),
        (job(), {"precision": Precision.FP16}, FailureKind.UNSUPPORTED, "fp16"),
        (job(), {"batch_size": 65}, FailureKind.BAD_SETTING, "at most 64"),
    ],
    ids=lambda value: str(value) if isinstance(value, FailureKind) else None,
)
def test_what_goes_wrong_comes_back_as_a_typed_failure(
    launcher, ask, workload, settings, kind, words
):
    asked = Settings(**{"batch_size": 8, **settings})
    seen = launcher.run(ask(workload, asked), quiet)
    assert isinstance(seen, TrialFailure), seen
    assert seen.failure is kind, seen
    assert words in seen.message
    assert seen.settings == asked
    assert leftovers() == []


def test_workers_start_as_they_would_in_the_users_own_script(launcher, ask, tmp_path):
    launcher.run(ask(job("telling"), Settings(batch_size=8)), quiet)
    told = f"start method: {multiprocessing.get_start_method()}"
    assert told in (tmp_path / "log.txt").read_text()


def test_a_smaller_batch_after_lack_of_memory_is_unharmed(launcher, ask):
    assert launcher.run(ask(job("hungry"), Settings(batch_size=32)), quiet).failure
    assert isinstance(launcher.run(ask(job("hungry"), Settings(batch_size=16)), quiet), Measurement)


def test_a_worker_that_hangs_ends_at_the_limit(launcher, ask):
    request = ask(job(data="Sleepy"), Settings(batch_size=8, num_workers=2), limit_s=8.0)
    seen = launcher.run(request, quiet)
    assert seen.failure is FailureKind.TIME_LIMIT
    assert "probe.limit_s" in seen.message
    assert leftovers() == []


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("hanging_under_the_profiler", "not done after 6 s"),
        ("dying_under_the_profiler", "SIGKILL"),
        ("leaving_under_the_profiler", "enough"),
    ],
)
def test_a_trial_that_is_cut_off_after_its_score_keeps_it(launcher, ask, model, why):
    request = ask(job(model), Settings(batch_size=8), profile_above=0.0, limit_s=6.0)
    seen = launcher.run(request, quiet)
    assert isinstance(seen, Measurement)
    assert seen.window.samples_per_s > 0
    assert seen.trace is None
    assert seen.numerics.unchecked is not None
    assert why in seen.notes[-1]
    assert "during profile" in seen.notes[-1]
    assert leftovers() == []


def test_the_window_knows_how_little_time_its_trial_has_left(launcher, ask):
    endless = ProbeConfig(rel_halfwidth=1e-6, window_s=600.0, warmup_s=600.0, ceiling_s=0.1)
    request = ask(job(), Settings(batch_size=8), probe=endless, limit_s=6.0)
    seen = launcher.run(request, quiet)
    assert isinstance(seen, Measurement)
    assert seen.window.unmet is not None


def test_a_grandchild_with_its_own_session_is_ended_too(launcher, ask, tmp_path):
    seen = launcher.run(ask(job("spawning"), Settings(batch_size=8), limit_s=4.0), quiet)
    assert seen.failure is FailureKind.TIME_LIMIT
    grandchild = int(re.search(r"grandchild (\d+)", (tmp_path / "log.txt").read_text()).group(1))
    assert not psutil.pid_exists(grandchild) or (
        psutil.Process(grandchild).status() == psutil.STATUS_ZOMBIE
    )


def test_compile_failure_is_its_own_kind(ask, monkeypatch):
    monkeypatch.setenv("CXX", "/nonexistent/compiler")
    code = (
        "import pickle, sys\n"
        "from autotune.launch.local import LocalLauncher\n"
        "if __name__ == '__main__':\n"
        "    request = pickle.loads(sys.stdin.buffer.read())\n"
        "    print(LocalLauncher().run(request, lambda stage: None).failure)\n"
    )
    script = Path(ask(TINY, Settings(batch_size=8)).folder) / "main.py"
    script.write_text(code)
    import pickle

    request = ask(TINY, Settings(batch_size=8, compile=CompileMode.DEFAULT))
    ran = subprocess.run(
        [sys.executable, str(script)],
        input=pickle.dumps(request),
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert ran.stdout.decode().strip() == "compile_failed"


def test_death_of_the_controller_ends_the_trial(ask, tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from autotune.launch.local import LocalLauncher\n"
        "from autotune.measurement import FailureKind\n"
        "import pickle\n"
        "if __name__ == '__main__':\n"
        "    LocalLauncher().run(pickle.load(open(sys.argv[1], 'rb')), print)\n"
    )
    import pickle

    script = tmp_path / "main.py"
    script.write_text(code)
    asked = tmp_path / "request"
    asked.write_bytes(pickle.dumps(ask(job("spawning"), Settings(batch_size=8))))
    controller = subprocess.Popen(
        [sys.executable, str(script), str(asked), str(JOBS)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    log = tmp_path / "log.txt"
    for _ in range(600):
        if log.exists() and "grandchild" in log.read_text():
            break
        time.sleep(0.1)
    family = psutil.Process(controller.pid).children(recursive=True)
    trials = [process for process in family if "sleep" not in process.name()]
    controller.kill()
    controller.wait()
    _, alive = psutil.wait_procs(trials, timeout=10)
    for process in family:
        if process.is_running() and "sleep" in process.name():
            process.kill()
    assert [process.cmdline() for process in alive] == []


def test_an_interrupt_leaves_nothing_running(launcher, ask):
    class Interrupting:
        def __call__(self, stage):
            if stage == "setup":
                raise KeyboardInterrupt

    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        launcher.run(ask(job("spawning"), Settings(batch_size=8)), Interrupting())
    assert leftovers() == []
    assert set(threading.enumerate()) <= before
