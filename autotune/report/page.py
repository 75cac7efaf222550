"""The summary page of a study, in Markdown that also reads well as plain text."""

from __future__ import annotations

from collections.abc import Callable

from autotune.measurement import StopReason
from autotune.report import numbers
from autotune.report.bottleneck import bottleneck
from autotune.report.cost import study_cost
from autotune.report.summary import PhaseRow, headline, phase_rows
from autotune.report.table import table
from autotune.result import Arm, ArmResult, Role, StudyEnd, StudyResult, TrialRecord, TrialState
from autotune.settings import KNOBS
from autotune.statistics import LEVEL, VERDICT_LEVEL, Comparison

_LEGEND = "bs: batch_size, w: num_workers, pin: pin_memory, pf: prefetch_factor."

_ENDS = {
    StudyEnd.MINUTES: "the time was used up",
    StudyEnd.TRIALS: "the number of trials was reached",
    StudyEnd.EXHAUSTED: "nothing was left to try",
    StudyEnd.INTERRUPTED: "it was interrupted",
}


def markdown(result: StudyResult, *, view: str | None, address: str | None = None) -> str:
    """Return the whole summary page.

    Args:
        result: The study.
        view: The command that shows the runs; None where none is needed.
        address: Where the runs are to be seen then; None where they are not.
    """
    sections: tuple[tuple[str, Callable[[StudyResult], str]], ...] = (
        ("Settings", _settings),
        ("A step, before and after", _phases),
        ("Bottleneck", _bottlenecks),
        ("Confirmation", _confirmation),
        ("Failed trials", _failures),
        ("All trials", _trials),
        ("What the study cost", _cost),
        ("Environment", _environment),
        ("How it was measured", _method),
        ("Notes", lambda result: _bullets(result.notes)),
    )
    parts = [f"# {result.model} on {result.facts.device.name}", headline(result)]
    for title, write in sections:
        if text := write(result):
            parts.append(f"## {title}\n\n{text}")
    parts.append(f"## Files\n\n{_files(result, view, address)}")
    return "\n\n".join(parts) + "\n"


def _settings(result: StudyResult) -> str:
    before, after = result.baseline.settings.as_dict(), result.recommended.as_dict()
    rows = [
        [knob, _word(before[knob]), _word(after[knob])]
        for knob in KNOBS
        if before[knob] != after[knob]
    ]
    if not rows:
        return f"Nothing changes: {result.baseline.settings.describe()}"
    same = ", ".join(
        f"{knob}={_word(after[knob])}" for knob in KNOBS if before[knob] == after[knob]
    )
    unchanged = f"\n\nUnchanged: {same}" if same else ""
    changed = table(["setting", "baseline", "recommended"], rows)
    if before["batch_size"] != after["batch_size"]:
        unchanged += (
            "\n\nThe batch size changes what an optimizer step sees: set the learning rate for the "
            "new one (for SGD, in proportion to the batch, with a warm-up: Goyal et al. 2017)."
        )
    return changed + unchanged


def _phases(result: StudyResult) -> str:
    rows = phase_rows(result)
    # On a CPU, loading in the training process counts as data too, and is no wait.
    on_data = "time spent on data" if result.facts.device.kind == "cpu" else "waited for data"
    lines: list[tuple[str, Callable[[PhaseRow], str]]] = [
        ("samples/s", lambda row: numbers.rate(row.throughput)),
        ("batch size", lambda row: numbers.count(row.settings.batch_size)),
        ("step, ms", lambda row: numbers.milliseconds(row.step_ms)),
        ("data, ms", lambda row: numbers.milliseconds(row.data_ms)),
        ("forward, ms", lambda row: numbers.milliseconds(row.forward_ms)),
        ("backward, ms", lambda row: numbers.milliseconds(row.backward_ms)),
        ("optimizer, ms", lambda row: numbers.milliseconds(row.optimizer_ms)),
        (on_data, lambda row: numbers.share(row.stall_share)),
        ("host wait, ms", lambda row: numbers.milliseconds(row.host_wait_ms)),
        ("device memory, peak", lambda row: numbers.gibibytes(row.device_memory_bytes)),
        ("host memory, peak", lambda row: numbers.gibibytes(row.host_memory_bytes)),
    ]
    return table(
        ["", *(row.label for row in rows)],
        [[name, *(show(row) for row in rows)] for name, show in lines],
        right=range(1, len(rows) + 1),
    )


def _bottlenecks(result: StudyResult) -> str:
    shown = [("Baseline", result.baseline)]
    if result.best.settings != result.baseline.settings:
        shown.append(("Best", result.best))
    return _bullets(
        tuple(f"{label}: {bottleneck(t.measurement)}" for label, t in shown if t.measurement)
    )


def _confirmation(result: StudyResult) -> str:
    confirmation = result.confirmation
    if confirmation is None:
        return ""
    compared: list[tuple[str, Comparison | None]] = [
        ("best against baseline", confirmation.versus_baseline),
        ("best against expert guess", confirmation.versus_expert),
        ("expert guess against baseline", confirmation.expert_versus_baseline),
    ]
    gains = table(
        ["compared", "samples/s ratio", "verdict", "pairs"],
        [
            [name, numbers.ratio(found.ratio), str(found.verdict), numbers.count(found.pairs)]
            for name, found in compared
            if found is not None
        ],
        right=[1, 3],
    )
    return f"{gains}\n\nSamples/s of each fresh process:\n\n{_rates(confirmation.arms)}"


