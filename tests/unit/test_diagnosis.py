"""The decision, for made-up measurements whose answer is known."""

from dataclasses import replace

import pytest
from factories import BASELINE, BEST, CPU, EXPERT, GPU, make_measurement

from autotune.diagnosis import Bottleneck, Fix, Part, diagnose
from autotune.environment import DeviceInfo
from autotune.measurement import DeviceActivity, Measurement, Phase
from autotune.settings import Settings
from autotune.statistics import Estimate

STEP_MS = 100.0


def seen(
    settings: Settings = EXPERT,
    *,
    device: DeviceInfo = GPU,
    waiting: float = 0.0,
    copying: float = 0.0,
    resident: float | None = None,
    kernels: float | None = None,
    queueing: float | None = None,
    loader: float | None = None,
    noise: float = 0.01,
) -> Measurement:
    """Return a measurement of steps of 100 ms; the shares are of such a step.

    Args:
        settings: What ran.
        device: Where.
        waiting: Share in which the device waited for data.
        copying: Share of the copies.
        resident: What a step with a resident batch takes, as a share of the step.
        kernels: What its kernels fill, likewise; None without a trace.
        queueing: What queueing it takes the host, likewise.
        loader: Rate of the loader alone, as a multiple of the rate.
        noise: Half-width of the ceilings' intervals as a share.
    """
    rate = settings.batch_size / STEP_MS * 1e3
    measured = make_measurement(settings, rate, device=device, stall_share=waiting)
    step_s = measured.window.step_s
    rest = 1 - waiting - copying

    def phase(share: float) -> tuple[float, ...]:
        return tuple(share * step for step in step_s)

    window = replace(
        measured.window,
        phase_s={
            Phase.DATA: phase(waiting + copying),
            Phase.FORWARD: phase(0.3 * rest),
            Phase.BACKWARD: phase(0.6 * rest),
            Phase.OPTIMIZER: phase(0.1 * rest),
        },
    )

    def estimate(value: float) -> Estimate:
        return Estimate(value, value * (1 - noise), value * (1 + noise))

    activity = None
    if kernels is not None:
        activity = DeviceActivity(
            kernels_per_step=900,
            kernel_ms=kernels * STEP_MS,
            copy_ms=1.0,
            copy_pinned=False,
            synchronizations_per_step=0,
        )
    return replace(
        measured,
        window=window,
        device_ceiling=None if resident is None else estimate(rate / resident),
        loader_ceiling=None if loader is None else estimate(rate * loader),
        launch_s=None if queueing is None else queueing * STEP_MS / 1e3,
        activity=activity,
    )


def times(measurement: Measurement, fix: Fix) -> float | None:
    gain = diagnose(measurement).gain(fix)
    return None if gain is None else gain.times.value


def test_the_parts_of_a_step_fill_it() -> None:
    found = diagnose(seen(waiting=0.1, copying=0.05, resident=0.7, kernels=0.5))
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.shares == pytest.approx(
        {
            Part.WAITING: 0.1,
            Part.COPYING: 0.05,
            Part.SLOWED: 0.15,
            Part.IDLE: 0.2,
            Part.COMPUTING: 0.5,
        },
        abs=0.01,
    )


def test_what_is_not_known_apart_is_computing() -> None:
    shares = diagnose(seen(waiting=0.1, copying=0.05)).shares
    assert set(shares) == {Part.WAITING, Part.COPYING, Part.COMPUTING}
    assert shares[Part.COMPUTING] == pytest.approx(0.85)


def test_a_resident_step_slower_than_the_rest_leaves_no_negative_share() -> None:
    shares = diagnose(seen(waiting=0.3, copying=0.1, resident=0.9, kernels=0.95)).shares
    assert min(shares.values()) >= 0
    assert sum(shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("measured", "bottleneck", "causes"),
    [
        (seen(waiting=0.4, resident=0.6), Bottleneck.INPUT_BOUND, (Part.WAITING,)),
        (seen(waiting=0.1, resident=0.9), Bottleneck.MIXED, (Part.WAITING,)),
        (seen(copying=0.3, resident=0.7), Bottleneck.TRANSFER_BOUND, (Part.COPYING,)),
        (seen(resident=1.0, kernels=0.5), Bottleneck.LAUNCH_BOUND, (Part.IDLE,)),
        (
            seen(copying=0.25, resident=0.75, kernels=0.4),
            Bottleneck.MIXED,
            (Part.IDLE, Part.COPYING),
        ),
        (
            seen(copying=0.11, resident=0.89, kernels=0.77),
            Bottleneck.MIXED,
            (Part.IDLE, Part.COPYING),
        ),
        (seen(copying=0.08, resident=0.92, kernels=0.9), Bottleneck.DEVICE_BOUND, ()),
        (seen(waiting=0.02, resident=0.7), Bottleneck.SLOWED, (Part.SLOWED,)),
        (seen(resident=1.0), Bottleneck.DEVICE_BOUND, ()),
    ],
)
def test_the_largest_cause_names_it(
    measured: Measurement, bottleneck: Bottleneck, causes: tuple[Part, ...]
) -> None:
    found = diagnose(measured)
    assert (found.bottleneck, found.causes) == (bottleneck, causes)


