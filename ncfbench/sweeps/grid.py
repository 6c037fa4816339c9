"""Sweeps: grids of settings, the cells that they give, and the groups whose times are compared.
Pure: no clock, no JAX.

A sweep is a TOML file of settings that are named like the flags of ``ncfbench run``. A list is a
dimension of the grid::

    title = "Two samplers"
    dataset = "synthetic"
    sampler = ["iid", "strat-ns"]
    stratum_size = [2, 4, 8]
    seed = [0, 1, 2]

Every combination is a cell. Combinations that cannot work are left out with the reason; those that
come to the same (``iid`` has no strata, so all its cells of one seed are one) are one cell.
"""

from __future__ import annotations

import itertools
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncfbench.config import FIELDS, MAX_SEED, RunConfig, complete, merge
from ncfbench.errors import UsageError, reason
from ncfbench.registry import find_encoder, find_loss, find_sampler, nearest
from ncfbench.runs.arms import ARM_SETTINGS, Variant, shared_settings

FOLDER = Path(__file__).parent / "presets"
"""TOML files of the sweeps that come with the program; each says what of the paper it repeats."""
IDENTITY = ("dataset", "encoder", "loss", "sampler", "seed")
"""Settings that every label of a cell names."""


@dataclass(frozen=True)
class Sweep:
    """A grid of settings, as read: values by setting (keys as in ``config.json``), one value where
    it does not vary.
    """

    name: str
    title: str
    axes: Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class LeftOut:
    """Combinations that cannot work, and why."""

    reason: str
    combinations: int


@dataclass(frozen=True)
class Grid:
    """The cells of a sweep, the first seed's first; and what was left out."""

    cells: tuple[RunConfig, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True)
class Group:
    """Cells whose times are compared: alike in all but what tells the arms of a comparison apart,
    with one seed.
    """

    cells: tuple[RunConfig, ...]

    @property
    def seed(self) -> int:
        """The seed of all its cells."""
        return self.cells[0].seed


