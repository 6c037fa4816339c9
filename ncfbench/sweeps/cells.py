"""The cells of a sweep: how a grid expands, which cells are compared, and how far each one is.

Every combination of a grid's values is a cell. Combinations that cannot work are left out with the
reason. Combinations that come to the same are one cell: ``iid`` has no strata, so all its cells of
one seed are one.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ncfbench.config import (
    RunConfig,
    complete,
    default_values,
    digest,
    identity_of,
    revisions_of,
)
from ncfbench.errors import DataError, DivergedError, UsageError
from ncfbench.runs import folder as runs
from ncfbench.runs.arms import ARM_SETTINGS, Variant, shared_settings

IDENTITY = ("dataset", "encoder", "loss", "sampler", "seed")
"""Settings that every label of a cell names."""
Status = Literal["done", "diverged", "interrupted", "left", "failed"]
BEST_FIRST: tuple[Status, ...] = ("done", "diverged", "interrupted", "left")
"""A cell with several folders has the best of their statuses."""


@dataclass(eq=False)
class Cell:
    """A run of a sweep.

    Args:
        config: its settings.
        folder: of the run; None where there is none. A cell that is ``left`` has no records.
    """

    config: RunConfig
    status: Status = "left"
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


def exit_code(cells: Iterable[Cell]) -> int:
    """Return 0 where no cell failed or diverged, 5 where one diverged, else the first failure's."""
    codes = [cell.exit_code for cell in cells if cell.status in ("diverged", "failed")]
    return next((code for code in codes if code != DivergedError.exit_code), max(codes, default=0))


def has_cell(cells: Iterable[Cell]) -> Callable[[RunConfig], bool]:
    """Return a function that says whether a run is one of some cells."""
    known = {identity(cell.config) for cell in cells}
    return lambda config: identity(config) in known


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
            cells.setdefault(cell_identity(config), Cell(config))
    if not cells:
        raise UsageError(f"No combination of the sweep can work. The first: {next(iter(left_out))}")
    return list(cells.values()), left_out


def cell_identity(config: RunConfig) -> str:
    """Return a text that two cells share if their runs have the same numbers and times."""
    return identity(config, devices=config.devices)


def identity(config: RunConfig, **more: Any) -> str:
    """Return a text that runs share whose settings give the same numbers.

    Args:
        more: values that they share too, or have in place of their own.
    """
    return json.dumps(identity_of(config) | more, sort_keys=True, default=str)


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


def read_progress(
    cells: Sequence[Cell], runs_dir: Path, fingerprints: Mapping[str, str | None]
) -> list[str]:
    """Read all run folders once, and set how far the cells are.

    A cell that failed keeps its status.

    Args:
        fingerprints: fingerprints of the data sets, by name.

    Returns:
        A message for each folder that cannot be used.
    """
    wanted = {
        (cell_identity(cell.config), fingerprints.get(cell.config.dataset)): cell for cell in cells
    }
    digests = {digest(cell.config) for cell in cells}
    states: dict[Cell, tuple[Status, Path | None, Mapping[str, Any]]] = {}
    problems = []
    paths = sorted(runs_dir.glob("*/config.json"), key=lambda path: path.stat().st_mtime_ns)
    for folder in (path.parent for path in paths):
        try:
            config, fingerprint = runs.read_config(folder / "config.json")
            if digest(config) not in digests:
                continue
            if runs.read_revisions(folder / "config.json") != revisions_of(config):
                continue
            cell = wanted.get((cell_identity(config), fingerprint))
            if cell is None:
                continue
            state = _read_state(folder)
        except (DataError, UsageError) as error:
            problems.append(f"Skipped {folder.name}: {error}")
        else:
            # Of equal states the newer, which is read later, counts.
            states[cell] = max(state, states.get(cell, state), key=_rank)
    for cell in cells:
        status, cell.folder, cell.summary = states.get(cell, ("left", None, {}))
        if cell.status != "failed":
            cell.status, cell.message = status, str(cell.summary.get("message") or "")
            cell.exit_code = DivergedError.exit_code if status == "diverged" else 0
    return problems


def _read_state(folder: Path) -> tuple[Status, Path, Mapping[str, Any]]:
    if not (folder / "summary.parquet").exists():
        # The tables are written before the first checkpoint.
        if any((folder / "checkpoints").glob("[0-9]*")):
            raise DataError(f"{folder / 'summary.parquet'} is missing.")
        return "left", folder, {}
    summary = runs.read(folder).summary
    statuses: Mapping[str, Status] = {"finished": "done", "diverged": "diverged"}
    return statuses.get(summary["status"], "interrupted"), folder, summary


def _rank(state: tuple[Status, Path | None, Mapping[str, Any]]) -> tuple[int, float]:
    """Return a key that is larger for a better state."""
    status, _, summary = state
    return -BEST_FIRST.index(status), summary.get("epochs") or 0.0
