"""What the probe adds to a measurement, in this process on a tiny job."""

from dataclasses import replace

import pytest
import torch

from autotune.config import ProbeConfig, WorkloadSpec
from autotune.request import TrialRequest
from autotune.settings import Settings
from autotune.trial import probe as probe_module
from autotune.trial import score as score_module
from autotune.trial.probe import Probe
from autotune.workloads.build import build_workload

WORKLOAD = WorkloadSpec(
    model={"_target_": "autotune.workloads.tiny.tiny_model"},
    data={"_target_": "autotune.workloads.tiny.tiny_images"},
    collate=None,
    loss={"_target_": "torch.nn.functional.cross_entropy"},
    optimizer={"_target_": "torch.optim.SGD", "lr": 0.01},
)
# The loader's cap is long and its target wide, so that a busy machine does not decide what is seen.
QUICK = ProbeConfig(
    rel_halfwidth=0.9,
    window_s=0.1,
    warmup_s=0.1,
    ceiling_s=0.1,
    loader_ceiling_s=60.0,
    min_blocks=2,
    min_steps=2,
)


def measure(tmp_path, workload=None, **changes):
    request = TrialRequest(
        workload=WORKLOAD,
        settings=Settings(batch_size=8),
        probe=QUICK,
        device="cpu",
        seed=0,
        folder=str(tmp_path),
        limit_s=60.0,
    )
    request = replace(request, **changes)
    stages = []
    probe = Probe(request, torch.device("cpu"), 0.0, stages.append)
    return probe.run(workload or build_workload(WORKLOAD)), stages


def test_the_loader_alone_comes_after_score_and_trace(tmp_path):
    seen, stages = measure(tmp_path, loader_above=0.0, profile_above=0.0)
    assert stages[-3:] == ["window", "profile", "loader ceiling"]
    assert seen.loader_ceiling.value > seen.window.samples_per_s, "it trains nothing"
    assert seen.costs.loader_ceiling_s > 0
    assert seen.costs.profile_s > 0
    assert seen.launch_s is None, "a CPU queues nothing"


@pytest.mark.parametrize(
    "changes",
    [
        {"loader_above": None},
        {"loader_above": 1e12},
        {"loader_above": 0.0, "probe": replace(QUICK, loader_ceiling_s=1e-9)},
    ],
    ids=["not asked for", "too slow a trial", "too short for a batch"],
)
def test_the_loader_alone_is_not_timed_where_it_is_not_worth_it(tmp_path, changes):
    seen, stages = measure(tmp_path, **changes)
    assert stages[-1] == "window"
    assert seen.loader_ceiling is None
    assert seen.costs.loader_ceiling_s is None


class Failing(torch.utils.data.Dataset):
    """A dataset that fails once the window is over."""

    def __init__(self, data):
        self._data = data
        self.over = False

    def __len__(self):
        return len(self._data)

    def __getitem__(self, index):
        if self.over:
            raise KeyError("gone")
        return self._data[index]


def test_a_loader_that_fails_after_the_score_is_a_note(tmp_path, monkeypatch):
    workload = build_workload(WORKLOAD)
    failing = Failing(workload.dataset)
    loader_window = probe_module.loader_window

    def fail_now(*args, **kwargs):
        failing.over = True
        return loader_window(*args, **kwargs)

    monkeypatch.setattr(probe_module, "loader_window", fail_now)
    seen, _ = measure(tmp_path, replace(workload, dataset=failing), loader_above=0.0)
    assert seen.window.samples_per_s > 0
    assert seen.loader_ceiling is None
    assert any("no loader ceiling: KeyError: 'gone'" in note for note in seen.notes)


@pytest.mark.parametrize(("factor", "noted"), [(1.0, False), (1.05, True), (0.95, True)])
def test_phases_that_do_not_sum_up_to_the_window_are_told(tmp_path, monkeypatch, factor, noted):
    run_window = score_module.run_window

    def stretched(*args, **kwargs):
        window = run_window(*args, **kwargs)
        return replace(window, elapsed_s=factor * sum(window.step_s))

    monkeypatch.setattr(score_module, "run_window", stretched)
    seen, _ = measure(tmp_path)
    assert any("the phases sum up to" in note for note in seen.notes) is noted
