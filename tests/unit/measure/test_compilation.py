"""What the observer reads from torch's books, on tiny models and without a C++ compiler."""

import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from autotune.measure import compilation
from autotune.measure.compilation import CompileObserver, compile_notes
from autotune.measurement import CompileReport
from autotune.settings import CompileMode

CPU = torch.device("cpu")


class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x):
        return self.layer(x).relu()


class Cut(Whole):
    def forward(self, x):
        x = self.layer(x)
        torch._dynamo.graph_break()
        return self.layer(x)


class CutInALoop(Whole):
    def forward(self, x):
        for _ in range(3):
            torch._dynamo.graph_break()
            x = self.layer(x)
        return x


class Counting(Whole):
    def forward(self, x):
        self.calls += 1
        return self.layer(x) * self.calls


@pytest.fixture(autouse=True)
def _forget():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def train(model, sizes):
    for size in sizes:
        model(torch.randn(size, 4)).sum().backward()


def observe(model, before, inside, *, backend="aot_eager"):
    observer = CompileObserver(CompileMode.DEFAULT, CPU)
    compiled = torch.compile(model, backend=backend)
    train(compiled, before)
    observer.warmed_up(3.0, 0.5)
    observer.window_begins()
    train(compiled, inside)
    return observer.window_ended(), observer.report()


def test_a_whole_model_is_one_graph_and_raises_no_note():
    inside, report = observe(Whole(), [3, 3], [3, 3])
    assert (inside, report.graphs, report.graph_breaks) == (0, 1, {})
    assert (report.recompiles_before, report.recompiles_in_window) == (0, 0)
    assert report.fell_back is None
    assert report.not_compiled is None
    assert report.compile_s == 2.5
    assert compile_notes(report) == ()


def test_a_graph_break_has_its_reason_and_place():
    _, report = observe(Cut(), [3, 3], [3])
    assert report.graphs == 2
    ((why, times),) = report.graph_breaks.items()
    assert times == 1
    assert "graph_break()" in why
    assert "test_compilation.py:" in why


def test_a_recompile_counts_where_it_happened():
    _, before = observe(Whole(), [3, 5], [5])
    assert (before.recompiles_before, before.recompiles_in_window) == (1, 0)
    torch._dynamo.reset()
    inside, within = observe(Whole(), [3, 3], [3, 5])
    assert inside == 1
    assert (within.recompiles_before, within.recompiles_in_window) == (0, 1)
    assert "size mismatch at index 0. expected 3, actual 5" in within.recompile_reasons[0]
    assert within.graphs == 1  # of the same cut: the second is another version of it
    assert "1 compilations fell into the window" in compile_notes(within)[0]


def test_a_repeated_window_starts_afresh():
    observer = CompileObserver(CompileMode.DEFAULT, CPU)
    model = torch.compile(Whole(), backend="aot_eager")
    train(model, [3, 3])
    observer.warmed_up(1.0, 1.0)
    observer.window_begins()
    train(model, [5])
    assert observer.window_ended() == 1
    assert "expected 3, actual 5" in observer.reasons_in_window[0]
    observer.window_begins()
    train(model, [5, 5])
    assert observer.window_ended() == 0
    report = observer.report()
    assert (report.recompiles_before, report.recompiles_in_window) == (1, 0)


def test_the_limit_of_recompilations_is_a_fall_back():
    _, report = observe(Counting(), [3] * 5, [3] * 8)
    assert "limit of recompilations" in report.fell_back
    assert "self.calls == 7" in report.fell_back
    assert "fell back" in compile_notes(report)[0]
    assert "limit of recompilations" in report.not_compiled


def test_a_model_of_which_nothing_is_compiled_fell_back():
    _, report = observe(CutInALoop(), [3, 3], [3])
    assert report.graphs == 0
    assert "graph_break()" in report.fell_back
    assert report.not_compiled == "no part of the model was compiled"


def test_a_suppressed_error_is_a_fall_back(monkeypatch):
    def broken(graph, inputs):
        raise RuntimeError("no such backend")

    with torch._dynamo.config.patch(suppress_errors=True):
        _, report = observe(Whole(), [3], [3], backend=broken)
    assert "RuntimeError: no such backend" in report.fell_back


def test_what_was_compiled_earlier_in_the_process_is_not_counted():
    train(torch.compile(Cut(), backend="aot_eager"), [3, 5])
    _, report = observe(Whole(), [3], [3])
    assert (report.graphs, report.graph_breaks, report.recompiles_before) == (1, {}, 0)


def test_caches_are_cold_or_warm(monkeypatch):
    books = torch._dynamo.utils.counters
    observer = CompileObserver(CompileMode.DEFAULT, CPU)
    monkeypatch.setitem(books["inductor"], "fxgraph_cache_hit", 4)
    observer.warmed_up(2.0, 1.0)
    warm = observer.report()
    assert (warm.cache_hits, warm.cache_misses, warm.cold) == (4, 0, False)
    monkeypatch.setitem(books["aot_autograd"], "autograd_cache_miss", 2)
    observer.warmed_up(2.0, 1.0)
    assert observer.report().cold is True


def test_without_cache_counters_it_is_unknown_whether_it_was_cold():
    _, report = observe(Whole(), [3], [3])  # aot_eager has no cache
    assert (report.cache_hits, report.cache_misses, report.cold) == (None, None, None)


def test_reasons_for_leaving_out_cuda_graphs_are_kept():
    from torch._inductor import cudagraph_utils

    observer = CompileObserver(CompileMode.REDUCE_OVERHEAD, torch.device("cuda"))
    train(torch.compile(Whole(), backend="aot_eager"), [3])
    cudagraph_utils.log_cudagraph_skip_and_bump_counter(
        'skipping cudagraphs due to cpu device (device_put). Found from : \n   File "/a/net.py"'
        ", line 12, in forward\n    x.cpu()\n"
    )
    observer.window_begins()
    found = observer.report().fell_back
    assert found == "ran without CUDA graphs because of cpu device (device_put) (net.py:12)"


def test_without_cuda_graphs_in_the_mode_nothing_is_missed():
    from torch._inductor import cudagraph_utils

    observer = CompileObserver(CompileMode.DEFAULT, torch.device("cuda"))
    train(torch.compile(Whole(), backend="aot_eager"), [3])
    cudagraph_utils.log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to cpu device")
    observer.window_begins()
    assert observer.report().fell_back is None


def test_a_torch_without_these_books_gives_none_and_no_error(monkeypatch):
    monkeypatch.setattr(compilation, "import_module", lambda name: SimpleNamespace())
    observer = CompileObserver(CompileMode.REDUCE_OVERHEAD, torch.device("cuda"))
    observer.warmed_up(5.0, 1.0)
    observer.window_begins()
    assert observer.window_ended() == 0
    assert observer.report() == CompileReport(compile_s=4.0, graph_breaks={})


def test_very_many_graphs_get_a_note():
    broken = CompileReport(compile_s=1.0, graphs=40, graph_breaks={"print (net.py:3)": 39})
    (note,) = compile_notes(broken)
    assert "40 graphs" in note
    assert "39 x print (net.py:3)" in note


def test_importing_the_module_does_not_load_the_compiler():
    code = "import sys, autotune.measure.compilation; print('torch._dynamo.utils' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert ran.stdout.strip() == b"False"


@pytest.fixture(autouse=True)
def _no_listeners_left():
    yield
    for logger in list(logging.root.manager.loggerDict.values()):
        for handler in list(getattr(logger, "handlers", ())):
            if isinstance(handler, compilation._Messages):
                logger.removeHandler(handler)
