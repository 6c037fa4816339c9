"""Grids of settings: presets and TOML files, and the cells that they expand to.

A sweep is a TOML file of settings, named like the flags of ``ncfbench run``. A list is a dimension
of the grid::

    title = "Two samplers"
    dataset = "synthetic"
    sampler = ["iid", "strat-ns"]
    stratum_size = [2, 4, 8]
    seed = [0, 1, 2]

Tables ``[[cells]]`` name combinations of further settings one by one. Every combination of the
values is a cell. Combinations that cannot work are left out with the reason. Combinations that come
to the same are one cell: ``iid`` has no strata, so all its cells of one seed are one.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ncfbench.catalog import BUILT_IN
from ncfbench.config import (
    LOCATION_VARIABLES,
    MAX_SEED,
    SETTINGS,
    RunConfig,
    complete,
    convert,
    default_values,
    identity_of,
    named_once,
    read_toml,
    split_assignment,
    split_list,
    toml_value,
)
from ncfbench.data.assets import name_files
from ncfbench.errors import (
    DataError,
    DivergedError,
    NcfbenchError,
    UsageError,
    first_line,
    nearest,
)
from ncfbench.runs import folder as runs
from ncfbench.runs.arms import ARM_SETTINGS, Variant, shared_settings
from ncfbench.settings import Kind
from ncfbench.sweeps.presets import preset_paths

IDENTITY = ("dataset", "encoder", "loss", "sampler", "seed")
"""Settings that every label of a cell names."""
Status = Literal["done", "diverged", "interrupted", "waiting", "failed"]
STATUSES: Mapping[str, Status] = {"finished": "done", "diverged": "diverged"}
"""Those of cells by those of finished runs."""


@dataclass(eq=False)
class Cell:
    """A run of a sweep, and how far it is: by its folder, or by how its training ended.

    Args:
        config: its settings.
        folder: of its run, made or not; None before :meth:`read`.
    """

    config: RunConfig
    status: Status = "waiting"
    folder: Path | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
    exit_code: int = 0

    @property
    def epochs(self) -> float:
        """Epochs that are done."""
        return float(self.summary.get("epochs") or 0.0)

    @property
    def is_over(self) -> bool:
        """True if training it again changes nothing: it is done, or it diverged."""
        return self.status in ("done", "diverged")

    def read(self, runs_dir: Path, data_fingerprint: str) -> None:
        """Read how far it is. A cell that failed, or whose records are damaged, is ``failed``."""
        self.folder = runs.path_of(runs_dir, self.config, data_fingerprint)
        try:
            is_begun = (self.folder / "summary.parquet").exists()
            self.summary = runs.read(self.folder).summary if is_begun else {}
        except (DataError, UsageError) as error:
            self.fail(error)
        if self.status != "failed":
            status = self.summary.get("status")
            self.status = STATUSES.get(status, "interrupted") if status else "waiting"
            self.message = str(self.summary.get("message") or "")
            self.exit_code = DivergedError.exit_code if self.status == "diverged" else 0

    def fail(self, error: BaseException) -> None:
        """Note the error that ended its training."""
        has_diverged = isinstance(error, DivergedError)
        self.status = "diverged" if has_diverged else "failed"
        self.message = str(error) if has_diverged else first_line(error)
        self.exit_code = getattr(error, "exit_code", NcfbenchError.exit_code)


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
        given[name] = ("--set", split_list(text))
    for name, value in named_once((flags or {}).items(), "The settings").items():
        values = split_list(value) if isinstance(value, str) else value
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


def _read_axes(given: Mapping[str, tuple[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each setting, checked one by one.

    Args:
        given: by setting, the file or the flag that gave it, and a value or a list of values.
    """
    values = {
        name: [*value] if isinstance(value, list | tuple) else [value]
        for name, (_, value) in given.items()
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
                    chosen[kind] = [SETTINGS[name].convert(value) for value in values[name]]
            converted = [convert({name: value}, chosen)[name] for value in values[name]]
        except UsageError as error:
            raise UsageError(f"{origin}: {error}") from error
        axes[name] = tuple(dict.fromkeys(converted))
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
    cells = []
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
        cells.append({name: axes[name][0] for name in named})
    return cells


def expand(
    axes: Mapping[str, Sequence[Any]],
    further: Sequence[Mapping[str, Any]] = (),
    check: Callable[[RunConfig], object] = lambda config: None,
) -> tuple[list[Cell], Counter[str]]:
    """Return the cells of a grid, those of the first seed first, and how many combinations are left
    out by reason.

    Args:
        axes: values by setting; every combination is tried.
        further: combinations of more settings, each tried with every combination of the axes.
        check: raises UsageError for settings that cannot work with their data.

    Raises:
        UsageError: no combination can work; the message gives the first one's reason.
    """
    # The seed varies slowest, so that a sweep that stops early has whole seeds.
    names = sorted(axes, key=lambda name: name != "seed")
    cells: dict[str, Cell] = {}
    left_out: Counter[str] = Counter()
    for *values, more in itertools.product(*(axes[name] for name in names), further or ({},)):
        combination = dict(zip(names, values, strict=True)) | more
        try:
            config = complete(combination, ignore_unknown=True)
            check(config)
        except UsageError as error:
            left_out[str(error)] += 1
        else:
            cells.setdefault(identity(config), Cell(config))
    if not cells:
        raise UsageError(f"No combination of the sweep can work. The first: {next(iter(left_out))}")
    return list(cells.values()), left_out


def identity(config: RunConfig) -> str:
    """Return a text that two cells share if their runs have the same numbers and times."""
    values = identity_of(config) | {"devices": config.devices}
    return json.dumps(values, sort_keys=True, default=str)


def group_cells(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Return the cells in groups whose times are compared, ordered by their first cells.

    A group has one seed, and the same settings but for those of the arms.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        shared = shared_settings(cell.config) | {"seed": cell.config.seed}
        groups.setdefault(json.dumps(shared, sort_keys=True), []).append(cell)
    return list(groups.values())


def label_cells(cells: Sequence[Cell]) -> dict[Cell, str]:
    """Return a unique short name for each cell: what it trains, b, and settings that vary."""
    names, labels = _varying(cells), {}
    for cell in cells:
        config = cell.config
        arm = [config.sampler, Variant.of(config).note(config.encoder)]
        words = [config.dataset, config.encoder, config.loss, *arm, *_values(config, names)]
        labels[cell] = " ".join([*filter(None, words), f"seed {config.seed}"])
    return labels


def _varying(cells: Sequence[Cell]) -> list[str]:
    """Return the settings, beside those of arms and b, in which cells differ from each other and
    some from the defaults: a value that follows from the loss or the encoder distinguishes nothing.
    """
    settings = [cell.config.to_dict() for cell in cells]
    defaults = [default_values(cell.config) for cell in cells]
    of_arms = {name for cell in cells for name in cell.config.sampler_settings}
    return [
        name
        for name in dict.fromkeys(name for values in settings for name in values)
        if name not in {*IDENTITY, *ARM_SETTINGS, "batch_size", *of_arms}
        and len({str(values[name]) for values in settings if name in values}) > 1
        and any(
            str(values[name]) != str(usual[name])
            for values, usual in zip(settings, defaults, strict=True)
            if name in values
        )
    ]


def _values(config: RunConfig, names: Sequence[str]) -> list[str]:
    values = config.to_dict()
    shown = [f"{name}={values[name]}" for name in names if name in values]
    return [f"b={config.batch_size}", *shown]
