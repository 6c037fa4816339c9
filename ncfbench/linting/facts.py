"""Facts about a loss, each from a change of one score and nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from ncfbench.linting.derivatives import Evaluator
from ncfbench.linting.layouts import ROWS
from ncfbench.linting.scenes import Bool, Float, Scene, owner
from ncfbench.linting.signature import VECTORS
from ncfbench.statistics.intervals import Estimate, mean

Kind: TypeAlias = Literal[
    "listwise", "pairwise", "pointwise", "over users", "over pairs", "symmetric", "other"
]
SEEDS = tuple(range(3))
"""Scenes that each number is measured on."""
CORRECTING = (
    *("probability", "log_probability", "counts", "probability_table", "log_probability_table"),
    *("counts_table", "negative_probability", "negative_log_probability"),
)
"""Arguments by which a loss can correct for popularity."""
LEAST = 1e-4
"""Relative change of a push that is one."""
CHANGE = 0.1
"""Change of a score: vectors of length 1 have room for it."""


@dataclass(frozen=True)
class Facts:
    """The facts about a loss.

    Attributes:
        kind: what a negative's push depends on: the other negatives of its user (listwise), the
            positive (pairwise), nothing else (pointwise), or the other users of its item.
        scale: factor of scores within the loss; None where the push is no logistic function.
        amplitude: the largest push, times the rows.
        in_batch, drawn, drawn_for_others, catalogue: which columns are negatives of a row; all
            items of the catalogue where a loss is told its rows' labels.
        slope: exponent of an item's probability in its weight as a negative: -1 corrects for
            batches in which popular items are frequent, 0 does not; None where it makes no sense.
        is_power: whether weights are a power of it at all, in a loss that is told probabilities.
        positive_slope: the same of the positive's own weight.
        positive_weight: the positive's weight over that of any other item, were the items that
            repeat it not there.
        lengths: whether the length of users', items' and negatives' vectors changes anything.
        counts_once: whether an item is one negative however many rows of the batch have it.
    """

    kind: Kind
    scale: Estimate | None
    in_batch: bool
    drawn: bool
    drawn_for_others: bool
    catalogue: bool
    slope: Estimate | None
    positive_slope: Estimate | None
    positive_weight: Estimate | None
    lengths: Mapping[str, bool]
    is_power: bool = True
    counts_once: bool = False

    @property
    def normalises(self) -> bool:
        """Whether the length of users' vectors changes nothing."""
        return not self.lengths.get("users", True)

    @property
    def title(self) -> str:
        """The objective in a few words."""
        titles = {
            "listwise": "sampled softmax over items",
            "pairwise": "pairwise (BPR, hinge)",
            "pointwise": "pointwise",
            "over users": "softmax over users",
            "over pairs": "softmax over all pairs of the batch",
            "symmetric": "softmax over items and over users",
            "other": "none of the known ones",
        }
        if self.catalogue and self.kind == "listwise":
            return "softmax over all items"
        return titles[self.kind]


