"""Data sets: where they come from, how they are stored, and the graph of their links."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ncfbench.data.content import Split
    from ncfbench.data.graph import BipartiteGraph
    from ncfbench.data.store import Dataset, open_dataset, prepare

__all__ = ["BipartiteGraph", "Dataset", "Split", "open_dataset", "prepare"]


def __getattr__(name: str) -> Any:
    """Import what is exported when it is first asked for: help needs no NumPy."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = {"BipartiteGraph": "graph", "Split": "content"}.get(name, "store")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