def preset_names() -> tuple[str, ...]:
    """The sweeps that come with the program."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def read(
    source: str,
    *,
    flags: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
    seeds: int | None = None,
) -> Sweep:
    """A sweep from a preset's name or a TOML file, with settings replaced.

    Args:
        flags: settings given by flags; None stands for "not given". A text with commas is a list.
        assignments: ``key=value`` or ``key=value,value`` strings; flags go before them, and they
            before the file.
        seeds: so many seeds, counted on from the sweep's first.

    Raises:
        UsageError: no such preset or file, no TOML, an unknown setting or a malformed value; the
            message names the file, or the flag, and the setting.
    """
    path = _find(source)
    document = _parse(path)
    title = document.pop("title", path.stem)
    if not isinstance(title, str):
        raise UsageError(f"{path}: title = {title!r}: it must be a text.")
    axes = dict(_axis(str(path), key, value) for key, value in document.items())
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(
                f"--set {text!r} is not of the form key=value, for example --set stratum_size=2,4."
            )
        axes |= [_axis("--set", key.strip(), _split(value))]
    for key, value in (flags or {}).items():
        if value is not None:
            axes |= [
                _axis(
                    f"--{key.replace('_', '-')}",
                    key,
                    _split(value) if isinstance(value, str) else value,
                )
            ]
    if seeds is not None:
        if seeds < 1:
            raise UsageError(f"--seeds {seeds}: a sweep needs one seed or more.")
        first = min(axes.get("seed", (RunConfig.seed,)))
        if first + seeds - 1 > MAX_SEED:
            raise UsageError(f"--seeds {seeds}: the last would be above {MAX_SEED}.")
        axes["seed"] = tuple(range(first, first + seeds))
    return Sweep(path.stem, title, axes)


def expand(axes: Mapping[str, Sequence[Any]]) -> Grid:
    """All cells of a grid, each once.

    Raises:
        UsageError: no combination can work; the message gives the first one's reason.
    """
    names = sorted(
        axes, key=lambda name: name != "seed"
    )  # the seed varies slowest: what is done first is whole
    cells: dict[str, RunConfig] = {}
    reasons: dict[str, int] = {}
    for values in itertools.product(*(axes[name] for name in names)):
        try:
            config = complete(dict(zip(names, values, strict=True)))
        except UsageError as error:
            reasons[str(error)] = reasons.get(str(error), 0) + 1
            continue
        cells.setdefault(identity(config), config)
    if not cells:
        raise UsageError(f"No combination of the sweep can work. The first: {next(iter(reasons))}")
    return Grid(
        tuple(cells.values()), tuple(LeftOut(reason, count) for reason, count in reasons.items())
    )


def identity(config: RunConfig) -> str:
    """A text that two configurations share where their runs are the same, their times too."""
    return json.dumps(config.effective() | config.placement, sort_keys=True)


def groups(cells: Sequence[RunConfig]) -> tuple[Group, ...]:
    """The cells in groups whose times are compared, in the order of their first cells."""
    found: dict[str, list[RunConfig]] = {}
    for config in cells:
        shared = json.dumps(shared_settings(config) | {"seed": config.seed}, sort_keys=True)
        found.setdefault(shared, []).append(config)
    return tuple(Group(tuple(members)) for members in found.values())


def labels(cells: Sequence[RunConfig]) -> dict[RunConfig, str]:
    """A short name for each cell: what it trains, and whatever else tells it from the others."""
    settings = [config.to_dict() for config in cells]
    varying = [
        name
        for name in FIELDS
        if name not in (*IDENTITY, *ARM_SETTINGS)
        and len({str(values[name]) for values in settings}) > 1
    ]
    # What the loss or the encoder decides by itself is no news.
    varying = [
        name
        for name in varying
        if any(
            str(values[name]) != str(_default(config)[name])
            for config, values in zip(cells, settings, strict=True)
        )
    ]
    found = {}
    for config, values in zip(cells, settings, strict=True):
        note = Variant.of(config).note(config.encoder)
        parts = [
            config.dataset,
            config.encoder,
            config.loss,
            config.sampler,
            *([note] if note else []),
        ]
        found[config] = " ".join(
            [*parts, *(f"{name}={values[name]}" for name in varying), f"seed {config.seed}"]
        )
    return found


def within(
    cells: Sequence[RunConfig], seconds: Mapping[RunConfig, float], budget: float
) -> tuple[tuple[RunConfig, ...], tuple[str, ...]]:
    """The cells that fit a budget, and what was dropped: the last seeds; if one alone is too much,
    its last groups.

    Groups stay whole, for without its baseline an arm has no speedup.

    Args:
        seconds: predicted for what each cell still needs.
        budget: seconds.

    Raises:
        UsageError: not even the first group fits.
    """

    def whole(parts: Sequence[Sequence[RunConfig]]) -> int:
        """How many parts fit together, from the first on."""
        sums = itertools.accumulate(sum(seconds[config] for config in part) for part in parts)
        return sum(total <= budget for total in sums)

    seeds = list(dict.fromkeys(config.seed for config in cells))
    by_seed = [[config for config in cells if config.seed == seed] for seed in seeds]
    kept = whole(by_seed)
    dropped = [f"seed {seed}" for seed in seeds[max(kept, 1) :]]
    if kept:
        return tuple(config for part in by_seed[:kept] for config in part), tuple(dropped)
    by_group = [group.cells for group in groups(by_seed[0])]
    kept = whole(by_group)
    if not kept:
        needed = sum(seconds[config] for config in by_group[0])
        raise UsageError(
            f"The first cells that belong together are predicted to take {needed:,.0f} s, more than"
            f" the budget of {budget:,.0f} s. Use fewer epochs (--epochs), or fewer cells (for"
            " example --set sampler=ns,strat-ns)."
        )
    for group in by_group[kept:]:
        first = group[0]
        dropped.append(f"{first.dataset} {first.encoder} {first.loss}")
    return tuple(config for part in by_group[:kept] for config in part), tuple(dropped)


def _find(source: str) -> Path:
    names = preset_names()
    if source in names:
        return FOLDER / f"{source}.toml"
    path = Path(source)
    if path.suffix == ".toml" or path.exists():
        return path
    raise UsageError(
        f"Unknown sweep {source!r}{nearest(source, names)} Valid: {', '.join(names)}, or a TOML"
        " file such as my-sweep.toml."
    )


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"Cannot read the sweep {path}: {reason(error)}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {reason(error)}.") from error


def _split(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _axis(where: str, key: str, value: Any) -> tuple[str, tuple[Any, ...]]:
    """A setting's name and its values, checked one by one; ``where`` is the file or the flag that
    gave them.
    """
    values = value if isinstance(value, list) else [value]
    if not values:
        raise UsageError(f"{where}: {key} has no value; a list needs one or more.")
    converted: list[Any] = []
    try:
        for each in values:
            merged, _ = merge({key: each}, environment={})
            if not merged:
                raise UsageError(f"{key}: folders are given by --data-dir and --runs-dir.")
            ((name, plain),) = merged.items()
            check = {"sampler": find_sampler, "loss": find_loss, "encoder": find_encoder}.get(name)
            if check is not None:
                check(plain)
            converted.append(plain)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
    return name, tuple(dict.fromkeys(converted))


def _default(config: RunConfig) -> dict[str, Any]:
    """The settings that come by themselves with a cell's loss and encoder."""
    given = {name: getattr(config, name) for name in ("encoder", "loss", "batch_size")}
    return complete(given | {"sampler": "ns"}).to_dict() | {"batch_size": RunConfig.batch_size}
