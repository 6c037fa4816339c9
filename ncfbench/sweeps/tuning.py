"""Tune settings of each arm by recall on the validation items, with equal numbers of trials.

Only settings that leave the objective unchanged can be tuned (:data:`ncfbench.config.TUNABLE`), so
that the probe losses of separately tuned arms remain comparable. The first trial has the arm's own
settings. The others are points of a Halton sequence, the same for every arm of a loss: no arm gets
more or luckier candidates than another. Trials have a seed that no run of the sweep has, so that
the reported runs were not selected by their own noise.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncfbench.catalog import find_encoder
from ncfbench.config import MAX_SEED, RunConfig, identity_of
from ncfbench.errors import DataError, UsageError
from ncfbench.runs.quality import COMPARED
from ncfbench.runs.trials import Budget
from ncfbench.sweeps.grid import SweepStatus

SEED = MAX_SEED
"""The seed of every trial."""
RATE_FACTOR = 10.0
"""Learning rates of trials reach from the arm's own divided by this to its own times this.

They are even in the logarithm.
"""
MOST_DROPOUT = 0.8
"""The largest dropout rate of a trial; the smallest is 0."""
MEASURE = "validation_recall_at_50"


@dataclass(frozen=True)
class Chosen:
    """The trial that tuning chose for an arm."""

    trial: RunConfig
    recall: float
    """Recall on the validation items, at the trial's best epoch."""
    usable: int
    """Number of trials that ended and did not diverge."""

    def settings(self, budget: Budget) -> dict[str, Any]:
        """Return the chosen values, by setting."""
        return {name: getattr(self.trial, name) for name in budget.settings}


def make_trials(
    cells: Sequence[RunConfig], budget: Budget
) -> dict[RunConfig, tuple[RunConfig, ...]]:
    """Return the trials of each cell; cells that differ only in their seed share theirs.

    Raises:
        UsageError: the sweep has several values of a tuned setting, or an encoder without recall of
            held-out items.
    """
    arms: dict[str, list[RunConfig]] = {}
    for config in cells:
        if not find_encoder(config.encoder).scores_cold_items:
            raise UsageError(
                f"--tune chooses by recall of held-out items, and {config.encoder} has no vector"
                " for them."
            )
        arms.setdefault(_arm(config, budget), []).append(config)
    for own, name in itertools.product(arms.values(), budget.settings):
        if len({getattr(config, name) for config in own}) > 1:
            raise UsageError(
                f"The sweep has several values of {name}, and --tune chooses one. Leave out one of"
                " the two."
            )
    return {
        config: made
        for own in arms.values()
        for made in [_trials(own[0], budget)]
        for config in own
    }


def choose(
    wanted: Mapping[RunConfig, Sequence[RunConfig]], found: SweepStatus
) -> tuple[dict[RunConfig, Chosen], dict[RunConfig, str]]:
    """Return the best finished trial of each cell, and messages for cells without one.

    Of equal trials the earlier one is chosen.
    """
    chosen, missing = {}, {}
    for config, own in wanted.items():
        recalls = []
        for trial in own:
            state = found.states[trial]
            recall = (state.summary or {}).get(MEASURE) if state.status == "done" else None
            if recall is not None:
                recalls.append((recall, trial))
        unfinished = [trial for trial in own if not found.states[trial].is_over]
        if unfinished:
            missing[config] = f"{len(unfinished)} of its {len(own)} trials did not end"
        elif not recalls:
            missing[config] = f"none of its {len(own)} trials has a recall on validation items"
        else:
            best = max(recalls, key=lambda pair: pair[0])
            chosen[config] = Chosen(best[1], float(best[0]), len(recalls))
    return chosen, missing


def apply_choice(config: RunConfig, choice: Chosen, budget: Budget) -> RunConfig:
    """Return a cell with the settings chosen for it."""
    return dataclasses.replace(config, tuned=budget.label, **choice.settings(budget))


def require_validation(dataset: str, validation_items: float) -> list[str]:
    """Refuse a data set without validation items; return a warning where they are too few.

    Raises:
        DataError: it has none.
    """
    if not validation_items:
        raise DataError(
            f"--tune chooses by recall on validation items, and {dataset} has none. "
            "Prepare it again with --validation-fraction 0.1."
        )
    if validation_items > COMPARED:
        return []
    return [
        f"{dataset} has {validation_items:.0f} validation items: their recall@{COMPARED} is 1 by"
        " construction, and the first trial is kept. Use a larger --validation-fraction."
    ]


def _arm(config: RunConfig, budget: Budget) -> str:
    own = ("seed", *budget.settings)
    return json.dumps(
        {name: value for name, value in identity_of(config).items() if name not in own},
        sort_keys=True,
    )


def _trials(config: RunConfig, budget: Budget) -> tuple[RunConfig, ...]:
    from scipy.stats import qmc

    first = dataclasses.replace(config, seed=SEED, epochs=budget.epochs)
    sequence = qmc.Halton(len(budget.settings), scramble=False)
    sequence.fast_forward(2)  # skips 0 and 0.5: a corner, and the arm's own learning rate
    made = {first: None}
    while len(made) < budget.trials:
        for point in sequence.random(budget.trials).tolist():
            values: dict[str, Any] = {
                name: _value(first, name, u) for name, u in zip(budget.settings, point, strict=True)
            }
            made.setdefault(
                dataclasses.replace(first, **values)
            )  # points that round to the same values make one trial
    return tuple(made)[: budget.trials]


def _value(config: RunConfig, name: str, u: float) -> float:
    """Return a setting's value at a point of the unit interval, with three digits."""
    if name == "learning_rate":
        return float(f"{config.learning_rate * RATE_FACTOR ** (2 * u - 1):.3g}")
    return float(f"{MOST_DROPOUT * u:.3g}")