def _rates(arms: tuple[ArmResult, ...]) -> str:
    labels = {Arm.BASELINE: "baseline", Arm.EXPERT: "expert guess", Arm.BEST: "best"}
    rounds = max(len(arm.rates) for arm in arms)
    rows = [
        [
            str(number + 1),
            *(
                f"{arm.rates[number]:,.1f}" if number < len(arm.rates) else numbers.MISSING
                for arm in arms
            ),
        ]
        for number in range(rounds)
    ]
    rows.append(["mean", *(numbers.rate(arm.throughput) for arm in arms)])
    return table(["round", *(labels[arm.arm] for arm in arms)], rows, right=range(1, len(arms) + 1))


def _failures(result: StudyResult) -> str:
    rows = []
    for kind, times in result.failures.items():
        first = next(t for t in result.trials if t.failure and t.failure.failure == kind)
        message = first.failure.message if first.failure else numbers.MISSING
        rows.append([kind, str(times), f"{first.number:03d}", _shorten(message, 160)])
    return table(["kind", "trials", "first", "its message"], rows, right=[1]) if rows else ""


def _trials(result: StudyResult) -> str:
    baseline = result.baseline.settings
    rows = []
    for trial in result.trials:
        measured = trial.measurement
        rows.append(
            [
                f"{trial.number:03d}",
                str(trial.role),
                trial.settings.label(baseline),
                numbers.rate(measured.window.throughput if measured else None),
                _state(trial),
            ]
        )
    found = table(["trial", "role", "differs from the baseline in", "samples/s", "state"], rows)
    return f"{found}\n\nThe baseline: {baseline.describe()}\n\n{_LEGEND}"


def _state(trial: TrialRecord) -> str:
    if trial.failure is not None:
        return f"{trial.state}: {trial.failure.failure}"
    if trial.infeasible is not None:
        return f"{trial.state}: {trial.infeasible}"
    if trial.state is TrialState.PRUNED and trial.measurement is not None:
        stop = trial.measurement.window.stop
        return f"{trial.state}: {'surely below the best' if stop is StopReason.OUTRACED else stop}"
    return str(trial.state)


def _cost(result: StudyResult) -> str:
    cost = study_cost(result)
    outside = numbers.duration(cost.outside_s_per_trial)
    rows = [[name, numbers.duration(seconds)] for name, seconds in cost.parts]
    return (
        f"{table(['part', 'time'], rows, right=[1])}\n\n"
        f"Trials: {len(result.trials)}; starting and ending a trial's processes took {outside} of "
        f"each on average. The search ended because {_ENDS[result.ended]}."
    )


def _environment(result: StudyResult) -> str:
    stamp, device = result.environment, result.facts.device
    packages = ", ".join(f"{name} {version}" for name, version in stamp.packages.items())
    rows = [
        ["device", f"{device.name} ({device.kind})"],
        ["device memory", numbers.gibibytes(device.memory_bytes)],
        ["processor", stamp.cpu],
        ["usable processors", f"{stamp.usable_cpus} of {stamp.logical_cpus}"],
        ["memory", numbers.gibibytes(stamp.memory_bytes)],
        ["platform", stamp.platform],
        ["python", f"{stamp.python}, workers start by {stamp.start_method}"],
        ["packages", packages],
        ["model", f"{result.model}, {numbers.count(result.facts.parameters)} parameters"],
        ["data", f"{result.data}, {numbers.count(result.facts.dataset_size)} samples"],
    ]
    return table(["", ""], rows)


def _method(result: StudyResult) -> str:
    searched = sum(trial.role is Role.SEARCH for trial in result.trials)
    return (
        "Each trial trained in a fresh process. Throughput is samples over elapsed time of a "
        "window of whole training steps (data, forward, backward, optimizer) between two "
        "synchronisations, after a warm-up; a profiler trace, where there is one, was taken "
        f"after the window. Intervals are {numbers.share(LEVEL)} intervals, in the search from "
        "means of blocks of steps. The baseline was measured first, then the expert guess, then "
        f"{searched} settings of the search. A verdict does not rest on the search's figures: "
        "baseline and best are measured again, interleaved, in fresh processes; the ratio's "
        f"interval comes from those pairs, and the verdict is given at "
        f"{numbers.share(VERDICT_LEVEL)}. Phases and memory are of one trial each."
    )


def _files(result: StudyResult, view: str | None, address: str | None) -> str:
    tuned = f"{result.folder}/tuned.yaml"
    lines = [
        f"The study, with a folder for each trial: `{result.folder}`",
        f"The settings, in Python: `tuned = autotune.load_tuned({tuned!r})`",
    ]
    if view is not None:
        lines.append(f"Runs, metrics and traces: `{view}`")
    if address is not None:
        lines.append(f"In the browser: <{address}>")
    return _bullets(tuple(lines))


def _bullets(lines: tuple[str, ...]) -> str:
    return "\n".join(f"- {' '.join(line.split())}" for line in lines)


def _word(value: object) -> str:
    if value is None:
        return numbers.MISSING
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shorten(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
