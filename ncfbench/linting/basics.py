"""Checks of a loss's gradient as such, most of them before anything else can be said of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ncfbench.linting.derivatives import CHANGE, ROWS, SEEDS, Evaluator, imbalance, not_own
from ncfbench.linting.facts import Facts
from ncfbench.linting.findings import Finding, finding
from ncfbench.linting.scenes import Bool, Scene

LONG = 30.0
"""Length of users' vectors that makes scores extreme, where a loss does not normalise."""
LOWEST = -0.5
"""Score of the rows' own items where each must be pulled."""
LIKE = 0.2
"""Effect of another row's positive on a negative's push, over that of the row's own."""
WEAK, FAR = 0.2, 0.2
"""A wrong pair's push, and the loss of rows that are all right, over those of equal scores."""


def batch_axis(evaluator: Evaluator) -> Iterator[Finding]:
    """Check that no row's vector matters by its length alone where that of all rows does not."""
    if not evaluator.loss.has("users") or evaluator.layout.labels == "pairs":
        return
    scene = evaluator.scenes().plain(0, ROWS)
    plain = scene.vectors()
    width = plain.users.shape[1]
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(width, width)))[0]
    rotated = plain._replace(users=plain.users @ rotation, columns=plain.columns @ rotation)
    for side, part in (("users", rotated.users), ("columns", rotated.columns)):
        values = []
        for rows in (0, 1, len(part)):
            longer = part.copy()
            longer[:rows] *= 3
            moved = rotated._replace(**{side: longer})
            values.append(evaluator.value(scene, moved))
        one, every = (abs(value - values[0]) for value in values[1:])
        if one > 1e-4 * abs(values[0]) and every < 1e-4 * one:
            unit = "effect of the length of all vectors, over that of one of them"
            yield finding("batch-axis", [every / one], unit, 1, f"vectors of {side}")


def pulls(evaluator: Evaluator) -> Iterator[Finding]:
    """Check that the loss is finite and pulls each row to its own item."""
    scenes = [evaluator.scenes().plain(seed, ROWS) for seed in SEEDS]
    push = np.stack([evaluator.pushes(scene) for scene in scenes])
    values = [evaluator.value(scene) for scene in scenes]
    if not (np.isfinite(push).all() and np.isfinite(values).all()):
        share = float(np.isfinite(push).mean() * np.isfinite(values).mean())
        unit = "finite share of the loss and its pushes"
        yield finding("not-finite", [share], unit, 1, f"{ROWS} rows")
        return
    rows, largest = np.arange(ROWS), np.abs(push).max(axis=(1, 2))
    diagonal, limit = push[:, rows, rows], 1e-3 * largest[:, None]
    moved = (np.abs(push) > limit[..., None]) & not_own(push[0])
    are_pulled = (moved.sum(axis=(1, 2)) > ROWS) & ~(moved & (push > 0)).any(axis=(1, 2))
    are_pulled &= ~(diagonal < -limit).all(axis=1)
    wrong_sign = np.where(are_pulled, 1.0, (diagonal > limit).mean(axis=1))
    pulled = push < -limit[..., None]
    pulled[are_pulled, :, :ROWS] = False  # there, no one column is taken for the row's own
    elsewhere = (pulled.any(axis=2) & (diagonal > -limit)).mean(axis=1)
    drawn = np.stack([evaluator.pushed(part)[:, ROWS:] for part in push])
    is_own = scenes[0].owner[ROWS:] == rows[:, None]
    if largest.max() == 0 and len({*values}) == 1:
        yield finding("no-gradient", largest.tolist(), "largest push", 1, "all scenes")
    elif wrong_sign.min() > 0.5 and pulled[:, :, :ROWS].sum(axis=2).max() != 1:
        unit = "share of the pairs that are pushed the wrong way"
        yield finding("wrong-sign", wrong_sign.tolist(), unit, 0, "all scenes")
    elif elsewhere.min() > 0:
        unit = "share of the rows"
        yield finding("wrong-positive", elsewhere.tolist(), unit, 0, "all scenes")
    else:
        yield from _without_pull(evaluator)
    if (drawn.any(axis=(1, 2)) & ~(drawn & is_own).any(axis=(1, 2))).all():
        unit = "share of the scenes"
        yield finding("wrong-negative", [1.0], unit, 0, "no row meets its own negatives")
    elif (drawn == drawn[0]).all():
        # Of the same k columns in all scenes, none of which is chosen for its score.
        foreign, k = drawn[0] & ~is_own, evaluator.layout.k
        if foreign.any() and drawn[0].sum(axis=1).max() <= k:
            unit, detail = "share of the rows' negatives", "some are another row's"
            yield finding("wrong-negative", [foreign.sum() / drawn[0].sum()], unit, 0, detail)
    if evaluator.layout.k and not evaluator.layout.is_catalogue:
        yield from _compared(evaluator, drawn[0] & is_own)


