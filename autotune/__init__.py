"""autotune: find, prove and export the settings that train a PyTorch job fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.export import Tuned, load_tuned
    from autotune.timing import StepTimer, compare

    __version__: str

__all__ = ["StepTimer", "Tuned", "__version__", "compare", "load_tuned"]


def __getattr__(name: str) -> Any:
    # Names are looked up when first used (PEP 562), so that `import autotune` stays light.
    if name == "__version__":
        from importlib import metadata

        try:
            return metadata.version("autotune")
        except metadata.PackageNotFoundError:  # a checkout that is not installed
            return "0+unknown"
    if name in ("Tuned", "load_tuned"):
        from autotune import export

        return getattr(export, name)
    if name in ("StepTimer", "compare"):
        from autotune import timing

        return getattr(timing, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