def measure(evaluator: Evaluator) -> Facts:
    """Measure a loss on scenes in which nothing is linked but the rows themselves."""
    scenes = [evaluator.scenes().plain(seed, ROWS) for seed in SEEDS]
    pushes = [evaluator.pushes(scene) for scene in scenes]
    kind = kind_of(evaluator, scenes[0], pushes[0])
    counted = [negative_columns(evaluator, push) for push in pushes]
    columns = np.arange(pushes[0].shape[1])
    is_own = owner(scenes[0]) == np.arange(ROWS)[:, None]
    any_counted = np.any(counted, axis=0)
    scale = slope = positive_slope = weight = None
    is_power = True
    if kind == "symmetric":
        fits = [fit_symmetric(scene, push) for scene, push in zip(scenes, pushes, strict=True)]
        if all(fit is not None for fit in fits):
            scale, slope = (mean([fit[n] for fit in fits if fit]) for n in (0, 1))
    else:
        found = [
            logistic(evaluator, scene, 0, int(np.argmax(push[0])))
            for scene, push in zip(scenes, pushes, strict=True)
        ]
        scales = [each[0] for each in found if each]
        scale = mean(scales) if scales else None
    by_popularity = evaluator.scenes().by_popularity
    is_catalogue = evaluator.layout.is_catalogue
    in_batch = bool(any_counted[:, :ROWS].any()) and not is_catalogue
    some = columns < ROWS if in_batch else columns >= ROWS
    if kind == "listwise" and scale and (in_batch or by_popularity):
        slopes = [
            _slope(scene, push, some & ok, scale.value)
            for scene, push, ok in zip(scenes, pushes, counted, strict=True)
        ]
        known = [each for each, _ in slopes if not math.isnan(each)]
        is_power = all(fits for _, fits in slopes)
        # Weights that are no power of probability, as with smoothed labels, say nothing.
        if known and (is_power or evaluator.loss.has(*CORRECTING)):
            slope = mean(known)
    if scale and slope and kind == "listwise" and is_power:
        positives = [
            _positive_offset(evaluator, scene, push, some & ok, scale.value, slope.value)
            for scene, push, ok in zip(scenes, pushes, counted, strict=True)
        ]
        offsets = [each for each in positives if each]
        if offsets:
            positive_slope = mean([each[0] for each in offsets])
            weight = mean([each[1] / each[2] for each in offsets])
    return Facts(
        kind=kind,
        scale=scale,
        in_batch=in_batch,
        drawn=bool((any_counted & is_own)[:, ROWS:].any()),
        drawn_for_others=bool((any_counted & ~is_own)[:, ROWS:].any()) and not is_catalogue,
        catalogue=is_catalogue,
        slope=slope,
        positive_slope=positive_slope,
        positive_weight=weight,
        lengths=_lengths(evaluator, scenes[0]),
        is_power=is_power,
    )


def counted_columns(evaluator: Evaluator, push: Float) -> Bool:
    """Return bool[b, columns]: the pairs that are pushed apart."""
    size = np.abs(push).max() or 1.0
    return np.asarray(push > evaluator.tolerance * size)


def negative_columns(evaluator: Evaluator, push: Float) -> Bool:
    """Return :func:`counted_columns` but for the rows' own items."""
    return counted_columns(evaluator, push) & not_own(push)


def not_own(push: Float) -> Bool:
    """Return bool[b, columns]: the pairs that are no row's own."""
    return np.asarray(np.arange(len(push))[:, None] != np.arange(push.shape[1])[None, :])


def kind_of(evaluator: Evaluator, scene: Scene, push: Float) -> Kind:
    """Return what the push of a negative depends on, by changing one score at a time."""
    counted = negative_columns(evaluator, push)
    row = int(np.argmax(counted.sum(axis=1)))
    columns = np.flatnonzero(counted[row])
    if not len(columns):
        moved = evaluator.push(scene.with_score(1, 1, CHANGE), 0, 0)
        change = abs(moved - evaluator.push(scene, 0, 0))
        return "over users" if change > 0.01 * np.abs(push).max() else "other"
    square = push[:, : scene.b]
    by_column = np.abs(square.sum(axis=0)) / np.maximum(np.abs(square).sum(axis=0), 1e-30)
    keeps_columns = bool(np.median(by_column) < 1e-3)
    # A row's pushes are those of one function of score differences, if on several scales.
    pulls = -np.diagonal(push)
    shares = (push.sum(axis=1) / np.maximum(pulls, 1e-30) + 1)[pulls > 0]
    middle = float(np.median(shares)) if len(shares) else math.nan
    keeps_rows = bool(len(shares)) and np.median(np.abs(shares / middle - 1)) < 1e-3

    def effect(other_row: int, column: int, seen: int) -> float:
        """Return how much a change of one score changes another's push."""
        changed = evaluator.push(scene.with_score(other_row, column, CHANGE), row, seen)
        return float(abs(changed / push[row, seen] - 1))

    rival = effect(row, columns[-1], columns[0]) if len(columns) > 1 else 0.0
    in_batch = columns[columns < scene.b]
    other_user = other_pair = 0.0
    if len(in_batch):
        one, other, *_ = (i for i in range(scene.b) if i not in (row, in_batch[0]))
        other_user = effect(one, in_batch[0], in_batch[0])
        other_pair = effect(one, other, in_batch[0])
    if min(rival, other_user, other_pair) > LEAST and not (keeps_rows or keeps_columns):
        keeps_all = abs(push.sum()) < 1e-3 * np.abs(push).sum()
        return "over pairs" if keeps_all else "other"
    if rival > LEAST and other_user > LEAST:
        return "symmetric"
    if other_user > LEAST and keeps_columns:
        return "over users"
    if rival > LEAST:
        return "listwise"
    if keeps_rows and depends_on_positive(evaluator, scene, push, row):
        return "pairwise"
    return "pointwise" if effect(row, row, columns[0]) <= LEAST else "other"