def _without_pull(evaluator: Evaluator) -> Iterator[Finding]:
    """Check that each row pulls its own item, at least where that has the lowest score."""
    never, rows = np.ones(ROWS, bool), np.arange(ROWS)
    for seed in SEEDS:
        plain = evaluator.scenes().plain(seed, ROWS)
        lowest = plain.with_score(rows, rows, LOWEST - np.diagonal(plain.scores))
        for scene in (plain, lowest):
            push = evaluator.pushes(scene)
            never &= np.diagonal(push) >= -max(evaluator.tolerance * np.abs(push).max(), 1e-9)
    if never.any():
        detail = "their own item's score changes nothing, be it the lowest"
        yield finding("no-pull", [float(never.mean())], "share of the rows", 0, detail)


def _compared(evaluator: Evaluator, drawn: Bool) -> Iterator[Finding]:
    """Check that drawn negatives are compared with their own row's positive, if with any."""
    scene = evaluator.scenes().plain(0, ROWS)
    row, shares = ROWS - 1, []
    for column in (ROWS + np.flatnonzero(drawn[row])).tolist():
        usual, effects = evaluator.push(scene, row, column), []
        for rows in ([row], [0], np.arange(ROWS - 1)):
            changed = evaluator.push(scene.with_score(rows, rows, CHANGE), row, column)
            effects.append(abs(changed / usual - 1))
        by_row, by_first, by_all = effects
        least = 10 * evaluator.tolerance
        shares.append(float(by_all > least and (by_row < least or by_first > LIKE * by_row)))
    if any(shares):
        unit, detail = "share of a row's negatives", "compared with another row's positive"
        yield finding("wrong-negative", [float(np.mean(shares))], unit, 0, detail)


def extremes(evaluator: Evaluator, facts: Facts) -> Iterator[Finding]:
    """Check that scores far apart are what the loss wants, and that it pushes those far off."""
    plain = evaluator.scenes().plain(0, ROWS)
    rows = np.arange(ROWS)
    longest = LONG if facts.lengths.get("users", True) else 1.0

    def value(positive: float, negative: float, length: float = longest) -> float:
        """Return the loss of rows with these scores; negative ones fit into unit vectors."""
        level = replace(plain, score=np.full_like(plain.score, negative))
        scene = level.with_score(rows, rows, positive - negative)
        return evaluator.value(scene, length=length)

    def pull(positive: float, negative: float = 0.0, length: float = longest) -> float:
        ends = [value(positive + sign * CHANGE / 10, negative, length) for sign in (1, -1)]
        return abs(ends[0] - ends[1]) / length

    with np.errstate(all="ignore"):
        usual, losses = pull(0.0, 0.0, 1.0), (value(0.8, -0.1), value(0.0, 0.0))
        is_balanced = np.median(imbalance(evaluator.pushes(plain))) < 1e-3
        if facts.kind == "pointwise" or (facts.kind == "listwise" and is_balanced):
            least = pull(-0.8)
        elif facts.kind == "other":
            least = max(pull(far, far) for far in (-0.8, 0.8))
        else:
            least = math.inf
        if _is_without_logarithm(evaluator, plain, facts):
            detail = "positives are pulled less the lower their score is, as by a probability"
            least = pull(-0.8)
        elif least < WEAK * usual and FAR * losses[1] < losses[0] < math.inf:
            detail = f"{losses[0] / losses[1]:.0%} of the loss never goes"
        else:
            return
        unit = "pull of positives of the lowest scores, over that of equal ones"
        yield finding("squashed", [least / usual], unit, 1, detail)


def _is_without_logarithm(evaluator: Evaluator, plain: Scene, facts: Facts) -> bool:
    """Return whether the loss is a probability, the logarithm of which was meant.

    The slope of a logistic function, p (1 - p), tells it from other bounded losses: the inverse of
    its root is a sum of exp(x / 2) and exp(-x / 2), in the positive's score and in a negative's.
    """
    flat, row = replace(plain, score=0 * plain.score), 0
    counted = np.flatnonzero(evaluator.pushed(evaluator.pushes(flat))[row])
    if not len(counted):
        return False
    cases = [(flat, row), (flat, int(counted[0]))]
    if facts.kind == "listwise":
        cases.append((plain, row))  # one with a sigmoid for each negative is another function
    for scene, column in cases:
        slopes = evaluator.slopes(scene, row, column)
        if not (np.sign(slopes) == np.sign(slopes[0])).all() or not slopes.all():
            return False
        root = np.abs(slopes) ** -0.5
        growth = (root[2:] + root[:-2]) / root[1:-1] - 2
        if growth.min() <= 1e-7 or np.ptp(growth) > evaluator.tolerance * growth.max():
            return False
        factor = math.exp(math.acosh(1 + growth[1] / 2))
        rising, falling = root[3] - root[2] / factor, root[3] - root[2] * factor
        if abs(falling / rising) < 1e-6 or abs(rising / falling) < 1e-6:
            return False
    return True