def test_a_pipeline_that_waits_is_input_bound_whatever_else_could_be_faster() -> None:
    shares = {"waiting": 0.3, "copying": 0.3, "resident": 0.4}
    assert diagnose(seen(EXPERT, **shares)).bottleneck is Bottleneck.INPUT_BOUND
    # Without workers, one comes after the other: each is worth its share.
    alone = diagnose(seen(BASELINE, **shares))
    assert (alone.bottleneck, set(alone.causes)) == (
        Bottleneck.MIXED,
        {Part.WAITING, Part.COPYING},
    )


def test_both_sides_faster_alone_means_that_they_share_cores() -> None:
    measured = seen(waiting=0.3, resident=0.6, loader=1.4)
    assert diagnose(measured).bottleneck is Bottleneck.SLOWED
    assert times(measured, Fix.UNDISTURBED) == pytest.approx(1.4, rel=0.01)
    assert times(measured, Fix.DATA_FREE) == pytest.approx(1 / 0.6, rel=0.01)


def test_a_loader_no_faster_alone_is_what_the_job_waits_for() -> None:
    measured = seen(waiting=0.3, resident=0.6, loader=1.05)
    assert diagnose(measured).bottleneck is Bottleneck.INPUT_BOUND
    assert times(measured, Fix.UNDISTURBED) is None


def test_copies_are_no_sharing_of_cores() -> None:
    # Copies are in neither ceiling, so both lie above the rate.
    assert diagnose(seen(copying=0.4, resident=0.6, loader=5.0)).bottleneck is (
        Bottleneck.TRANSFER_BOUND
    )


def test_gains_of_each_fix() -> None:
    measured = seen(copying=0.2, resident=0.8, kernels=0.3)
    assert times(measured, Fix.COPIES_HIDDEN) == pytest.approx(1.25, rel=0.01)
    assert times(measured, Fix.LAUNCHES_FREE) == pytest.approx(2.0, rel=0.01)
    gain = diagnose(measured).gain(Fix.LAUNCHES_FREE)
    assert gain is not None
    assert gain.bound


def test_no_gain_goes_beyond_what_the_loader_gives() -> None:
    measured = seen(copying=0.2, resident=0.8, kernels=0.3, loader=1.08)
    assert times(measured, Fix.LAUNCHES_FREE) == pytest.approx(1.08, rel=0.01)
    waiting = seen(waiting=0.3, resident=0.7, kernels=0.4)
    assert times(waiting, Fix.LAUNCHES_FREE) is None, "it would only wait longer"


def test_the_interval_of_a_gain_holds_the_noise_of_both_rates() -> None:
    gain = diagnose(seen(waiting=0.5, resident=0.5, noise=0.05)).gain(Fix.DATA_FREE)
    assert gain is not None
    assert not gain.bound
    assert gain.times.low is not None
    assert gain.times.high is not None
    value = gain.times.value
    # 5 % of the ceiling and less than 1 % of the rate, as squares add up.
    assert gain.times.low == pytest.approx(value / 1.053, rel=0.003)
    assert gain.times.high == pytest.approx(value * 1.05, rel=0.003)


def test_ceilings_within_the_noise_promise_nothing() -> None:
    found = diagnose(seen(resident=0.8, loader=1.3, noise=0.4))
    assert found.bottleneck is Bottleneck.DEVICE_BOUND
    assert found.gains == ()


def test_a_host_that_is_never_ahead_is_launch_bound_or_waits_for_the_device() -> None:
    assert diagnose(seen(resident=1.0, queueing=0.5)).bottleneck is Bottleneck.DEVICE_BOUND
    unsure = diagnose(seen(resident=1.0, queueing=0.95))
    assert (unsure.bottleneck, unsure.synchronizing) == (Bottleneck.LAUNCH_BOUND, True)


def test_a_trace_tells_a_waiting_host_from_an_idle_device() -> None:
    # GradScaler or loss.item() make the host wait, while kernels fill the device's time.
    waits = diagnose(seen(resident=1.0, queueing=0.99, kernels=0.97))
    assert (waits.bottleneck, waits.synchronizing) == (Bottleneck.DEVICE_BOUND, False)
    idles = diagnose(seen(resident=1.0, queueing=0.99, kernels=0.4))
    assert (idles.bottleneck, idles.synchronizing) == (Bottleneck.LAUNCH_BOUND, False)


def test_on_a_cpu_without_workers_nothing_is_slowed_by_loading() -> None:
    found = diagnose(seen(BASELINE, device=CPU, waiting=0.02, resident=0.5))
    assert found.bottleneck is Bottleneck.DEVICE_BOUND
    assert Part.SLOWED not in found.shares
    workers = diagnose(seen(BEST, device=CPU, waiting=0.02, resident=0.5))
    assert workers.bottleneck is Bottleneck.SLOWED
