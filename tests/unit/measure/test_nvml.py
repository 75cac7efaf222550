"""A device as NVML tells of it, by a module that stands in for pynvml."""

import sys
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from autotune.measure import nvml as room
from autotune.measure.nvml import DeviceGauges, DeviceName, DeviceWatch, device_name, open_gauges
from autotune.measurement import MachineState, ThrottleReason

ME, CHILD, STRANGER = 100, 101, 999


class NVMLError(Exception):
    pass


class FakeNvml:
    """A device with scripted answers. A call whose answer is None is not supported.

    Its energy counter runs with the clock at 200 W.
    """

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = 0
    NVML_CLOCK_SM = 1

    def __init__(self, **answers):
        self.answers = {
            "Init": (),
            "DeviceGetHandleByUUID": "handle",
            "DeviceGetHandleByPciBusId": "handle",
            "DeviceGetMigMode": [0, 0],
            "DeviceGetTotalEnergyConsumption": lambda: time.perf_counter() * 200e3,
            "DeviceGetPowerUsage": 150_000,
            "DeviceGetTemperature": 61,
            "DeviceGetClockInfo": 1500,
            "DeviceGetMaxClockInfo": 1980,
            "DeviceGetCurrentClocksEventReasons": 0,
            "DeviceGetComputeRunningProcesses": [process(ME), process(CHILD)],
            "DeviceGetProcessUtilization": [sample(ME, 90)],
            **answers,
        }
        self.asked = []
        self.threads = set()

    def __getattr__(self, name):
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments):
            self.asked.append((name.removeprefix("nvml"), arguments))
            self.threads.add(threading.current_thread())
            answer = self.answers.get(name.removeprefix("nvml"))
            if callable(answer):
                answer = answer()
            if answer is None:
                raise NVMLError("Not Supported")
            return answer

        return call


def process(pid):
    return SimpleNamespace(pid=pid)


def sample(pid, used):
    return SimpleNamespace(pid=pid, smUtil=used)


def watch(fake, **changes):
    found = DeviceWatch(
        lambda: DeviceGauges(fake, "handle"),
        own=ME,
        ours=lambda: {ME, CHILD},
        **{"sample_s": 0.01, **changes},
    )
    found.begin()
    return found


def watched(seconds=0.05, changes=None, **answers):
    found = watch(FakeNvml(**answers), **(changes or {}))
    time.sleep(seconds)
    return found.end()


def test_a_window_of_a_device(monkeypatch):
    monkeypatch.setattr(room, "MIN_ENERGY_S", 0.01)
    clocks = iter([1400] + [1600] * 1000)
    heat = iter([55, 63])
    state = watched(
        DeviceGetClockInfo=lambda: next(clocks), DeviceGetTemperature=lambda: next(heat)
    )
    assert 1400 < state.sm_clock_mhz < 1600
    assert state.sm_clock_max_mhz == 1980
    assert state.temperature_c == 63
    assert state.power_w == pytest.approx(200, rel=0.5)
    assert state.energy_j / state.power_w >= 0.05
    assert state.device_processes == 0
    assert state.device_other_share == 0
    assert state.disturbances == ()


def test_energy_is_not_told_of_a_moment():
    state = watched()
    assert state.power_w is None
    assert state.energy_j is None


@pytest.mark.parametrize(("wanted", "told"), [(3, True), (10_000, False)])
def test_without_an_energy_counter_enough_samples_of_power_are_needed(monkeypatch, wanted, told):
    monkeypatch.setattr(room, "MIN_POWER_SAMPLES", wanted)
    state = watched(0.2, DeviceGetTotalEnergyConsumption=None)
    assert state.power_w == 150
    assert (state.energy_j is not None) is told


def test_power_is_not_sampled_where_energy_is_counted():
    fake = FakeNvml()
    found = watch(fake)
    time.sleep(0.05)
    found.end()
    asked = [name for name, _ in fake.asked]
    assert asked.count("DeviceGetClockInfo") > 1
    assert "DeviceGetPowerUsage" not in asked


def test_reasons_are_words_and_settings_are_none():
    bits = iter([0x1 | 0x2 | 0x100, 0x4, 0x8 | 0x40] + [0] * 1000)
    state = watched(0.1, DeviceGetCurrentClocksEventReasons=lambda: next(bits))
    assert state.throttle_reasons == (
        ThrottleReason.SW_POWER_CAP,
        ThrottleReason.HW_SLOWDOWN,
        ThrottleReason.HW_THERMAL,
    )
    assert state.disturbances == (
        "the device lowered its clocks to 1500 of 1980 MHz: hw slowdown, hw thermal",
    )
    assert state.limits == ("the power limit held the device's clocks to 1500 of 1980 MHz",)


