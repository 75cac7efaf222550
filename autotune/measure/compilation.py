"""What torch.compile does in a trial, read from torch's own books between the steps.

Torch keeps counters and one entry for each compilation as it goes; they are read at three moments,
none inside a timed window, so watching costs the window nothing. The books are not part of torch's
documented interface (checked with torch 2.9 to 2.14): what another torch lacks is None, not an
error.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from autotune.measurement import CompileReport
from autotune.settings import CompileMode

MANY_GRAPHS = 10
"""Graphs from which a model counts as broken into very many: torch's own guide to graph breaks
calls one or two harmless, and each further one is a return to Python and an end to fusion."""

_REASONS = 5
"""Reasons of one sort that a report holds at most; the most frequent ones."""

_TEXT_LENGTH = 160
"""Characters of a reason at most."""

_ENTRIES_KEPT = 4096
"""Compilations that torch is asked to remember; by itself it keeps 64."""

_CUDA_GRAPH_MODES = (CompileMode.REDUCE_OVERHEAD, CompileMode.MAX_AUTOTUNE)

_LIMIT = re.compile(r"recompile[_ ]limit|cache[_ ]size[_ ]limit", re.IGNORECASE)
_PLACE = re.compile(r"# (\S+:\d+) in \w+")
_TRACE_PLACE = re.compile(r'File "([^"]+)", line (\d+)')


class CompileObserver:
    """Watches torch.compile in this process, from before the model is compiled.

    Ask it in this order: `warmed_up`, `window_begins`, `window_ended` (these two again where the
    window is repeated), `report`.

    Args:
        mode: How the model is compiled.
        device: Where it runs; CUDA graphs are expected on CUDA only.
    """

    def __init__(self, mode: CompileMode, device: torch.device) -> None:
        # The first import of torch._dynamo takes seconds: only trials that compile come here.
        self._books = import_module("torch._dynamo.utils")
        if (keep := getattr(self._books, "set_compilation_metrics_limit", None)) is not None:
            keep(_ENTRIES_KEPT)
        self._skips = _Messages()
        if mode in _CUDA_GRAPH_MODES and device.type == "cuda":
            self._skips.listen()
        self._earlier = self._counters()
        self._earlier_breaks = len(self._breaks())
        self._seen = self._last_entry()
        self._before: list[Any] = []
        self._inside: list[Any] = []
        self._compile_s = 0.0
        self._hits: int | None = None
        self._misses: int | None = None

    def warmed_up(self, first_step_s: float, steady_step_s: float) -> None:
        """Take in the seconds of the first step and of a later one like it.

        What caches did is noted now too: the seconds are those of a cold or a warm cache.
        """
        self._compile_s = max(0.0, first_step_s - steady_step_s)
        self._hits = self._cached("hit")
        self._misses = self._cached("miss")
        if self._hits is None and self._misses is not None:
            self._hits = 0
        if self._misses is None and self._hits is not None:
            self._misses = 0

    def window_begins(self) -> None:
        """Count what was compiled until now, in an earlier window too, as before the window."""
        self._before += self._inside + self._new_entries()
        self._inside = []

    def window_ended(self) -> int:
        """Return how many compilations fell into the window."""
        self._inside = self._new_entries()
        return len(self._compiled_inside)

    @property
    def reasons_in_window(self) -> tuple[str, ...]:
        """Why there were compilations in the window, at most a few."""
        return _most_frequent(map(_recompile_reason, self._compiled_inside))

    def report(self) -> CompileReport:
        """Return what was seen."""
        inside = self._compiled_inside
        again = [entry for entry in self._before if _is_recompile(entry) and not _failed(entry)]
        return CompileReport(
            compile_s=self._compile_s,
            cache_hits=self._hits,
            cache_misses=self._misses,
            graphs=self._graphs(),
            graph_breaks=self._graph_breaks(),
            recompiles_before=len(again),
            recompiles_in_window=len(inside),
            recompile_reasons=_most_frequent(map(_recompile_reason, inside or again)),
            fell_back=self._fell_back(),
            not_compiled=self._not_compiled(),
        )

    @property
    def _compiled_inside(self) -> list[Any]:
        return [entry for entry in self._inside if not _failed(entry)]

    def _counters(self) -> dict[str, Counter[str]]:
        books = getattr(self._books, "counters", {})
        return {name: Counter(books[name]) for name in list(books)}

    def _since(self, group: str, name: str) -> int | None:
        """Return how far a counter has moved since the start; None where it never was used."""
        now = self._counters().get(group, Counter())
        return now[name] - self._earlier.get(group, Counter())[name] if name in now else None

    def _cached(self, outcome: str) -> int | None:
        # A hit in AOTAutograd's cache may come with or without one in the cache beneath it.
        found = (
            self._since("inductor", f"fxgraph_cache_{outcome}"),
            self._since("aot_autograd", f"autograd_cache_{outcome}"),
        )
        return max((count for count in found if count is not None), default=None)

    def _entries(self) -> list[Any]:
        read = getattr(self._books, "get_compilation_metrics", None)
        return [] if read is None else list(read())

    def _last_entry(self) -> Any:
        return next(reversed(self._entries()), None)

    def _new_entries(self) -> list[Any]:
        """Return the compilations of functions since the last call, oldest first."""
        new: list[Any] = []
        for entry in reversed(self._entries()):
            if entry is self._seen:
                break
            new.append(entry)
        if new:
            self._seen = new[0]
        # Backward passes and autotuning at run time have entries of their own.
        return [
            entry
            for entry in reversed(new)
            if getattr(entry, "is_forward", True) is not False
            and not getattr(entry, "is_runtime", False)
        ]

    def _graphs(self) -> int | None:
        made = self._since("stats", "unique_graphs")
        entries = self._before + self._inside
        if not entries:
            return made
        return sum(
            bool(getattr(entry, "graph_op_count", None))
            for entry in entries
            if not _is_recompile(entry)
        )

    def _breaks(self) -> Sequence[Any]:
        found: Sequence[Any] = getattr(self._books, "graph_break_reasons", ())
        return found

    def _graph_breaks(self) -> dict[str, int]:
        reasons = [
            _at(_short(getattr(found, "reason", "")), _user_place(getattr(found, "user_stack", ())))
            for found in self._breaks()[self._earlier_breaks :]
        ]
        return dict(Counter(reasons).most_common(_REASONS))

    def _fell_back(self) -> str | None:
        """Return what ran without compiling, or without the CUDA graphs that its mode is for."""
        found = list(_most_frequent(map(_why_eager, filter(_failed, self._before + self._inside))))
        if not found and self._graphs() == 0:
            unsupported = self._counters().get("unimplemented", Counter())
            unsupported -= self._earlier.get("unimplemented", Counter())
            why = "; ".join(_most_frequent(map(_short, unsupported.elements())))
            found.append("no part of the model was compiled" + (f": {why}" if why else ""))
        if skipped := _most_frequent(map(_why_no_cuda_graphs, self._skips.texts)):
            found.append("ran without CUDA graphs because of " + "; ".join(skipped))
        return "; ".join(found) or None

    def _not_compiled(self) -> str | None:
        """Return why the job is none of the compiled kind; None where it is."""
        given_up = [
            each for each in filter(_failed, self._before + self._inside) if _at_limit(each)
        ]
        if given_up:
            return "; ".join(_most_frequent(map(_why_eager, given_up)))
        return "no part of the model was compiled" if self._graphs() == 0 else None


def compile_notes(report: CompileReport) -> tuple[str, ...]:
    """Return what a reader of a trial's record should know of its compilation, in words."""
    notes: list[str] = []
    if report.fell_back is not None:
        notes.append(f"torch.compile fell back: {report.fell_back}")
    if report.recompiles_in_window:
        why = "; ".join(report.recompile_reasons) or "torch does not say why"
        notes.append(
            f"{report.recompiles_in_window} compilations fell into the window, which they made "
            f"slower: {why}"
        )
    if report.graphs is not None and report.graphs >= MANY_GRAPHS:
        breaks = ", ".join(f"{times} x {why}" for why, times in report.graph_breaks.items())
        notes.append(
            f"the model is broken into {report.graphs} graphs, so little of it is fused"
            + (f": {breaks}" if breaks else "")
        )
    return tuple(notes)


