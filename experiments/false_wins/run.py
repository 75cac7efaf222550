"""How often two identical settings are called faster or slower.

Each comparison is the confirmation of a study as it is (autotune.tuner.confirm): fresh processes in
turns, rounds until the verdict is clear. The two contestants differ in a setting without effect on
the job at hand: `pin_memory` when the data stay on the device, else `cudnn_benchmark` on a CPU.

    python experiments/false_wins/run.py --count 100 --out FOLDER model=tiny data=tiny ...

Further arguments are those of autotune.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from autotune.cli.compose import compose
from autotune.config import Config, TrackingConfig
from autotune.launch.local import LocalLauncher
from autotune.measurement import JobFacts
from autotune.request import TrialRequest
from autotune.result import Confirmation, Role, TrialRecord
from autotune.settings import Settings
from autotune.statistics import Verdict
from autotune.tracking import make_tracker
from autotune.tuner.confirm import Confirmer
from autotune.tuner.ledger import Ledger
from autotune.tuner.runner import TrialRunner
from autotune.tuner.session import Session
from autotune.tuner.timeplan import TimePlan


class Nobody:
    """An observer that looks away."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **named: None


@dataclass(frozen=True)
class Twins:
    """Two settings that do the same."""

    one: Settings
    other: Settings


def twins(config: Config, facts: JobFacts) -> Twins:
    given = {key: getattr(config.baseline, key) for key in vars(config.baseline)}
    if given["batch_size"] == "auto":
        given["batch_size"] = 32
    one = Settings(**given)
    if facts.resident:
        return Twins(one, replace(one, pin_memory=not one.pin_memory))
    if facts.device.kind == "cpu":
        return Twins(one, replace(one, cudnn_benchmark=not one.cudnn_benchmark))
    raise SystemExit("on a device, give data=resident: no loader setting is without effect there")


class Arena:
    """Runs confirmations, each in a folder of its own."""

    def __init__(self, config: Config, out: Path) -> None:
        self._config = config
        self._out = out
        self._launcher = LocalLauncher()
        self._request = TrialRequest(
            workload=config.workload,
            settings=Settings(batch_size=4),
            probe=config.probe,
            device=config.device,
            seed=config.seed,
            folder=str(out),
            limit_s=config.probe.limit_s,
        )

    def facts(self) -> JobFacts:
        """Return what a first look at the job tells."""
        facts = self._launcher.inspect(replace(self._request, folder=str(self._folder("facts"))))
        if not isinstance(facts, JobFacts):
            raise SystemExit(f"{facts.failure}: {facts.message}")
        return facts

    def measured(self, settings: Settings) -> TrialRecord:
        """Return one trial, to play the search's part with."""
        runner = self._runner(self._folder("measured"), Ledger())
        record = runner.run(Role.BASELINE, settings, label="", limit_s=self._config.probe.limit_s)
        if record.measurement is None:
            raise SystemExit(f"{settings}: {record.failure}")
        return record

    def confirm(self, pair: Twins, record: TrialRecord, name: str) -> Confirmation:
        """Confirm the second of the two as if it had been found to be better than the first."""
        ledger = Ledger()
        ledger.add(_as(record, Role.BASELINE, pair.one, number=0, score=1.0))
        ledger.add(_as(record, Role.SEARCH, pair.other, number=1, score=2.0))
        plan = TimePlan(
            deadline_s=time.monotonic() + 3600,
            rounds=self._config.confirmation.min_rounds,
            limit_s=self._config.probe.limit_s,
            window_s=self._config.probe.window_s,
            rel_halfwidth=self._config.confirmation.rel_halfwidth,
        )
        session = Session(
            ledger=ledger,
            runner=self._runner(self._folder(name), ledger),
            plan=plan,
            clock=time.monotonic,
            observer=Nobody(),
        )
        confirmed = Confirmer(self._config.confirmation, session).confirm()
        if confirmed.confirmation is None:
            raise SystemExit(f"comparison {name} came to nothing: {session.notes}")
        return confirmed.confirmation

    def _folder(self, name: str) -> Path:
        folder = self._out / "trials" / name
        folder.mkdir(parents=True)
        return folder

    def _runner(self, folder: Path, ledger: Ledger) -> TrialRunner:
        return TrialRunner(
            self._request,
            folder=folder,
            launcher=self._launcher,
            tracker=make_tracker(TrackingConfig(kind="none"), folder),
            observer=Nobody(),
            ledger=ledger,
            clock=time.monotonic,
        )


def _as(
    record: TrialRecord, role: Role, settings: Settings, *, number: int, score: float
) -> TrialRecord:
    measurement = record.measurement
    assert measurement is not None
    return replace(
        record,
        role=role,
        number=number,
        score=score,
        outcome=replace(measurement, settings=settings),
    )


def table(seen: list[Confirmation], config: Config, facts: JobFacts) -> str:
    """Return the outcome as Markdown."""
    verdicts = Counter(each.versus_baseline.verdict for each in seen)
    wrong = verdicts[Verdict.FASTER] + verdicts[Verdict.SLOWER]
    sure = binomtest(wrong, len(seen)).proportion_ci(0.95, method="exact")
    ratios = [each.versus_baseline.ratio for each in seen]
    held = sum(r.low is not None and r.high is not None and r.low <= 1 <= r.high for r in ratios)
    apart = sorted(abs(math.log(ratio.value)) for ratio in ratios)
    workload = config.workload
    lines = [
        f"{facts.device.name}; model={workload.model_name} data={workload.data_name}; "
        f"{len(seen)} comparisons, {sum(each.rounds for each in seen)} rounds.",
        "",
        "| verdict | comparisons |",
        "| --- | ---: |",
        *(f"| {verdict} | {verdicts[verdict]} |" for verdict in Verdict),
        "",
        f"FASTER or SLOWER, both wrong: {wrong / len(seen):.1%} "
        f"(95 % interval {sure.low:.1%} to {sure.high:.1%}, Clopper-Pearson).",
        f"The 95 % interval of the ratio held 1 in {held} of {len(seen)} ({held / len(seen):.0%}).",
        f"Ratio's distance from 1: median {math.expm1(apart[len(apart) // 2]):.1%}, "
        f"largest {math.expm1(apart[-1]):.1%}.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=100, help="comparisons")
    parser.add_argument("--minutes", type=float, default=60.0, help="no new one after that")
    parser.add_argument("--out", type=Path, required=True, help="new folder for the results")
    arguments, words = parser.parse_known_args()
    config = compose(words).config
    arguments.out.mkdir(parents=True)
    until = time.monotonic() + 60 * arguments.minutes
    arena = Arena(config, arguments.out.absolute())
    facts = arena.facts()
    pair = twins(config, facts)
    record = arena.measured(pair.one)
    seen: list[Confirmation] = []
    with (arguments.out / "comparisons.jsonl").open("w") as log:
        while len(seen) < arguments.count and time.monotonic() < until:
            seen.append(arena.confirm(pair, record, f"{len(seen):03d}"))
            versus = seen[-1].versus_baseline
            row = {
                "verdict": versus.verdict,
                "ratio": asdict(versus.ratio),
                "rates": {str(arm.arm): arm.rates for arm in seen[-1].arms},
            }
            log.write(json.dumps(row) + "\n")
            log.flush()
            print(f"{len(seen)}: {versus.verdict} {versus.ratio.value:.3f}", flush=True)
    text = table(seen, config, facts)
    (arguments.out / "false_wins.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
