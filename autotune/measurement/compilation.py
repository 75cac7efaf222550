"""What torch.compile did in a trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CompileReport:
    """What torch.compile did in a trial.

    Attributes:
        compile_s: Seconds of the first step beyond those of a later one.
        cache_hits: Graphs, forward and backward, that came from the compile cache by the end of
            the first steps; None where torch does not tell.
        cache_misses: Those compiled anew; None where torch does not tell.
        graphs: Graphs that the model was cut into.
        graph_breaks: How often each reason cut the model, the most frequent ones; each with its
            file and line where there is one.
        recompiles_before: Compilations before the window beyond the first of each function.
        recompiles_in_window: Compilations inside the window: each of them slowed it.
        recompile_reasons: Why, at most a few: those of the window, where there are some.
        fell_back: Why the model, or a part of it, ran without compiling; None if all was compiled.
        not_compiled: Why such a run is an eager one under another name: torch gave up at its limit
            of recompilations, or compiled nothing. None where it is compiled, if not all of it.
    """

    compile_s: float
    cache_hits: int | None = None
    cache_misses: int | None = None
    graphs: int | None = None
    graph_breaks: Mapping[str, int]
    recompiles_before: int = 0
    recompiles_in_window: int = 0
    recompile_reasons: tuple[str, ...] = ()
    fell_back: str | None = None
    not_compiled: str | None = None

    @property
    def cold(self) -> bool | None:
        """Whether a graph had to be compiled anew, as in a fresh run on a fresh machine.

        False where all came from the cache; None where torch does not tell.
        """
        return None if self.cache_misses is None else self.cache_misses > 0
