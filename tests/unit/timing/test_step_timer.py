"""StepTimer against a clock that only moves when told to: exact figures, no waiting."""

import math
import subprocess
import sys
import threading

import pytest
import torch

import autotune
from autotune.errors import ConfigError, TimingError
from autotune.timing import steps as steps_module
from autotune.timing.steps import MOST_PHASES


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s

    def work(self, ms):
        self.now_s += ms / 1e3


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def timer(clock):
    return autotune.StepTimer("cpu", clock=clock)


def phases_of(report):
    return {phase.path: phase for phase in report.phases}


def run_steps(timer, clock, count=10):
    for _ in range(count):
        with timer.phase("forward"):
            clock.work(20)
        clock.work(5)
        timer.step()


def test_a_step_is_split_into_its_phases_and_the_rest(timer, clock):
    for number in range(1, 12):
        with timer.phase("forward"):
            clock.work(10 + number)
        with timer.phase("backward"):
            clock.work(40)
        clock.work(2)
        timer.step()
    report = timer.report()
    phases = phases_of(report)
    assert list(phases) == ["forward", "backward", "other"]
    forward = phases["forward"]  # of steps 2 to 11: 12 to 21 ms
    assert forward.median_s == pytest.approx(16.5e-3)
    assert forward.mean_s == pytest.approx(16.5e-3)
    assert forward.p95_s == pytest.approx(20.55e-3)
    assert forward.share == pytest.approx(16.5 / 58.5)
    assert phases["other"].mean_s == pytest.approx(2e-3)
    assert sum(phase.share for phase in report.phases) == pytest.approx(1)
    assert report.step.mean_s.value == pytest.approx(58.5e-3)
    assert (report.steps, report.first, report.warm_up_s) == (11, 2, (pytest.approx(53e-3),))
    assert forward.host_s is None
    assert report.stall_s is None


def test_the_mean_step_has_an_interval_from_blocks(timer, clock):
    for number in range(101):
        with timer.phase("forward"):
            clock.work(90 if number % 2 else 110)
        timer.step()
    mean = timer.report().step.mean_s
    # Blocks of five alternate between 98 and 102 ms.
    assert mean.value == pytest.approx(0.1)
    assert mean.low == pytest.approx(0.1 - 2.093 * 2e-3 * math.sqrt(20 / 19) / math.sqrt(20), 1e-3)


def test_phases_nest_under_the_same_name_too(timer, clock):
    for _ in range(3):
        with timer.phase("forward"):
            clock.work(1)
            with timer.phase("block"):
                clock.work(2)
                with timer.phase("block"):
                    clock.work(4)
            with timer.phase("block"):
                clock.work(8)
        with timer.phase("block"):
            clock.work(16)
        timer.step()
    found = {path: phase.mean_s for path, phase in phases_of(timer.report()).items()}
    assert found == {
        "forward": pytest.approx(15e-3),
        "forward/block": pytest.approx(14e-3),
        "forward/block/block": pytest.approx(4e-3),
        "block": pytest.approx(16e-3),
        "other": pytest.approx(0),
    }


def test_a_phase_decorates_a_function(timer, clock):
    @timer.phase("forward")
    def forward(x, *, ms):
        """Documented."""
        clock.work(ms)
        return 2 * x

    assert forward.__doc__ == "Documented."
    for _ in range(2):
        assert forward(21, ms=7) == 42
        timer.step()
    assert phases_of(timer.report())["forward"].mean_s == pytest.approx(7e-3)


def test_a_generator_function_is_not_decorated(timer):
    def batches():
        yield 1

    with pytest.raises(TimingError, match="generator"):
        timer.phase("forward")(batches)


class Loader:
    num_workers = 3

    def __init__(self, clock, batches=4, wait_ms=30):
        self.clock, self.batches, self.wait_ms = clock, batches, wait_ms

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            self.clock.work(self.wait_ms)
            yield torch.zeros(8, 2), torch.zeros(8)


def test_iterate_times_the_arrival_of_batches_and_counts_samples(timer, clock):
    batches = timer.iterate(Loader(clock))
    assert len(batches) == 4
    for images, _ in batches:
        assert images.shape == (8, 2)
        clock.work(10)
        timer.step()
    report = timer.report()
    assert phases_of(report)["data"].mean_s == pytest.approx(30e-3)
    assert report.host_wait_s == pytest.approx(30e-3)
    assert report.samples_per_s.value == pytest.approx(8 / 40e-3)


