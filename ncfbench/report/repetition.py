"""Sweeps that train given runs again: as few TOML files as give exactly these, for ``ncfbench sweep``.

A run trained by itself repeats the curve of one that was in a sweep, and not its times, for those took turns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ncfbench.config import FIELDS, RunConfig
from ncfbench.errors import UsageError
from ncfbench.report.comparison import defaults
from ncfbench.sweeps import IDENTITY, expand, identity
from ncfbench.tuning import Budget

LARGEST = 2000
"""Combinations of one seed up to which a grid is tried; grids that are exact are far smaller."""


@dataclass(frozen=True)
class Repetition:
    """A sweep that gives some runs and no others."""

    axes: Mapping[str, tuple[Any, ...]]
    """Values by setting, as :func:`ncfbench.sweeps.read` returns them."""
    runs: int
    tuned: str = ""
    """What was tuned (:attr:`ncfbench.config.RunConfig.tuned`): it is tuned again."""

    def toml(self) -> str:
        """The file: a line for each setting."""
        lines = []
        for name, values in self.axes.items():
            texts = [json.dumps(value, ensure_ascii=False) for value in values]  # which TOML writes alike
            lines.append(f"{name} = {texts[0] if len(texts) == 1 else '[' + ', '.join(texts) + ']'}")
        return "\n".join(lines) + "\n"

    def words(self, file: str) -> list[str]:
        """The command, for a file of that name."""
        words = ["ncfbench", "sweep", file]
        if self.tuned:
            budget = Budget.of(self.tuned)
            words += ["--tune", str(budget.trials), "--tune-epochs", str(budget.epochs)]
            words += ["--tune-over", ",".join(budget.settings)]
        return words


def repetitions(configs: Iterable[RunConfig]) -> list[Repetition]:
    """Sweeps whose cells are the given runs, each once.

    Arms of the same seeds are put together two by two, as long as their grid has no cell that neither has; what a grid
    leaves out because it cannot work does not count. Tuned settings are left to the tuning.
    """
    arms: dict[tuple[str, str], tuple[RunConfig, list[int]]] = {}
    for config in configs:
        arm = _untuned(config)
        seeds = arms.setdefault((config.tuned, identity(arm)), (arm, []))[1]
        seeds += [config.seed] if config.seed not in seeds else []
    groups: dict[tuple[str, tuple[int, ...]], list[list[RunConfig]]] = {}
    # Arms of usual settings first, so that these are in one file and take turns.
    for (tuned, _), (arm, seeds) in sorted(arms.items(), key=lambda item: len(_axes([item[1][0]]))):
        groups.setdefault((tuned, tuple(sorted(seeds))), []).append([arm])
    return [
        Repetition(_axes(block) | {"seed": seeds}, len(block) * len(seeds), tuned)
        for (tuned, seeds), blocks in groups.items()
        for block in _merged(blocks)
    ]


def _untuned(config: RunConfig) -> RunConfig:
    """A run's arm: one seed for all, and the settings that a tuning chose as they are by themselves."""
    plain = defaults(config)
    return replace(config, seed=RunConfig.seed, tuned="", **{name: plain[name] for name in config.tuned_settings})


def _merged(blocks: list[list[RunConfig]]) -> list[list[RunConfig]]:
    """Blocks of arms put together until no two of them make a grid of just their arms."""
    blocks, done = list(blocks), 0
    while done < len(blocks):
        # All before ``done`` go with none of each other; what has grown is tried again with all of them.
        partner = next((place for place in range(done) if _go_together(blocks[place], blocks[done])), None)
        if partner is None:
            done += 1
        else:
            grown = blocks[partner] + blocks[done]
            blocks = [*blocks[:partner], *blocks[partner + 1 : done], grown, *blocks[done + 1 :]]
            done -= 1
    return blocks


def _go_together(one: list[RunConfig], other: list[RunConfig]) -> bool:
    """Whether two blocks make a grid of just their arms, and a natural one: not the s of some beside the k of others."""
    names = [set(_axes(block)) for block in (one, other)]
    return (names[0] <= names[1] or names[1] <= names[0]) and _is_grid(one + other)


def _is_grid(arms: Sequence[RunConfig]) -> bool:
    axes = _axes(arms)
    if math.prod(len(values) for values in axes.values()) > LARGEST:
        return False
    try:
        cells = expand(axes).cells
    except UsageError:
        return False
    return {identity(cell) for cell in cells} == {identity(arm) for arm in arms}


def _axes(arms: Sequence[RunConfig]) -> dict[str, tuple[Any, ...]]:
    """The arms' values of every setting that one of them has otherwise than by default, and uses."""
    used = [arm.effective() for arm in arms]
    plain = [defaults(arm) for arm in arms]
    axes: dict[str, tuple[Any, ...]] = {}
    for name in sorted(FIELDS, key=lambda name: name not in IDENTITY):
        values = [values[name] for values in used if values[name] is not None]
        told = any(own[name] not in (None, default[name]) for own, default in zip(used, plain, strict=True))
        if name != "seed" and (name in IDENTITY or told):
            unique = tuple(dict.fromkeys(values))
            numbers = all(isinstance(value, int | float) for value in unique)
            axes[name] = tuple(sorted(unique)) if numbers else unique
    return axes
