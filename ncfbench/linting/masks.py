"""How a loss treats pairs that are no true negatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ncfbench.linting.derivatives import ROWS, SEEDS, Evaluator, imbalance
from ncfbench.linting.scenes import Relation, Scene

LAST = ROWS - 1
PAIRS: Mapping[Relation, list[tuple[int, int]]] = {
    "same item": [(0, LAST), (LAST, 0)],
    "same user": [(0, LAST), (LAST, 0)],
    "linked": [(0, LAST)],
    "drawn": [(0, ROWS)],
}
"""Rows and columns of the pairs that a relation makes no true negatives."""
MASKED = 0.01
"""Push, over that of a true negative, below which a pair is masked."""
MOST_ONCE = 0.75
"""Push of an item that two rows have, over that of two items, if it counts once."""


@dataclass(frozen=True)
class Masks:
    """The treatment of pairs that are no true negatives, in a number for each scene.

    Attributes:
        pushes: by relation, the push of such a pair, over that of the same vectors with other ids.
        constant: share of the softmax that masked pairs still have, whatever they are masked for.
        repeats: push of an item that two other rows have, over that of the same vectors with other
            ids.
    """

    pushes: Mapping[Relation, list[float]]
    constant: list[float]
    repeats: list[float]

    @property
    def counts_once(self) -> bool:
        """Whether an item is one negative however many rows have it."""
        return bool(self.repeats) and max(self.repeats) < MOST_ONCE

    def counts(self, relation: Relation) -> bool:
        """Return whether pairs of a relation are pushed apart."""
        return min(self.pushes[relation], default=0.0) > MASKED


def measure_masks(evaluator: Evaluator) -> Masks:
    """Set pairs that are no true negatives into scenes, and compare how they are pushed."""
    pushes: dict[Relation, list[float]] = {relation: [] for relation in PAIRS}
    constant, repeats = [], []
    for seed in SEEDS:
        shares = []
        for relation in evaluator.scenes().relations():
            scene, twin = evaluator.scenes().related(seed, ROWS, relation)
            push, without = evaluator.pushes(scene), evaluator.pushes(twin)
            if relation == "drawn":
                usual = float(np.median(push[1:, ROWS:].max(axis=1)))
            else:
                is_free = ~(scene.linked | twin.linked)[0, :ROWS]
                usual = float(np.median(push[0, :ROWS][is_free])) if is_free.any() else 0.0
            # Where the same vectors without the relation are masked too, by their likeness, any
            # other negative is the measure.
            at = PAIRS[relation]
            if usual <= 0 or any(1e-9 < without[pair] / usual < MASKED for pair in at):
                continue  # too small to tell, where a softmax is steep
            ratios = [push[pair] / max(without[pair], MASKED * usual) for pair in at]
            pushes[relation].append(float(np.mean(ratios)))
            if relation == "same item":
                both = [part[1:LAST, [0, LAST]].sum(axis=1) for part in (push, without)]
                repeats.append(float(np.median(both[0] / np.maximum(both[1], 1e-30))))
            if abs(pushes[relation][-1]) < MASKED:
                shares.append(_constant(evaluator, scene, twin))
        constant.extend([max(shares)] if shares else [])
    return Masks(pushes, constant, repeats)


def _constant(evaluator: Evaluator, scene: Scene, twin: Scene) -> float:
    """Return the share of row 0's softmax that a masked pair has, for scores that are all 0.

    Pushes of a row add up to nothing where nothing else is in its softmax.
    """
    masked, plain = (
        float(imbalance(evaluator.pushes(replace(variant, score=0 * variant.score)))[0])
        for variant in (scene, twin)
    )
    return masked if plain < 1e-3 else 0.0
