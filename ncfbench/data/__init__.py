"""Data sets: where they come from, how they are stored, and the graph of their links."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ncfbench.data.content import Split
    from ncfbench.data.graph import BipartiteGraph
    from ncfbench.data.options import SourceOptions
    from ncfbench.data.sources import Progress
    from ncfbench.data.store import Dataset

__all__ = ["BipartiteGraph", "Dataset", "Split", "open_dataset", "prepare"]

_HOMES = {"BipartiteGraph": "graph", "Dataset": "store", "Split": "content"}


def __getattr__(name: str) -> Any:
    """Import what is exported when it is first asked for: help needs no NumPy."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def prepare(
    source: str,
    options: SourceOptions,
    data_dir: Path,
    name: str | None = None,
    *,
    replace: bool = False,
    say: Callable[[str], None],
    progress: Progress = nullcontext,
) -> dict[str, Any]:
    """Read a source, store it as a data set and return the manifest; instant where it was done.

    Args:
        source: a key of :data:`ncfbench.data.sources.SOURCES`.
        options: an instance of the source's ``Options``.
        name: the data set's name; by default the source's.
        replace: replace a data set of that name and other content.
        say: receives messages, a line each.
        progress: makes a context that shows downloads: an object with tqdm's ``total``, ``update``,
            ``reset`` and ``close``, or None.

    Raises:
        DataError: a file is missing or malformed, or the data set cannot be written.
        UsageError: an unknown source, options that cannot work, another source's name, or a data
            set of that name and other content without ``replace``.
        VerificationError: a file is not the published one.
    """
    from ncfbench.data import store
    from ncfbench.data.sources import find_source, refuse_name

    refuse_name(source, name or source)
    preparation = find_source(source).load().plan(options, say=say, progress=progress)
    return store.prepare(data_dir, name or source, source, preparation, say, replace=replace)


def open_dataset(data_dir: Path, name: str, say: Callable[[str], None]) -> Dataset:
    """Load a prepared data set; ``synthetic`` is made first if it is not there.

    Raises:
        DataError: it is not prepared; the message names the command that prepares it.
    """
    from ncfbench.data.store import load, read_manifest

    if name == "synthetic" and read_manifest(data_dir, name) is None:
        from ncfbench.data.sources import synthetic

        say(
            f"Making the synthetic data set in {data_dir / name} (sizes: ncfbench prepare synthetic"
            " --help)."
        )
        prepare(name, synthetic.Options(), data_dir, say=say)
    return load(data_dir, name)
