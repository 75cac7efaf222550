"""The timed window of a trial: run, and run again where it was spoilt."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from autotune.measure.compilation import CompileObserver
from autotune.measure.machine import MachineWatch
from autotune.measure.timers import make_timer
from autotune.measure.warmup import transient_note
from autotune.measure.window import StopRule, run_window, steps_per_block
from autotune.measurement import Window
from autotune.statistics import Estimate
from autotune.trial.bench import Bench
from autotune.trial.job import TrainingJob

HOPELESS = 0.7
"""A device ceiling below this share of the best rate shortens the window to a quarter. Ceilings
are noisy estimates (measured on a ResNet-50 grid: 9 of 86 were passed, by up to 36 %), so such a
trial is still measured, only for less long."""

PHASES_AGREE_WITHIN = 0.01
"""Largest share of a window that its steps may leave out, or have too much, before the record says
so. On an H200 it was 0.3 % at most, where the host was late to see the end of a window."""

REPEAT_ROOM = 2.0
"""Windows as long as the disturbed one that must fit into the rest of the trial's time for it to be
measured again: the second one, which may take somewhat longer, and what follows it."""

WINDOW_ROOM = 0.4
"""Share of the time left to a trial that its window may take. A window may overrun its time twice
over to fill its blocks, and a short one tells more than a trial that is killed in a long one."""


class Score:
    """Times one job under the bench's order.

    Attributes:
        repeated: Windows measured again because the machine was disturbed.

    Args:
        bench: The trial.
        job: Warm, its loader's prepared batches used up.
        batches: Where its batches come from.
        compiling: Watches torch.compile; None where it is off.
    """

    def __init__(
        self,
        bench: Bench,
        job: TrainingJob,
        batches: Iterator[Any],
        compiling: CompileObserver | None,
    ) -> None:
        self.repeated = 0
        self._bench = bench
        self._step = partial(job.step, batches)
        self._compiling = compiling
        self._watch = MachineWatch(bench.device)

    def window(self, step_s: float, ceiling: Estimate | None) -> Window:
        """Return the window that the score comes from.

        Args:
            step_s: Typical seconds of a step.
            ceiling: Throughput with a resident batch; None where it was not measured.
        """
        with self._bench.part("window_s", "window"):
            window = self._undisturbed(self._rule(step_s, ceiling))
        if abs(window.untimed_share) > PHASES_AGREE_WITHIN:
            self._bench.note(
                f"the phases sum up to {1 - window.untimed_share:.1%} of the window: take them, "
                "and the waiting for data, for no more exact than that"
            )
        self._bench.note(transient_note(window.step_s, window.steps_per_block))
        return window

    def _rule(self, step_s: float, ceiling: Estimate | None) -> StopRule:
        request = self._bench.request
        probe, best = request.probe, request.race_against
        hopeless = ceiling is not None and best is not None and ceiling.value < HOPELESS * best
        wanted_s = probe.window_s / 4 if hopeless else probe.window_s
        return StopRule(
            rel_halfwidth=probe.rel_halfwidth,
            cap_s=min(wanted_s, max(0.0, WINDOW_ROOM * self._bench.left_s)),
            min_blocks=probe.min_blocks,
            min_steps=probe.min_steps,
            steps_per_block=steps_per_block(request.settings.num_workers, step_s),
            race_against=best,
        )

    def _undisturbed(self, rule: StopRule) -> Window:
        """Return a window; of two, if the machine disturbed the first, the less disturbed one.

        Which one is kept is up to the machine's state alone. Keeping the faster one would let
        chance flatter the settings that are measured twice.
        """
        window = self._without_compiling(rule)
        if not window.disturbances:
            return window
        room = self._bench.left_s >= REPEAT_ROOM * window.elapsed_s
        if self._bench.request.repeat_disturbed and room:
            self.repeated += 1
            again = self._without_compiling(rule)
            if not again.disturbances:
                self._bench.note(
                    "the window is the second one; the first was disturbed: "
                    f"{'; '.join(window.disturbances)}"
                )
                return again
            window = min(window, again, key=_lost_share)
        self._bench.note(
            f"the window was disturbed: {'; '.join(window.disturbances)}. "
            "The settings may be faster on a quiet machine"
        )
        return window

    def _without_compiling(self, rule: StopRule) -> Window:
        """Return a window; the second one, if there was compiling in the first.

        What was compiled in the first is there for the second, so the first was the warm-up that
        was still missing; a longer warm-up beforehand would have had to guess for how long. A job
        that goes on compiling does so in training too, so the second one stands as it is.
        """
        window = self._run(rule)
        if self._compiling is None or not self._compiling.window_ended():
            return window
        self._bench.note(
            "the window was measured again, as there was compiling in the first one: "
            + "; ".join(self._compiling.reasons_in_window)
        )
        window = self._run(rule)
        self._compiling.window_ended()
        return window

    def _run(self, rule: StopRule) -> Window:
        if self._compiling is not None:
            self._compiling.window_begins()
        return run_window(
            self._step,
            timer=make_timer(self._bench.device),
            rule=rule,
            synchronize=self._bench.synchronize,
            watch=self._watch,
        )


def _lost_share(window: Window) -> float:
    return 0.0 if window.machine is None else window.machine.lost_share
