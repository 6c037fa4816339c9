"""Checks of masks, corrections and sizes: each changes one thing in a scene."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ncfbench.linting.derivatives import Evaluator
from ncfbench.linting.facts import (
    LEAST,
    SEEDS,
    Facts,
    amplitude,
)
from ncfbench.linting.findings import Finding, Severity, finding
from ncfbench.linting.layouts import ROWS
from ncfbench.linting.scenes import Bool, Float, Scene, owner

SIZES = (ROWS, 5, 37, 1)
"""Rows of batches: a full one, a smaller last one, a larger one, the smallest."""
MOST_ONCE = 0.75
"""Push of an item that two rows have, over that of two items, if it counts once."""
PADDED = (2, ROWS - 1)
"""Rows that are padding."""
FEWEST_FIXED = 4
"""Smallest fixed divisor that is told from a weight of the loss's own."""


@dataclass(frozen=True)
class Masks:
    """The treatment of pairs that are no true negatives."""

    duplicates: list[float]
    """Push of a row's own item in another row, over that of the same vectors with other ids."""
    same_user: list[float]
    linked: list[float]
    """The same of another link of the user in the batch, and outside it."""
    constant: list[float]
    """Share of the softmax that masked pairs still have, whatever they are masked for."""
    collisions: list[float]
    """Push of a row's own item where it is drawn, over that of the other drawn ones."""
    repeats: list[float]
    """Push of an item that two other rows have, over that of the same vectors with other ids."""

    @property
    def counts_once(self) -> bool:
        """Whether an item is one negative however many rows have it."""
        return bool(self.repeats) and max(self.repeats) < MOST_ONCE


def sizes(evaluator: Evaluator, facts: Facts) -> Iterator[Finding]:
    """Check batches of other sizes."""
    for rows in SIZES:
        scene = evaluator.scenes().distinct(0, rows)
        try:
            numbers = np.append(evaluator.pushes(scene), evaluator.value(scene))
            why = "" if np.isfinite(numbers).all() else "is not finite"
        except Exception as error:  # noqa: BLE001 - a user's code raises what it likes
            why = f"fails with {type(error).__name__}"
        if why:
            severity: Severity | None = "warning" if rows == 1 else None
            detail, unit = f"a batch of {scene.b} rows {why}", "finite share of the losses"
            yield finding("not-finite", [0.0], unit, 1, detail, severity)
        if why and rows > 1:
            return
    yield from _divisor(evaluator, facts)


def row_weights(evaluator: Evaluator) -> Iterator[Finding]:
    """Check that a row of twice the weight has twice the push of another."""
    if evaluator.layout.labels == "pairs" or not evaluator.loss.has("row_weights"):
        return
    ratios = []
    for seed in SEEDS:
        scene = evaluator.scenes().plain(seed, ROWS)
        weights = np.where(np.arange(ROWS) == 0, 2.0, 1.0)
        weighted = replace(evaluator, given={"row_weights": weights})
        pushes = [each.pushes(scene) for each in (evaluator, weighted)]
        once, twice = (float(push[0, 0] / push[1, 1]) for push in pushes)
        ratios.append(twice / once)
    farthest = max(ratios, key=lambda ratio: abs(ratio - 2))
    if abs(farthest - 2) > 0.01:
        unit = "pull of a row when its weight is 2, over that when it is 1"
        yield finding("row-weights", [farthest], unit, 2, "all other weights are 1")


def padding(evaluator: Evaluator) -> Iterator[Finding]:
    """Check that rows, and drawn negatives, of mask or weight 0 are as if they were not there."""
    k, is_wide = evaluator.layout.k, evaluator.layout.has_wide_mask
    rows, drawn = np.ones(ROWS, bool), np.ones((ROWS, k), bool)
    some_rows, some_drawn = rows.copy(), drawn.copy()
    some_rows[list(PADDED)] = False
    if k > 1:
        some_drawn[np.arange(ROWS), np.arange(ROWS) % k] = False
    for name, role in evaluator.loss.roles.items():
        if role == "row_weights" or (role == "row_mask" and not is_wide):
            yield from _padding(evaluator, name, role, some_rows, drawn)
        elif k > 1 and role in ("row_mask", "negative_mask"):
            yield from _padding(evaluator, name, "negative_mask", rows, some_drawn)


