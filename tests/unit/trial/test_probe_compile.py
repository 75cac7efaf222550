"""A probe of a compiled model: what is watched, and a window that compiling fell into."""

import itertools

import pytest
import torch

from autotune.config import ProbeConfig, WorkloadSpec
from autotune.request import TrialRequest
from autotune.settings import CompileMode, Settings
from autotune.trial import job
from autotune.trial.probe import Probe
from autotune.workloads.workload import Workload

PROBE = ProbeConfig(window_s=0.3, warmup_s=0.3, ceiling_s=0.1, min_blocks=3)
SPEC = WorkloadSpec(
    model={"_target_": "a.b"}, data={"_target_": "a.b"}, collate=None, loss=None, optimizer={}
)


class Widths(torch.utils.data.IterableDataset):
    """Rows whose length changes once, some batches into the run, or again and again."""

    def __init__(self, widths):
        self.widths = widths

    def __iter__(self):
        for width in self.widths():
            yield torch.randn(width, 4), torch.zeros(width, 4)


class Rows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)


def changes_once():
    yield from itertools.chain(itertools.repeat(3, 12), itertools.repeat(5))


def changes_always():
    yield from itertools.chain(itertools.repeat(3, 12), itertools.count(4))


@pytest.fixture
def probe_of(tmp_path, monkeypatch):
    torch._dynamo.reset()

    def prepare(model, settings):
        if settings.compile is CompileMode.OFF:
            return model
        return torch.compile(model, backend="aot_eager", dynamic=False)

    monkeypatch.setattr(job, "prepare_model", prepare)

    def run(widths, mode=CompileMode.DEFAULT):
        workload = Workload(
            build_model=Rows,
            dataset=Widths(widths),
            collate=lambda rows: rows[0],
            loss=torch.nn.functional.mse_loss,
            build_optimizer=lambda parameters, **options: torch.optim.SGD(parameters, lr=1e-3),
            shuffle=False,
            drop_last=True,
            resident=False,
        )
        request = TrialRequest(
            workload=SPEC,
            settings=Settings(batch_size=1, compile=mode),
            probe=PROBE,
            device="cpu",
            seed=0,
            folder=str(tmp_path),
            limit_s=60,
        )
        probe = Probe(request, torch.device("cpu"), 0.0, lambda stage: None)
        return probe.run(workload)

    yield run
    torch._dynamo.reset()


def test_a_window_with_compiling_in_it_is_measured_once_more(probe_of):
    seen = probe_of(changes_once)
    assert seen.compilation.recompiles_before == 1
    assert seen.compilation.recompiles_in_window == 0
    assert [note for note in seen.notes if "measured again" in note]
    assert "expected 3, actual 5" in seen.notes[0]


def test_a_job_that_goes_on_compiling_is_told(probe_of):
    seen = probe_of(changes_always)
    told = seen.compilation
    # Either the second window had compiling in it as well, or torch gave up in the first.
    assert told.recompiles_in_window > 0 or "limit of recompilations" in told.fell_back
    assert [note for note in seen.notes if "fell into the window" in note or "fell back" in note]


def test_without_compile_nothing_is_watched(probe_of):
    assert probe_of(changes_once, CompileMode.OFF).compilation is None