def depends_on_positive(evaluator: Evaluator, scene: Scene, push: Float, row: int) -> bool:
    """Return whether a row's negatives are pushed otherwise where its own item scores higher."""
    counted = negative_columns(evaluator, push)[row]
    highest = 1 if evaluator.loss.has("users") else 30
    for change in (CHANGE, highest - scene.scores[row, row]):
        other = evaluator.pushes(scene.with_score(row, row, change))[row]
        if (np.abs(other[counted] / push[row, counted] - 1) > LEAST).any():
            return True
    return False


def logistic(
    evaluator: Evaluator, scene: Scene, row: int, column: int, tolerance: float = 0.05
) -> tuple[float, float] | None:
    """Return the scale and the amplitude of a push that is a logistic function of its own score.

    1 / push is then linear in exp(-scale score), so three scores tell both, and two more whether it
    is so. That holds for the softmax, for BPR and for the cross-entropy, and for a positive's pull
    as its score falls. None for other functions.
    """
    sign = -1 if column == row else 1
    pushes = [
        sign * evaluator.push(scene.with_score(row, column, sign * step * CHANGE), row, column)
        for step in (-1, -0.5, 0, 0.5, 1)
    ]
    if min(pushes) <= 0:
        return None
    middle = pushes[2]
    falls = -np.diff(1 / np.array(pushes))
    if falls.min() <= 1e-9 / middle or falls[1] / falls[2] <= 1 + 1e-6:
        return None
    ratios = np.log(falls[:-1] / falls[1:])
    if np.ptp(ratios) > tolerance * ratios.max():
        return None  # of another shape
    second = falls[2] + falls[3]
    scale = math.log((falls[0] + falls[1]) / second) / CHANGE
    rest = second / (1 - math.exp(-scale * CHANGE))
    inverse = 1 / middle - rest
    return (scale, 1 / inverse) if inverse > 0 else None


def _slope(scene: Scene, push: Float, columns: Bool, scale: float) -> tuple[float, bool]:
    """Return the exponent of probability in the columns' weights, by least squares in each row, and
    whether weights are such a power; not a number where all columns are equally likely.
    """
    log_p, x, y = np.log(scene.probability), [], []
    for row in range(scene.b):
        some = np.flatnonzero(columns[row])
        if len(some) > 1:
            rest = np.log(push[row, some]) - scale * scene.scores[row, some]
            x += list(log_p[some] - log_p[some].mean())
            y += list(rest - rest.mean())
    spread = float(np.square(x).sum())
    if spread < 1e-6:
        return math.nan, True
    slope = float(np.dot(x, y)) / spread
    rest = float(np.std(np.array(y) - slope * np.array(x)))
    return slope, rest < 0.1 * max(float(np.std(y)), 1e-3) or abs(slope) < 0.1


