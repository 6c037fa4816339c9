"""The cells of a sweep: how a grid expands, which cells belong together, and how far they are.

Every combination of a grid's values is a cell. Combinations that cannot work are left out with the
reason. Combinations that come to the same are one cell: ``iid`` has no strata, so all its cells of
one seed are one.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ncfbench.config import RunConfig, complete, default_values, digest, identity_of
from ncfbench.errors import DataError, UsageError
from ncfbench.runs import folder as runs
from ncfbench.runs.arms import ARM_SETTINGS, Variant, shared_settings

IDENTITY = ("dataset", "encoder", "loss", "sampler", "seed")
"""Settings that every label of a cell names."""


@dataclass(frozen=True)
class LeftOut:
    """A reason why combinations cannot work, and how many it excludes."""

    reason: str
    combinations: int


@dataclass(frozen=True)
class Grid:
    """The cells of a sweep, those of the first seed first, and the combinations left out."""

    cells: tuple[RunConfig, ...]
    combinations: tuple[Mapping[str, Any], ...]
    """The settings that give each cell; the first where several combinations do."""
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True)
class Group:
    """Cells whose times are compared: one seed, and the same settings but for those of the arms."""

    cells: tuple[RunConfig, ...]

    @property
    def seed(self) -> int:
        """The seed that all its cells share."""
        return self.cells[0].seed


def expand(axes: Mapping[str, Sequence[Any]], cells: Sequence[Mapping[str, Any]] = ()) -> Grid:
    """Return all cells of a grid, each once.

    Args:
        axes: values by setting; every combination is tried.
        cells: combinations of further settings, each tried with every combination of the axes.

    Raises:
        UsageError: no combination can work; the message gives the first one's reason.
    """
    # The seed varies slowest, so that a sweep that stops early has whole seeds.
    names = sorted(axes, key=lambda name: name != "seed")
    found: dict[str, tuple[RunConfig, Mapping[str, Any]]] = {}
    reasons: dict[str, int] = {}
    products = itertools.product(*(axes[name] for name in names), cells or ({},))
    for *values, further in products:
        combination = dict(zip(names, values, strict=True)) | further
        try:
            config = complete(combination, ignore_unknown=True)
        except UsageError as error:
            reasons[str(error)] = reasons.get(str(error), 0) + 1
            continue
        found.setdefault(cell_identity(config), (config, combination))
    if not found:
        raise UsageError(f"No combination of the sweep can work. The first: {next(iter(reasons))}")
    return Grid(
        tuple(config for config, _ in found.values()),
        tuple(combination for _, combination in found.values()),
        tuple(LeftOut(reason, count) for reason, count in reasons.items()),
    )


def narrow(
    combinations: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, tuple[Any, ...]], tuple[Mapping[str, Any], ...]]:
    """Return axes and cells that :func:`expand` makes exactly these combinations of.

    There are cells only where no grid is these combinations and no others.

    Args:
        combinations: some of those of a :class:`Grid`.
    """
    shared = [name for name in combinations[0] if all(name in each for each in combinations)]
    axes = {
        name: tuple(dict.fromkeys(settings[name] for settings in combinations)) for name in shared
    }
    wanted = {cell_identity(complete(dict(each), ignore_unknown=True)) for each in combinations}
    if {cell_identity(config) for config in expand(axes).cells} == wanted:
        return axes, ()
    fixed = {name: values for name, values in axes.items() if len(values) == 1}
    cells = [
        {name: value for name, value in settings.items() if name not in fixed}
        for settings in combinations
    ]
    return fixed, tuple(cells)


def cell_identity(config: RunConfig) -> str:
    """Return a text that two cells share if their runs have the same numbers and times."""
    return json.dumps(identity_of(config) | config.placement, sort_keys=True)


def group_cells(cells: Sequence[RunConfig]) -> tuple[Group, ...]:
    """Return the cells in groups whose times are compared, ordered by their first cells."""
    found: dict[str, list[RunConfig]] = {}
    for config in cells:
        shared = json.dumps(shared_settings(config) | {"seed": config.seed}, sort_keys=True)
        found.setdefault(shared, []).append(config)
    return tuple(Group(tuple(members)) for members in found.values())


def label_cells(cells: Sequence[RunConfig]) -> dict[RunConfig, str]:
    """Return a unique short name for each cell: what it trains, b, and settings that vary."""
    names = _varying(cells)
    found = {}
    for config in cells:
        note = Variant.of(config).note(config.encoder)
        found[config] = " ".join(
            [
                config.dataset,
                config.encoder,
                config.loss,
                config.sampler,
                *([note] if note else []),
                *_values(config, names),
                f"seed {config.seed}",
            ]
        )
    return found


def _label_group(cells: Sequence[RunConfig], names: Sequence[str]) -> str:
    """Return the name of cells that are compared with each other.

    Args:
        names: settings that vary among groups.
    """
    first = cells[0]
    return " ".join([first.dataset, first.encoder, first.loss, *_values(first, names)])


def _varying(cells: Sequence[RunConfig]) -> list[str]:
    """Return the settings, beside those of arms and b, in which cells differ from each other and
    some from the defaults: a value that follows from the loss or the encoder distinguishes nothing.
    """
    settings = [config.to_dict() for config in cells]
    defaults = [default_values(config) for config in cells]
    return [
        name
        for name in dict.fromkeys(name for values in settings for name in values)
        if name not in (*IDENTITY, *ARM_SETTINGS, "batch_size")
        and not any(name in config.arm_settings for config in cells)
        and len({str(values[name]) for values in settings if name in values}) > 1
        and any(
            str(values[name]) != str(usual[name])
            for values, usual in zip(settings, defaults, strict=True)
            if name in values
        )
    ]


def _values(config: RunConfig, names: Sequence[str]) -> list[str]:
    """Return b and some settings as a label shows them."""
    values = config.to_dict()
    return [
        f"b={config.batch_size}",
        *(f"{name}={config.settings[name].text(values[name])}" for name in names if name in values),
    ]


def fit_budget(
    cells: Sequence[RunConfig], seconds: Mapping[RunConfig, float], budget: float
) -> tuple[tuple[RunConfig, ...], tuple[str, ...]]:
    """Return the cells that fit a budget, and names of what was dropped.

    The last seeds are dropped first. If one seed alone exceeds the budget, its last groups are
    dropped. Groups stay whole: an arm without its baseline has no speedup.

    Args:
        seconds: predicted seconds that each cell still needs.
        budget: seconds.

    Raises:
        UsageError: not even the first group fits.
    """

    def count_fitting(parts: Sequence[Sequence[RunConfig]]) -> int:
        """Return how many parts fit together, from the first on."""
        sums = itertools.accumulate(sum(seconds[config] for config in part) for part in parts)
        return sum(total <= budget for total in sums)

    seeds = list(dict.fromkeys(config.seed for config in cells))
    by_seed = [[config for config in cells if config.seed == seed] for seed in seeds]
    kept = count_fitting(by_seed)
    dropped = [f"seed {seed}" for seed in seeds[max(kept, 1) :]]
    if kept:
        return tuple(config for part in by_seed[:kept] for config in part), tuple(dropped)
    by_group = [group.cells for group in group_cells(by_seed[0])]
    kept = count_fitting(by_group)
    if not kept:
        needed = sum(seconds[config] for config in by_group[0])
        raise UsageError(
            f"The first group of cells is predicted to take {needed:,.0f} s, and the budget is"
            f" {budget:,.0f} s. Use fewer epochs (--epochs), or fewer cells (for example --set"
            " sampler=ns,strat-ns)."
        )
    names = _varying(cells)
    dropped += [_label_group(group, names) for group in by_group[kept:]]
    return tuple(config for part in by_group[:kept] for config in part), tuple(dropped)


Status = Literal["done", "diverged", "interrupted", "left"]
STATUSES: tuple[Status, ...] = ("done", "diverged", "interrupted", "left")
"""The best first: a cell with several folders has the best of their statuses."""


@dataclass(frozen=True)
class CellState:
    """Progress of a cell. A cell that is ``left`` has no records, though it may have a folder."""

    status: Status = "left"
    folder: Path | None = None
    epochs: float = 0.0
    summary: Mapping[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        """True if training it again changes nothing: it is done, or it diverged."""
        return self.status in ("done", "diverged")


@dataclass(frozen=True)
class SweepStatus:
    """The state of each cell, and a message for each folder that cannot be used."""

    states: Mapping[RunConfig, CellState]
    problems: tuple[str, ...]


def read_status(
    runs_dir: Path, cells: Sequence[RunConfig], fingerprints: Mapping[str, str | None]
) -> SweepStatus:
    """Read all run folders once, and return how far the cells are.

    Args:
        fingerprints: fingerprints of the data sets, by name; None for one that is not prepared,
            so that no run matches.
    """
    wanted = {(cell_identity(config), fingerprints.get(config.dataset)): config for config in cells}
    digests = {digest(config) for config in cells}
    found = dict.fromkeys(cells, CellState())
    problems = []
    paths = sorted(runs_dir.glob("*/config.json"), key=lambda path: path.stat().st_mtime_ns)
    for folder in (path.parent for path in paths):
        try:
            config, fingerprint = runs.read_config(folder / "config.json")
            if digest(config) not in digests:
                continue
            # A run that was resumed on other devices is no longer the cell's.
            config, _ = runs.read_last_settings(folder)
            cell = wanted.get((cell_identity(config), fingerprint))
            if cell is not None:
                # Of equal states the newer, which is read later, counts.
                found[cell] = max(_read_state(folder), found[cell], key=_rank)
        except (DataError, UsageError) as error:
            problems.append(f"Skipped {folder.name}: {error}")
    return SweepStatus(found, tuple(problems))


def _read_state(folder: Path) -> CellState:
    if not (folder / "summary.parquet").exists():
        # The tables are written before the first checkpoint.
        if any((folder / "checkpoints").glob("[0-9]*")):
            raise DataError(f"{folder / 'summary.parquet'} is missing.")
        return CellState("left", folder)
    summary = runs.read(folder).summary
    statuses: Mapping[str, Status] = {"finished": "done", "diverged": "diverged"}
    status = statuses.get(summary["status"], "interrupted")
    return CellState(status, folder, float(summary["epochs"] or 0.0), summary)


def _rank(state: CellState) -> tuple[int, float]:
    """Return a key that is larger for a better state."""
    return -STATUSES.index(state.status), state.epochs
