"""Tune settings of each arm by recall of validation links, with equal numbers of trials.

Only settings that leave the objective unchanged can be tuned (:data:`ncfbench.config.TUNABLE`), so
that the probe losses of separately tuned arms remain comparable. The first trial has the arm's own
settings. The others are points of a Halton sequence, the same for every arm of a loss: no arm gets
more or luckier candidates than another. Trials have a seed that no run of the sweep has, so that
the reported runs were not selected by their own noise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ncfbench.config import MAX_SEED, RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import UsageError
from ncfbench.runs.quality import COMPARED, can_rank, most_ranked, require_validation_links
from ncfbench.runs.trials import Budget
from ncfbench.sweeps.cells import Cell, identity, label_cells

SEED = MAX_SEED
"""The seed of every trial."""
RATE_FACTOR = 10.0
"""Learning rates of trials reach from the arm's own divided by this to its own times this."""
MOST_DROPOUT = 0.8
"""The largest dropout rate of a trial; the smallest is 0."""
MEASURE = "validation_recall_at_50"


def add_trials(cells: Sequence[Cell], budget: Budget) -> list[Cell]:
    """Give each cell its trials, and return all; cells that differ only in their seed share theirs.

    Raises:
        UsageError: the sweep has several values of a tuned setting.
    """
    arms: dict[str, list[Cell]] = {}
    for cell in cells:
        arm = identity(cell.config, "seed", *budget.settings)
        arms.setdefault(arm, []).append(cell)
    for alike in arms.values():
        for name in budget.settings:
            if len({getattr(cell.config, name) for cell in alike}) > 1:
                raise UsageError(
                    f"The sweep has several values of {name}, and --tune chooses one. Leave out one"
                    " of the two."
                )
        trials = [Cell(config) for config in make_trials(alike[0].config, budget)]
        for cell in alike:
            cell.trials = trials
    return [trial for alike in arms.values() for trial in alike[0].trials]


def choose(cells: Sequence[Cell], budget: Budget) -> tuple[list[str], dict[Cell, str]]:
    """Give cells that are not tuned yet the settings of their best finished trial.

    Of equal trials the earlier one is chosen.

    Returns:
        A sentence on each choice, and a message for each cell without one.
    """
    names, sentences, missing = label_cells(cells), [], {}
    for cell in cells:
        if cell.config.tuned:
            continue
        ended = [trial for trial in cell.trials if trial.status == "done"]
        usable = [trial for trial in ended if trial.summary.get(MEASURE) is not None]
        unfinished = sum(not trial.is_over for trial in cell.trials)
        if unfinished:
            missing[cell] = f"{unfinished} of its {len(cell.trials)} trials did not end"
        elif not usable:
            missing[cell] = (
                f"none of its {len(cell.trials)} trials has a recall of validation links"
            )
        else:
            best = max(usable, key=lambda trial: trial.summary[MEASURE])
            chosen = {name: getattr(best.config, name) for name in budget.settings}
            cell.config = dataclasses.replace(cell.config, tuned=budget.label, **chosen)
            values = ", ".join(f"{name} = {value:g}" for name, value in chosen.items())
            sentences.append(
                f"Tuned: {names[cell]}: {values} (validation recall@50"
                f" {best.summary[MEASURE]:.4f}, {len(usable)} trials)"
            )
    return sentences, missing


def require_validation(cells: Sequence[Cell], datasets: Mapping[str, Dataset]) -> list[str]:
    """Refuse cells that have no recall on validation; return warnings where it says nothing.

    Args:
        datasets: by name.

    Raises:
        DataError: a data set holds nothing out for validation.
        UsageError: an encoder has no vectors of held-out items.
    """
    for cell in cells:
        if not can_rank(cell.config.encoder, datasets[cell.config.dataset]):
            raise UsageError(
                f"--tune chooses by recall of held-out items, and {cell.config.encoder} has no"
                " vector for them."
            )
    warnings = []
    for dataset in datasets.values():
        require_validation_links(dataset, "--tune")
        if (count := most_ranked(dataset, "validation")) <= COMPARED:
            warnings.append(
                f"{dataset.name} has {count} items to rank for validation links, whose"
                f" recall@{COMPARED} is 1 by construction, and the first trial is kept. Prepare"
                " data with more of them."
            )
    return warnings


def make_trials(config: RunConfig, budget: Budget) -> list[RunConfig]:
    """Return the settings of an arm's trials."""
    from scipy.stats import qmc

    first = dataclasses.replace(config, seed=SEED, epochs=budget.epochs)
    sequence = qmc.Halton(len(budget.settings), scramble=False)
    sequence.fast_forward(2)  # skips 0 and 0.5: a corner, and the arm's own learning rate
    trials = {first: None}
    while len(trials) < budget.trials:
        for point in sequence.random(budget.trials).tolist():
            values: dict[str, Any] = {
                name: _value(first, name, u) for name, u in zip(budget.settings, point, strict=True)
            }
            # Points that round to the same values make one trial.
            trials.setdefault(dataclasses.replace(first, **values))
    return list(trials)[: budget.trials]


def _value(config: RunConfig, name: str, u: float) -> float:
    """Return a setting's value at a point of the unit interval, with three digits."""
    if name == "learning_rate":
        return float(f"{config.learning_rate * RATE_FACTOR ** (2 * u - 1):.3g}")
    return float(f"{MOST_DROPOUT * u:.3g}")