def test_iterate_takes_any_iterable_and_a_loop_may_break_off(timer, clock):
    for number in timer.iterate(iter([1, 2, 3, 4])):
        clock.work(5)
        timer.step()
        if number == 3:
            break
    report = timer.report()
    assert report.steps == 3
    assert report.samples_per_s is None
    with pytest.raises(TypeError, match="len"):
        len(timer.iterate(iter([1])))


def test_samples_given_to_step_count_and_accumulated_batches_add_up(clock):
    for given, expected in ((5, 5), (None, 16)):
        timer = autotune.StepTimer("cpu", clock=clock)
        for number, _ in enumerate(timer.iterate(Loader(clock, batches=8)), start=1):
            if number % 2 == 0:
                timer.step(samples=given)
        assert timer.report().samples_per_s.value == pytest.approx(expected / 60e-3)


def test_a_rare_phase_counts_where_it_ran(timer, clock):
    for number in range(1, 21):
        clock.work(10)
        if number % 10 == 0:
            with timer.phase("save"):
                clock.work(30)
        with timer.phase("forward"):
            clock.work(10)
        timer.step()
    phases = phases_of(timer.report())
    assert (phases["save"].steps, phases["forward"].steps) == (2, 19)
    assert phases["save"].mean_s == pytest.approx(30e-3)


def test_an_error_in_a_phase_passes_and_the_next_step_is_whole(timer, clock):
    run_steps(timer, clock, 3)

    @timer.phase("forward")
    def fail():
        clock.work(1)
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail()
    timer.step()
    run_steps(timer, clock, 1)
    report = timer.report()
    assert report.step_s.tolist() == pytest.approx([25e-3, 25e-3, 1e-3, 25e-3])


def test_a_step_inside_a_phase_is_refused(timer, clock):
    with timer.phase("forward"), pytest.raises(TimingError, match=r"inside the phase 'forward'"):
        timer.step()
    run_steps(timer, clock, 2)
    assert timer.report().steps == 2


def test_a_report_needs_a_complete_step(timer):
    with pytest.raises(TimingError, match=r"call timer\.step\(\)"):
        timer.report()
    with timer.phase("forward"):
        pass
    with pytest.raises(TimingError, match="Phases seen: forward"):
        timer.report()


def test_steps_alone_are_timed_from_the_first_call(timer, clock):
    for _ in range(4):
        clock.work(10)
        timer.step()
    assert timer.report().steps == 3


@pytest.mark.parametrize("name", ["", "a/b", "other", 3])
def test_names_that_cannot_be_told_apart_are_refused(timer, name):
    with pytest.raises(TimingError, match="phase: got"):
        timer.phase(name)


def test_names_with_a_number_in_them_are_refused_at_some_point(timer):
    def enter(number):
        with timer.phase(f"step {number}"):
            pass

    for number in range(MOST_PHASES):
        enter(number)
    with pytest.raises(TimingError, match="without the number of the step"):
        enter(MOST_PHASES)


def test_phases_that_end_out_of_order_are_refused(timer):
    outer, inner = timer.phase("outer"), timer.phase("inner")
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(TimingError, match="'outer' ends while 'outer/inner'"):
        outer.__exit__(None, None, None)


def test_another_thread_is_told_to_have_its_own_timer(timer, clock):
    run_steps(timer, clock, 1)
    errors = []

    def enter():
        try:
            with timer.phase("forward"):
                pass
        except TimingError as error:
            errors.append(str(error))

    thread = threading.Thread(target=enter, name="helper")
    thread.start()
    thread.join()
    assert "'helper'" in errors[0]
    assert "its own StepTimer" in errors[0]
    run_steps(timer, clock, 1)
    assert timer.report().steps == 2


def test_a_disabled_timer_does_nothing(clock):
    def never():
        raise AssertionError("the clock was read")

    timer = autotune.StepTimer(enabled=False, clock=never)

    def function():
        return 1

    assert timer.phase("forward")(function) is function
    for _ in timer.iterate([1, 2]):
        with timer.phase("forward"):
            timer.step()  # no error either: nothing is checked
    report = timer.report()
    assert report.step is None
    assert "disabled" in str(report)
    with pytest.raises(TimingError, match="nothing to plot"):
        report.plot("never.png")