class _Messages(logging.Handler):
    """Keeps what torch says when it leaves out CUDA graphs; its counter does not tell why."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def listen(self) -> None:
        module = import_module("torch._inductor.cudagraph_utils")
        for name in ("cudagraphs_log", "perf_hint_log"):  # from torch 2.10 on, and before
            if (logger := getattr(module, name, None)) is not None:
                logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "cudagraph" in text and ("skipping" in text or "disabling" in text):
            self.texts.append(text)


def _failed(entry: Any) -> bool:
    return getattr(entry, "fail_type", None) is not None


def _at_limit(entry: Any) -> bool:
    return bool(_LIMIT.search(getattr(entry, "fail_reason", None) or ""))


def _is_recompile(entry: Any) -> bool:
    return getattr(entry, "recompile_reason", None) is not None


def _recompile_reason(entry: Any) -> str:
    """Return a reason such as `tensor 'x' size mismatch at index 0. expected 3, actual 5`."""
    full = getattr(entry, "recompile_reason", None)
    if full is None:
        return _at("compiled for the first time", _defined_at(entry))
    first = full.strip().partition("\n")[0]
    place = _PLACE.search(first)
    guard = re.sub(r"^\d+/\d+: ", "", first).partition("  #")[0].partition("(HINT")[0]
    return _at(_short(guard), place.group(1) if place else None)


def _why_eager(entry: Any) -> str:
    reason = getattr(entry, "fail_reason", None) or getattr(entry, "fail_type", None) or ""
    if _at_limit(entry):
        return f"torch's limit of recompilations was reached, last by {_recompile_reason(entry)}"
    name = getattr(entry, "co_name", None) or "a function"
    return f"{name} runs uncompiled: {_at(_short(reason), _defined_at(entry))}"


def _why_no_cuda_graphs(text: str) -> str:
    why = text.partition("due to ")[2] or text
    places = _TRACE_PLACE.findall(text)
    place = _place(places[-1][0], int(places[-1][1])) if places else None
    return _at(_short(why.partition("Found from")[0]), place)


def _defined_at(entry: Any) -> str | None:
    for file, line in (
        ("fail_user_frame_filename", "fail_user_frame_lineno"),
        ("co_filename", "co_firstlineno"),
    ):
        name, number = getattr(entry, file, None), getattr(entry, line, None)
        if name is not None and number is not None:
            return _place(name, number)
    return None


def _user_place(stack: Iterable[Any]) -> str | None:
    """Return the innermost place outside torch, as `net.py:12`; None where there is none."""
    torch_root = str(Path(torch.__file__).parent) + os.sep
    for frame in reversed(list(stack)):
        if not frame.filename.startswith(torch_root):
            return _place(frame.filename, frame.lineno)
    return None


def _place(file: str, line: int) -> str:
    return f"{Path(file).name}:{line}"


def _at(text: str, place: str | None) -> str:
    return text if place is None else f"{text} ({place})"


def _short(text: str) -> str:
    first, _, rest = text.strip().partition("\n")
    if first.endswith(":"):  # what was raised stands on the next line
        first = f"{first} {rest.strip().partition(chr(10))[0]}"
    line = first.strip().rstrip(".")
    return line if len(line) <= _TEXT_LENGTH else line[: _TEXT_LENGTH - 3] + "..."


def _most_frequent(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(text for text, _ in Counter(texts).most_common(_REASONS))