def _positive_offset(
    evaluator: Evaluator,
    scene: Scene,
    push: Float,
    columns: Bool,
    scale: float,
    slope: float,
) -> tuple[float, float, float] | None:
    """Return the exponent of probability in the positive's weight, its median weight over that of
    one negative of like probability, and the number of negatives.
    """
    log_p, offsets = np.log(scene.probability), []
    for row in range(scene.b):
        some = np.flatnonzero(columns[row])
        if not len(some):
            return None
        found = logistic(evaluator, scene, row, int(some[np.argmax(push[row, some])]))
        own = 1 + push[row, row] / found[1] if found else 0.0
        if found is None or own <= 1e-9:
            return None
        weights = np.log(push[row, some] / found[1]) - scale * scene.scores[row, some]
        base = float(np.mean(weights - slope * log_p[some]))
        offsets.append(math.log(own) - scale * scene.scores[row, row] - base)
    x = log_p[: scene.b] - log_p[: scene.b].mean()
    spread = float(np.square(x).sum())
    exponent = float(np.dot(x, offsets)) / spread if spread > 1e-6 else 0.0
    count = np.count_nonzero(columns, axis=1).mean()
    return exponent, float(np.exp(np.median(offsets))), float(count)


def fit_symmetric(scene: Scene, push: Float) -> tuple[float, float, float] | None:
    """Return the scale of a softmax over items, the exponent of probability in it, and the scale of
    the softmax over users that is added to it with some weight.
    """
    from scipy.optimize import least_squares
    from scipy.special import softmax

    b = scene.b
    scores, seen = scene.scores[:, :b], push[:, :b]
    log_p = np.log(scene.probability[:b])
    off = ~np.eye(b, dtype=bool)

    def shape(values: Sequence[float]) -> Float:
        over_items = softmax(values[0] * scores + values[1] * log_p, axis=1)
        both = over_items + math.exp(values[3]) * softmax(values[2] * scores, axis=0)
        return np.asarray(both[off] / both[off].sum())

    wanted = seen[off] / seen[off].sum()
    starts = [[start, 0.0, start, 0.0] for start in (1, 5, 20)]
    fits = [
        least_squares(lambda values: shape(values) - wanted, start, ftol=1e-12, xtol=1e-12)
        for start in starts
    ]
    best = min(fits, key=lambda each: each.cost)
    if not math.sqrt(2 * best.cost) < 1e-4 * float(np.linalg.norm(wanted)):
        return None
    return float(best.x[0]), float(best.x[1]), float(best.x[2])


def _lengths(evaluator: Evaluator, scene: Scene) -> dict[str, bool]:
    """Return whether vectors of each side change a loss by their length, apart from a penalty on
    lengths, which is the same for all scores.
    """
    names = {role: name for name, role in evaluator.loss.roles.items() if role in VECTORS}
    changes = []
    for each in (scene, replace(scene, score=scene.score / 2)):
        arrays = evaluator.arrays(each, each.coordinates())
        usual = evaluator.value_of(arrays)
        longer = [{**arrays, name: 2 * arrays[name]} for name in names.values()]
        changes.append([evaluator.value_of(other) - usual for other in longer])
    least = max(evaluator.tolerance / 10, 1e-6)
    return {
        role: not math.isclose(*both, rel_tol=least, abs_tol=least * max(1e-3, abs(usual)))
        for role, *both in zip(names, *changes, strict=True)
    }


def amplitude(evaluator: Evaluator, scene: Scene, kind: Kind) -> float:
    """Return the mean weight of some rows, for scores that are all 0."""
    flat = replace(scene, score=0 * scene.score)
    found = []
    for row in range(3):
        own = -evaluator.push(flat, row, row)
        if kind == "listwise":
            drawn = flat.b + row * flat.negative.shape[1]
            beside = [(row + step) % flat.b for step in (1, 2, 3, -1, -2)]
            others = [c for c in (*beside, drawn) if c < len(flat.slot) and c != row]
            # The largest push shows its limit best.
            fit = logistic(
                evaluator, flat, row, max(others, key=lambda c: evaluator.push(flat, row, c))
            )
            own = fit[1] if fit else own
        found.append(own)
    return float(np.mean(found))