def test_arguments_are_checked():
    with pytest.raises(TimingError, match="keep_steps: got 3"):
        autotune.StepTimer("cpu", keep_steps=3)
    with pytest.raises(ConfigError, match="xpu:7"):
        autotune.StepTimer("xpu:7")


def test_a_long_run_keeps_the_latest_steps_only(clock):
    timer = autotune.StepTimer("cpu", keep_steps=100, clock=clock)
    clock.work(1)
    with timer.phase("forward"):
        clock.work(5000)
    timer.step()
    for number in range(2, 1051):
        with timer.phase("forward"):
            clock.work(number / 100)
        timer.step()
    report = timer.report()
    assert (report.steps, report.first) == (1050, 901)
    assert report.step_s.tolist() == pytest.approx([n / 1e5 for n in range(901, 1051)])
    assert report.warm_up_s == (pytest.approx(5.0),)  # the first step is not forgotten
    assert len(timer._history) < 200


class QueueClock:
    """A device that passes its events only when it is let; counts what is made of them."""

    def __init__(self, host):
        self.host, self.made, self.free, self.passing = host, 0, [], True
        self.busy_until_s = 0.0
        self.asked_early = 0

    def mark(self):
        if not self.free:
            self.made += 1
            self.free.append([0.0])
        point = self.free.pop()
        point[0] = max(self.host(), self.busy_until_s)
        return point

    def queue(self, ms):
        self.busy_until_s = max(self.host(), self.busy_until_s) + ms / 1e3

    def passed(self, point):
        return self.passing

    def wait(self, point):
        self.passing = True

    def seconds(self, first, second):
        self.asked_early += not self.passing
        return second[0] - first[0]

    def release(self, point):
        self.free.append(point)


@pytest.fixture
def device(clock, monkeypatch):
    device = QueueClock(clock)
    monkeypatch.setattr(steps_module, "resolve_device", lambda wanted: torch.device("cuda"))
    monkeypatch.setattr(steps_module, "DeviceClock", lambda which: device)
    return device


def test_host_wait_and_device_stall_are_told_apart(device, clock):
    timer = autotune.StepTimer(clock=clock)
    # 30 ms of waiting and 1 ms of queueing on the host, against 20 ms of work on the device.
    for _ in timer.iterate(Loader(clock, batches=50, wait_ms=30)):
        with timer.phase("forward"):
            device.queue(20)
            clock.work(1)
        timer.step()
    report = timer.report()
    assert report.host_wait_s == pytest.approx(30e-3)
    assert report.stall_s == pytest.approx(11e-3)
    forward = phases_of(report)["forward"]
    assert forward.median_s == pytest.approx(20e-3)
    assert forward.host_s == pytest.approx(1e-3)
    assert "host 30.0 ms a step, during which the device stood still 11.0 ms (35 %" in str(report)


def test_events_are_read_when_passed_and_used_again(device, clock):
    timer = autotune.StepTimer(clock=clock)
    device.passing = False
    run_steps(timer, clock, 5)
    assert device.made == 16  # two for each phase, one for each end, one for the beginning
    device.passing = True
    run_steps(timer, clock, 500)
    assert device.made <= 19
    device.passing = False
    run_steps(timer, clock, 2)
    assert timer.report().steps == 507
    assert device.asked_early == 0


def test_a_phase_that_cannot_begin_leaves_the_timer_as_it_was(device, clock, monkeypatch):
    def capturing():
        raise TimingError("a CUDA graph is being captured")

    timer = autotune.StepTimer(clock=clock)
    with monkeypatch.context() as patch:
        patch.setattr(device, "mark", capturing)
        with pytest.raises(TimingError, match="captured"):
            timer.phase("forward").__enter__()
    run_steps(timer, clock, 3)
    assert timer.report().steps == 3


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")
def test_a_phase_in_a_compiled_function_does_not_crash(timer):
    def forward(x):
        with timer.phase("forward"):
            return 2 * x

    compiled = torch.compile(forward, backend="eager")
    for _ in range(3):
        assert compiled(torch.ones(2)).tolist() == [2, 2]
        timer.step()
    assert timer.report().steps == 3


def test_importing_autotune_stays_light():
    code = (
        "import sys, autotune; print('torch' in sys.modules); autotune.StepTimer;"
        "print([m for m in ('matplotlib', 'mlflow', 'optuna', 'hydra', 'torchvision')"
        " if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split("\n")[:2] == ["False", "[]"]
    assert {"StepTimer", "compare"} <= set(dir(autotune))
