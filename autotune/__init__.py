"""autotune: find, prove and export the settings that train a PyTorch job fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.export import Tuned, load_tuned

    __version__: str

__all__ = ["Tuned", "__version__", "load_tuned"]


def __getattr__(name: str) -> Any:
    # Names are looked up when first used (PEP 562), so that `import autotune` stays light.
    if name == "__version__":
        from importlib import metadata

        try:
            return metadata.version("autotune")
        except metadata.PackageNotFoundError:  # a checkout that is not installed
            return "0+unknown"
    if name in __all__:
        from autotune import export

        return getattr(export, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