def _padding(
    evaluator: Evaluator, name: str, role: str, rows: Bool, drawn: Bool
) -> Iterator[Finding]:
    scene = evaluator.scenes().plain(0, ROWS)
    at = owner(scene) if evaluator.layout.labels == "pairs" else np.arange(ROWS)
    given = {"row_weights": 1.0 * rows[at]}
    if role != "row_weights":
        given = evaluator.masks(scene, rows, drawn)
    padded = replace(evaluator, given=given)
    value, push = padded.value(scene), padded.pushes(scene)
    if not np.isfinite(push).all() or not math.isfinite(value):
        yield finding("padding", [0.0], "finite share of the losses", 1, f"{name} has zeros")
        return
    real = np.concatenate([rows, (rows[:, None] & drawn).reshape(-1)])
    size, unit = max(float(np.abs(push).sum()), 1e-30), "share of the pushes"
    on_rows, on_items = (
        float(np.abs(part).sum() / size) for part in (push[~rows], push[rows][:, ~real])
    )
    if on_rows > LEAST:
        yield finding("padding", [on_rows], unit, 0, f"rows of {name} 0")
    elif on_items > LEAST:
        # Items of rows of weight 0 may be there, and those of padding not.
        severity: Severity | None = "note" if role == "row_weights" else None
        detail = f"items of {name} 0, as negatives of other rows"
        yield finding("padding", [on_items], unit, 0, detail, severity)
    elif _is_unbalanced(push[rows]) and not _is_unbalanced(evaluator.pushes(scene)):
        share = float(np.abs(push[rows].sum(axis=1)).sum() / size)
        yield finding("mask-zero", [share], unit, 0, f"padding of {name}")
    elif role == "row_mask" and not evaluator.is_random:
        alone = evaluator.value(scene.rows(rows))
        if not math.isclose(value, alone, rel_tol=1e2 * evaluator.tolerance, abs_tol=1e-9):
            unit, ratio = "loss with padding over that without", value / (alone or 1.0)
            yield finding("padding", [ratio], unit, 1, f"rows of {name} 0, in the mean")


def _is_unbalanced(push: Float) -> bool:
    return bool((np.abs(push.sum(axis=1)) > 1e-3 * np.abs(push).sum(axis=1)).any())


def _divisor(evaluator: Evaluator, facts: Facts) -> Iterator[Finding]:
    """Say where rows keep the weight of a full batch in a smaller one."""
    scenes = [evaluator.scenes().distinct(0, rows) for rows in SIZES[:2]]
    full, small = (amplitude(evaluator, scene, facts.kind) for scene in scenes)
    if min(full, small) <= 0:
        return
    factor, unit = facts.scale.value if facts.scale else 1.0, "total weight of the rows"
    if facts.kind in ("pairwise", "pointwise"):
        factor *= 0.5 if facts.scale else 1.0  # the slope of the logistic function at 0
    if facts.kind == "listwise" and abs(full * SIZES[0] ** 2 / (small * SIZES[1] ** 2) - 1) < 1e-3:
        detail = "rows are divided by their number twice"
        yield finding("last-batch", [small * SIZES[1] / factor], unit, 1, detail)
        return
    for grows in (lambda rows: 1.0, lambda rows: rows - 1.0):
        each = full / factor / grows(SIZES[0]), small / factor / grows(SIZES[1])
        divisor = 1 / each[0]
        is_whole = abs(divisor - round(divisor)) < 1e-3 * divisor
        if abs(each[1] / each[0] - 1) < 1e-3 and is_whole and round(divisor) >= FEWEST_FIXED:
            detail = f"{SIZES[1]} rows are divided by {round(divisor)}"
            yield finding("last-batch", [each[1] * SIZES[1]], unit, 1, detail)
            return


def look_at_masks(evaluator: Evaluator) -> Masks:
    """Make pairs that are no true negatives, and see whether they are pushed apart."""
    found = Masks([], [], [], [], [], [])
    last = ROWS - 1
    for seed in SEEDS:
        constants = []
        for relation in evaluator.scenes().relations():
            pairs = {
                "same item": found.duplicates,
                "same user": found.same_user,
                "linked": found.linked,
            }[relation]
            scene, twin = evaluator.scenes().related(seed, ROWS, relation)
            push, without = evaluator.pushes(scene), evaluator.pushes(twin)
            free = ~(scene.linked | twin.linked)
            usual = float(np.median(push[0][free[0]])) if free[0].any() else 0.0
            if usual <= 0:
                continue
            # Where the same vectors without the relation are masked too, by their likeness, any
            # other negative is the measure.
            at = [(0, last)] if relation == "linked" else [(0, last), (last, 0)]
            if any(1e-9 < without[pair] / usual < 0.01 for pair in at):
                continue  # too small to tell, where a softmax is steep
            ratios = [push[pair] / max(without[pair], 0.01 * usual) for pair in at]
            pairs.append(float(np.mean(ratios)))
            if relation == "same item":
                both = [part[1:last, [0, last]].sum(axis=1) for part in (push, without)]
                found.repeats.append(float(np.median(both[0] / np.maximum(both[1], 1e-30))))
            if abs(pairs[-1]) < 0.01:
                constants.append(_constant(evaluator, scene, twin))
        if evaluator.layout.k:
            push = evaluator.pushes(evaluator.scenes().collision(seed, ROWS))
            usual = float(np.median(push[1:ROWS, ROWS:].max(axis=1)))
            found.collisions.extend([float(push[0, ROWS] / usual)] if usual > 0 else [])
            if found.collisions and abs(found.collisions[-1]) < 0.01:
                scenes = (
                    evaluator.scenes().collision(seed, ROWS),
                    evaluator.scenes().plain(seed, ROWS),
                )
                constants.append(_constant(evaluator, *scenes))
        found.constant.extend([max(constants)] if constants else [])
    return found