def test_an_older_driver_calls_the_reasons_otherwise():
    state = watched(
        DeviceGetCurrentClocksEventReasons=None, DeviceGetCurrentClocksThrottleReasons=0x80
    )
    assert state.throttle_reasons == (ThrottleReason.HW_POWER_BRAKE,)


def test_another_process_counts_and_disturbs_only_if_it_runs():
    idle = watched(DeviceGetComputeRunningProcesses=[process(ME), process(STRANGER)])
    assert idle.device_processes == 1
    assert idle.disturbances == ()
    busy = watched(DeviceGetProcessUtilization=[sample(ME, 60), sample(STRANGER, 30)])
    assert busy.device_other_share == pytest.approx(0.3)
    assert busy.disturbances == ("another process used the device in 30 % of the time",)


def test_in_another_namespace_nothing_is_known_of_others():
    state = watched(
        DeviceGetComputeRunningProcesses=[process(STRANGER)],
        DeviceGetProcessUtilization=[sample(STRANGER, 90)],
    )
    assert state.device_processes is None
    assert state.device_other_share is None
    hidden = watched(DeviceGetComputeRunningProcesses=[])
    assert hidden.device_processes is None


def test_a_sliced_device_tells_no_figures_of_all_slices():
    state = watched(DeviceGetMigMode=[1, 1])
    assert state.sm_clock_mhz == 1500
    found = (state.power_w, state.energy_j, state.device_processes, state.device_other_share)
    assert found == (None,) * 4


def test_a_device_that_tells_nothing():
    answers = dict.fromkeys(FakeNvml().answers)
    assert watched(**answers) == MachineState()


def test_a_driver_that_hangs_is_left_alone():
    forever = threading.Event()
    fake = FakeNvml(DeviceGetClockInfo=lambda: forever.wait())
    found = watch(fake, patience_s=0.1)
    time.sleep(0.05)
    assert found.end() == MachineState()
    asked = len(fake.asked)
    found.begin()
    assert found.end() == MachineState()
    assert len(fake.asked) == asked
    forever.set()


def test_a_driver_that_hangs_at_the_start():
    forever = threading.Event()
    found = DeviceWatch(forever.wait, own=ME, ours=set, patience_s=0.05)
    found.begin()
    assert found.end() == MachineState()
    forever.set()


def test_the_thread_that_trains_makes_no_call():
    fake = FakeNvml()
    watch(fake).end()
    assert threading.current_thread() not in fake.threads
    assert fake.asked


def test_a_window_without_an_end_leaves_no_sampler():
    found = watch(FakeNvml())
    first = found._sampler
    found.begin()
    first.join(5)
    assert not first.is_alive()
    found.end()


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({}, ["GPU-1-2"]),
        ({"DeviceGetHandleByUUID": None}, ["GPU-1-2", "MIG-1-2", "00000000:0a:00.0"]),
    ],
)
def test_the_device_is_found_by_names_that_visibility_does_not_change(monkeypatch, answers, words):
    fake = FakeNvml(**answers)
    monkeypatch.setitem(sys.modules, "fake_nvml", fake)
    name = DeviceName(uuid="1-2", pci="00000000:0a:00.0")
    assert open_gauges(name, "fake_nvml") is not None
    asked = [arguments[0] for called, arguments in fake.asked if "Handle" in called]
    assert asked == words


def test_no_nvml_is_no_gauges(monkeypatch):
    name = DeviceName(uuid="1-2", pci=None)
    assert open_gauges(name, "there_is_no_such_module") is None
    monkeypatch.setitem(sys.modules, "fake_nvml", FakeNvml(Init=None))
    assert open_gauges(name, "fake_nvml") is None
    monkeypatch.setitem(sys.modules, "fake_nvml", FakeNvml(DeviceGetHandleByUUID=None))
    assert open_gauges(name, "fake_nvml") is None


def test_name_of_a_device_as_torch_tells_it(monkeypatch):
    told = SimpleNamespace(uuid="1-2", pci_domain_id=0, pci_bus_id=26, pci_device_id=3)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: told)
    monkeypatch.setattr(torch.version, "hip", None)
    assert device_name(torch.device("cuda")) == DeviceName(uuid="1-2", pci="00000000:1a:03.0")
    del told.uuid, told.pci_bus_id
    assert device_name(torch.device("cuda")) == DeviceName(uuid=None, pci=None)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert device_name(torch.device("cuda")) is None
    assert device_name(torch.device("cpu")) is None
