"""The summary page of a study, in Markdown that also reads well as plain text."""

from __future__ import annotations

from collections.abc import Callable

from autotune.measurement import StopReason
from autotune.report import numbers
from autotune.report.bottleneck import bottleneck, share_table
from autotune.report.compiling import compiling
from autotune.report.cost import study_cost
from autotune.report.machine import disturbance, machine_lines
from autotune.report.numerics import numerics
from autotune.report.phases import phase_table
from autotune.report.spread import process_sentence
from autotune.report.summary import headline
from autotune.report.table import table
from autotune.result import Arm, ArmResult, Role, StudyEnd, StudyResult, TrialRecord, TrialState
from autotune.settings import KNOBS, yaml_word
from autotune.statistics import LEVEL, VERDICT_LEVEL, Comparison, Estimate

_LEGEND = (
    "bs: batch_size, w: num_workers, pin: pin_memory, pf: prefetch_factor, persistent: "
    "persistent_workers, fused: fused_optimizer. What is not named is off or torch's default."
)

_ENDS = {
    StudyEnd.MINUTES: "the time left would not have held another trial and its confirmation",
    StudyEnd.TRIALS: "the number of trials was reached",
    StudyEnd.EXHAUSTED: "nothing was left to try",
    StudyEnd.INTERRUPTED: "it was interrupted",
    StudyEnd.FAILURES: "trial after trial failed alike",
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
        ("A step, before and after", phase_table),
        ("Bottleneck", _bottlenecks),
        ("Compiling", lambda result: _bullets(compiling(result))),
        ("Machine meanwhile", lambda result: _bullets(machine_lines(result))),
        ("Numerics", lambda result: _bullets(numerics(result))),
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
    before, after = result.yours.as_dict(), result.recommended.as_dict()
    rows = [
        [knob, yaml_word(before[knob]), yaml_word(after[knob])]
        for knob in KNOBS
        if before[knob] != after[knob]
    ]
    if not rows:
        return f"Nothing changes: {result.yours.label()}"
    same = ", ".join(
        f"{knob}={yaml_word(after[knob])}" for knob in KNOBS if before[knob] == after[knob]
    )
    unchanged = f"\n\nUnchanged: {same}" if same else ""
    yours = "baseline" if result.configured is None else "yours"
    changed = table(["setting", yours, "recommended"], rows)
    if before["batch_size"] != after["batch_size"]:
        unchanged += (
            "\n\nThe batch size changes what an optimizer step sees: set the learning rate for the "
            "new one (for SGD, in proportion to the batch, with a warm-up: Goyal et al. 2017)."
        )
    return changed + unchanged


def _bottlenecks(result: StudyResult) -> str:
    shown = [("Baseline", result.baseline)]
    if result.best.settings != result.baseline.settings:
        shown.append(("Best", result.best))
    measured = [(label, trial.measurement) for label, trial in shown if trial.measurement]
    sentences = _bullets(tuple(f"{label}: {bottleneck(found)}" for label, found in measured))
    shares = share_table({label: found for label, found in measured})
    return f"{sentences}\n\n{shares}"


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
        ["compared", f"{result.objective.unit} ratio", "verdict", "pairs"],
        [
            [name, numbers.ratio(found.ratio), str(found.verdict), numbers.count(found.pairs)]
            for name, found in compared
            if found is not None
        ],
        right=[1, 3],
    )
    unit = result.objective.unit
    parts = [
        gains,
        f"{unit[0].upper() + unit[1:]} of each fresh process, and their geometric mean:",
        _scores(confirmation.arms, "/s" if result.objective.is_plain else ""),
        process_sentence(confirmation.process_spread),
    ]
    return "\n\n".join(part for part in parts if part)


def _scores(arms: tuple[ArmResult, ...], unit: str) -> str:
    labels = {Arm.BASELINE: "baseline", Arm.EXPERT: "expert guess", Arm.BEST: "best"}
    rounds = max(len(arm.rates) for arm in arms)
    rows = [
        [
            str(number + 1),
            *(
                numbers.rate(Estimate((arm.scores or arm.rates)[number]), unit)
                if number < len(arm.rates)
                else numbers.MISSING
                for arm in arms
            ),
        ]
        for number in range(rounds)
    ]
    rows.append(["mean", *(numbers.rate(arm.score, unit) for arm in arms)])
    return table(["round", *(labels[arm.arm] for arm in arms)], rows, right=range(1, len(arms) + 1))


def _failures(result: StudyResult) -> str:
    lines = []
    for kind, first in result.first_failures.items():
        message = first.failure.message if first.failure else numbers.MISSING
        times = result.failures[kind]
        lines.append(f"{kind}: {times}, the first in trial {first.number:03d}: {message}")
    return _bullets(tuple(lines))


def _trials(result: StudyResult) -> str:
    baseline, plain = result.baseline.settings, result.objective.is_plain
    rows = []
    for trial in result.trials:
        measured = trial.measurement
        rows.append(
            [
                f"{trial.number:03d}",
                str(trial.role),
                trial.settings.label(baseline) or "(baseline)",
                numbers.rate(measured.window.throughput if measured else None),
                *([] if plain else [numbers.plain(trial.score)]),
                f"{_state(trial)}{disturbance(trial)}",
            ]
        )
    score = [] if plain else [result.objective.unit]
    head = ["trial", "role", "differs from the baseline in", "samples/s", *score, "state"]
    found = table(head, rows)
    return f"{found}\n\nThe baseline: {baseline.label()}. {_LEGEND}"


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
        f"Trials: {len(result.trials)}; starting and ending the processes of a measured trial took "
        f"{outside} on average. The search ended because {_ENDS[result.ended]}."
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
        f"{_score(result)}"
    )


def _score(result: StudyResult) -> str:
    """Return what the score is, where it is not the throughput."""
    if result.objective.metric == "energy":
        return (
            " What was maximised is samples per joule: samples of the window over the energy that "
            "the device used in it; the rest of the machine is not in it."
        )
    planned = result.objective.planned_samples
    if planned is None:
        return ""
    return (
        f" What was maximised is planned samples/s: {numbers.count(planned)} samples (the planned "
        "steps times the baseline's batch size) over the seconds that they take at the measured "
        "throughput and the first step, compiling included. The first step is that of a cold "
        "compile cache where the study saw one for the same program, else the trial's own."
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