def _constant(evaluator: Evaluator, scene: Scene, twin: Scene) -> float:
    """Return the share of row 0's softmax that a masked pair has, for scores that are all 0.

    Pushes of a row add up to nothing where nothing else is in its softmax.
    """
    one, other = (
        evaluator.pushes(replace(each, score=0 * each.score))[0] for each in (scene, twin)
    )
    masked, plain = (float(abs(row.sum()) / np.abs(row).sum()) for row in (one, other))
    return masked if plain < 1e-3 else 0.0


def masks(evaluator: Evaluator, facts: Facts, found: Masks) -> Iterator[Finding]:
    """Say what is wrong with the masks of a loss, apart from what batches must do."""
    unit = "push over that of a true negative"
    if facts.kind == "listwise" and found.constant and min(found.constant) > 1e-3:
        share = "share of the softmax"
        yield finding("mask-zero", found.constant, share, 0, "a masked pair")
    if not facts.in_batch:
        return
    # In a pairwise loss the two columns of one item push and pull it alike.
    is_pairwise = facts.kind == "pairwise"
    if evaluator.loss.has("linked") and found.linked and min(found.linked) > 0.01:
        yield finding("linked", found.linked, unit, 0, "although the argument names the links")
    counts = found.duplicates and min(found.duplicates) > 0.01
    is_harmless = facts.kind == "over users" or is_pairwise or duplicates_belong(facts)
    if counts and not is_harmless:
        # Where the correction is not known, neither is whether they belong into the sum.
        is_open = facts.kind in ("listwise", "symmetric") and facts.slope is None
        severity: Severity | None = "warning" if is_open else None
        detail = "two rows with one item"
        yield finding("duplicates", found.duplicates, unit, 0, detail, severity)


def collisions(evaluator: Evaluator, facts: Facts, found: Masks) -> Iterator[Finding]:
    """Say whether a row's own item counts where it is drawn, although the loss has both ids."""
    has_ids = evaluator.loss.has("item_ids") and evaluator.loss.has("negative_ids")
    counts = bool(found.collisions) and min(found.collisions) > 0.01
    if has_ids and counts and facts.drawn and facts.kind != "pairwise":
        unit = "push over that of a true negative"
        yield finding("duplicates", found.collisions, unit, 0, "a drawn negative")


def duplicates_belong(facts: Facts) -> bool:
    """Return whether a corrected softmax needs the positive's other copies in its sum.

    They make the positive's weight that of any other item where the correction divides by its
    probability, and too large where it divides by its expected number.
    """
    if facts.kind not in ("listwise", "symmetric") or facts.slope is None:
        return False
    if abs(facts.slope.value + 1) > 0.2:
        return False
    if facts.positive_slope and abs(facts.positive_slope.value + 1) < 0.2:
        return True
    weight = facts.positive_weight.value if facts.positive_weight else 1.0
    return abs(math.log(weight + 1)) < abs(math.log(weight))


def corrections(
    facts: Facts, found: Masks, log_spread: float, tilt: float = 1.0
) -> Iterator[Finding]:
    """Check the correction for popularity.

    Args:
        log_spread: standard deviation of the logarithm of items' popularity over links.
        tilt: exponent of an item's probability in how often batches count it as a negative.
    """
    if facts.kind == "over pairs":
        unit = "scores of other users' pairs that a push depends on, as a share"
        yield finding("over-batch", [1.0], unit, 0, "a change of another pair's score shows it")
    if facts.kind == "over users":
        unit = "rows over which the softmax runs, as a share of the columns"
        yield finding("over-users", [1.0], unit, 0, "a change of another user's score shows it")
    slope = facts.slope
    if slope is None or log_spread < 0.1:
        return
    if not facts.is_power and -1.1 < slope.value < 0.1:
        return  # the probability may be that of a mixture
    low = slope.value if slope.lower is None else slope.lower
    unit = "exponent of probability in a negative's weight"
    if abs(slope.value + tilt) > 0.1:
        code = "missing-logq" if abs(slope.value) <= 0.1 else "logq-scale"
        if slope.value > 0.3 and low > 0.1:
            code = "logq-sign"
        rough = "" if facts.is_power else ", roughly: weights are no power of it"
        yield finding(code, slope, unit, -tilt, f"{slope.value:+.2f}{rough}")
    positive = facts.positive_slope
    copies = found.duplicates or found.collisions or [0.0]  # below 0: they are positives too
    is_masked = max(map(abs, copies)) < 0.01
    if positive and abs(positive.value + 1) < 0.2 and (is_masked or abs(slope.value) < 0.1):
        unit = "exponent of probability in the positive's weight"
        yield finding("logq-positive", positive, unit, 0, f"{positive.value:+.2f}")
