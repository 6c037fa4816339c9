"""Sweep files: presets, users' own TOML files, and the copy that a trained sweep leaves behind.

A sweep is a TOML file of settings, named like the flags of ``ncfbench run``. A list is a dimension
of the grid::

    title = "Two samplers"
    dataset = "synthetic"
    sampler = ["iid", "strat-ns"]
    stratum_size = [2, 4, 8]
    seed = [0, 1, 2]

Tables ``[[cells]]`` name combinations of further settings one by one. A sweep that trains writes
its settings, with all replacements made, to ``sweeps/NAME.toml`` below the runs. That file expands
to the same cells.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ncfbench.catalog import BUILT_IN
from ncfbench.config import (
    LOCATION_VARIABLES,
    MAX_SEED,
    SETTINGS,
    RunConfig,
    convert,
    named_once,
    read_toml,
    split_assignment,
    toml_value,
)
from ncfbench.data.assets import name_files
from ncfbench.errors import DataError, UsageError, nearest
from ncfbench.settings import Kind
from ncfbench.storage import tables
from ncfbench.sweeps.presets import preset_paths

FOLDER = "sweeps"
"""Below the folder of the runs: the files of the sweeps that were trained there."""


@dataclass(frozen=True)
class Sweep:
    """A grid of settings.

    Args:
        axes: values by setting (keys as in ``config.json``); one value where it does not vary.
        cells: combinations of further settings; empty for a grid of the axes alone.
    """

    name: str
    title: str
    axes: Mapping[str, tuple[Any, ...]]
    cells: tuple[Mapping[str, Any], ...] = ()

    @property
    def text(self) -> str:
        """The sweep as TOML, which :func:`read_sweep` reads back unchanged."""
        parts: list[tuple[str, Mapping[str, Any]]] = [("", {"title": self.title, **self.axes})]
        parts += [("[[cells]]", cell) for cell in self.cells]
        lines: list[str] = []
        for heading, values in parts:
            lines += ["", heading] if heading else []
            lines += [f"{name} = {toml_value(value)}" for name, value in values.items()]
        return "".join(f"{line}\n" for line in lines)


def with_named_files(sweep: Sweep, data_dir: Path, say: Callable[[str], None]) -> Sweep:
    """Return a sweep in which digests stand for files and folders, whose content is kept.

    Raises:
        DataError, UsageError: see :func:`ncfbench.data.assets.name_files`.
    """
    axes = dict(sweep.axes)
    if (name := "checkpoint") in axes:
        for dataset in axes.get("dataset", (SETTINGS["dataset"].default,)):
            cells = [{"dataset": dataset, name: value} for value in sweep.axes[name]]
            axes[name] = tuple(name_files(cell, data_dir, say)[name] for cell in cells)
    return replace(sweep, axes=axes)


def read_sweep(
    source: str,
    *,
    flags: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
    seeds: int | None = None,
) -> Sweep:
    """Read a sweep from a preset's name or a TOML file, with settings replaced.

    Args:
        flags: settings given by flags; None stands for "not given". A text with commas is a list.
        assignments: ``key=value`` or ``key=value,value`` strings; flags go before them, and they
            before the file.
        seeds: the number of seeds, counted on from the sweep's first.

    Raises:
        UsageError: no such preset or file, no TOML, an unknown setting or a malformed value; the
            message names the file, or the flag, and the setting.
    """
    path = _find(source)
    document = read_toml(path, "the sweep")
    title = document.pop("title", path.stem)
    if not isinstance(title, str):
        raise UsageError(f"{path}: title = {title!r}: it must be a text.")
    listed = document.pop("cells", [])
    in_file = named_once(document.items(), str(path))
    given = {name: (str(path), value) for name, value in in_file.items()}
    for name, text in named_once(map(split_assignment, assignments), "--set").items():
        given[name] = ("--set", _split(text))
    for name, value in named_once((flags or {}).items(), "The settings").items():
        values = _split(value) if isinstance(value, str) else value
        given[name] = (f"--{name.replace('_', '-')}", values)
    replaced = {name for name, (origin, _) in given.items() if origin != str(path)}
    cells, axes = _read_cells(path, listed, given), _read_axes(given)
    if seeds is not None:
        replaced.add("seed")
        in_cells = [cell["seed"] for cell in cells if "seed" in cell]
        axes["seed"] = _count_seeds(seeds, min(axes.get("seed", in_cells or (RunConfig.seed,))))
    kept = ({name: cell[name] for name in cell if name not in replaced} for cell in cells)
    return Sweep(path.stem, title, axes, tuple(filter(None, kept)))


def _count_seeds(count: int, first: int) -> tuple[int, ...]:
    if count < 1:
        raise UsageError(f"--seeds {count}: a sweep needs one seed or more.")
    if first + count - 1 > MAX_SEED:
        raise UsageError(f"--seeds {count}: the last would be above {MAX_SEED}.")
    return tuple(range(first, first + count))


def write_sweep(sweep: Sweep, runs_dir: Path) -> Path:
    """Write a sweep's file to ``sweeps`` below the runs, and return its path.

    The same sweep has the same file. A different sweep of the same name gets a digest of its
    content in the file's name.

    Raises:
        DataError: the file cannot be written.
    """
    name = re.sub(r"[^\w.-]+", "-", sweep.name, flags=re.ASCII)[:64]
    digest = hashlib.sha256(sweep.text.encode("utf-8", "replace")).hexdigest()[:8]
    for stem in (name, f"{name}-{digest}"):
        path = runs_dir / FOLDER / f"{stem}.toml"
        content = f"# To train it again: ncfbench sweep {path.name}\n{sweep.text}"
        encoded = content.encode("utf-8", "replace")
        with tables.storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            found = path.read_bytes() if path.exists() else None
        if found is None:
            with tables.atomic_path(path) as temporary:
                temporary.write_bytes(encoded)
        if found in (None, encoded):
            return path
    raise DataError(f"{path} was changed by hand. Rename it, and repeat the command.")


def _find(source: str) -> Path:
    presets = preset_paths()
    if source in presets:
        return presets[source]
    path = Path(source)
    if path.suffix == ".toml" or path.exists():
        return path
    raise UsageError(
        f"Unknown sweep {source!r}{nearest(source, presets)} Valid: {', '.join(presets)}, or a TOML"
        " file such as my-sweep.toml."
    )


def _split(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _read_axes(given: Mapping[str, tuple[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each setting, checked one by one.

    Args:
        given: by setting, the file or the flag that gave it, and a value or a list of values.
    """
    values = {
        name: value if isinstance(value, list) else [value] for name, (_, value) in given.items()
    }
    chosen: dict[Kind, list[str]] = {kind: [] for kind in BUILT_IN}
    axes = {}
    # What the sweep chooses comes first: it decides which settings are valid.
    for name in sorted(given, key=lambda name: name not in chosen):
        origin = given[name][0]
        if name in LOCATION_VARIABLES:
            raise UsageError(f"{origin}: {name}: folders are given by --data-dir and --runs-dir.")
        if not values[name]:
            raise UsageError(f"{origin}: {name} has no value; a list needs one or more.")
        try:
            for kind in BUILT_IN:
                if kind == name:
                    chosen[kind] = [SETTINGS[name].convert(each) for each in values[name]]
            found = [convert({name: each}, chosen)[name] for each in values[name]]
        except UsageError as error:
            raise UsageError(f"{origin}: {error}") from error
        axes[name] = tuple(dict.fromkeys(found))
    return {name: axes[name] for name in given}


def _read_cells(
    path: Path, listed: Any, given: Mapping[str, tuple[str, Any]]
) -> list[dict[str, Any]]:
    """Return the settings of each table ``[[cells]]``.

    Args:
        given: the settings of the whole sweep.
    """
    if not isinstance(listed, list) or not all(isinstance(cell, dict) for cell in listed):
        raise UsageError(f"{path}: cells must be tables: write [[cells]] above each.")
    shared = {name: value for name, (origin, value) in given.items() if origin == str(path)}
    found = []
    for cell in listed:
        values = named_once(cell.items(), f"{path}: [[cells]]")
        named = {name: (f"{path}: [[cells]]", value) for name, value in values.items()}
        for name, value in values.items():
            if name in shared or isinstance(value, list):
                raise UsageError(
                    f"{path}: [[cells]]: {name} = {toml_value(value)}: a cell has one value for a"
                    " setting, which does not stand above the cells too."
                )
        axes = _read_axes({**given, **named})
        found.append({name: axes[name][0] for name in named})
    return found
