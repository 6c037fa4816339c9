"""Facts about a loss, each from a change of one score and nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from ncfbench.linting.batches import Contents, look
from ncfbench.linting.derivatives import CHANGE, LEAST, ROWS, SEEDS, Evaluator
from ncfbench.linting.masks import Masks, measure_masks
from ncfbench.linting.scenes import Bool, Float, Scene
from ncfbench.linting.signature import VECTORS
from ncfbench.statistics.intervals import Estimate, mean

Kind: TypeAlias = Literal["listwise", "pairwise", "pointwise", "over users", "symmetric", "other"]
CORRECTING = (
    *("probability", "log_probability", "counts", "probability_table", "log_probability_table"),
    *("counts_table", "negative_probability", "negative_log_probability"),
)
"""Arguments by which a loss can correct for popularity."""
STEEPEST = 5.0
"""Largest difference of a scene's scores within a softmax: beyond, it looks at one item alone."""


@dataclass(frozen=True)
class Facts:
    """The facts about a loss.

    Attributes:
        kind: what a negative's push depends on: the other negatives of its user (listwise), the
            positive (pairwise), nothing else (pointwise), or the other users of its item.
        scale: factor of scores within the loss; None where the push is no logistic function.
        in_batch, drawn, drawn_for_others, catalogue: which columns are negatives of a row; all
            items of the catalogue where a loss is told its rows' labels.
        slope: exponent of an item's probability in its weight as a negative: -1 corrects for
            batches in which popular items are frequent, 0 does not; None where it makes no sense.
        is_power: whether weights are a power of it at all, in a loss that is told probabilities.
        positive_slope: the same of the positive's own weight.
        positive_weight: the positive's weight over that of any other item, were the items that
            repeat it not there.
        lengths: whether the length of users', items' and negatives' vectors changes anything.
        masks: how pairs that are no true negatives are treated.
        contents: what batches hold.
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
    is_power: bool
    masks: Masks
    contents: Contents

    @property
    def title(self) -> str:
        """The objective in a few words."""
        titles = {
            "listwise": "sampled softmax over items",
            "pairwise": "pairwise (BPR, hinge)",
            "pointwise": "pointwise",
            "over users": "softmax over users",
            "symmetric": "softmax over items and over users",
            "other": "none of the known ones",
        }
        if self.catalogue and self.kind == "listwise":
            return "softmax over all items"
        return titles[self.kind]


def measure(evaluator: Evaluator, batch_size: int) -> tuple[Evaluator, Facts]:
    """Measure a loss on scenes in which nothing is linked but the rows themselves.

    Returns:
        The evaluator, with scores as near as the loss's scale asks for; and the facts.
    """
    scenes = [evaluator.scenes().plain(seed, ROWS) for seed in SEEDS]
    pushes = [evaluator.pushes(scene) for scene in scenes]
    kind = kind_of(evaluator, scenes[0], pushes[0])
    counted = [evaluator.negatives(push) for push in pushes]
    is_own = scenes[0].owner == np.arange(ROWS)[:, None]
    any_counted = np.any(counted, axis=0)
    is_catalogue = evaluator.layout.is_catalogue
    in_batch = bool(any_counted[:, :ROWS].any()) and not is_catalogue
    fits = [fit for scene in scenes if (fit := fit_of(evaluator, kind, scene))]
    scale = mean([fit[0] for fit in fits]) if fits else None
    slope = mean([fit[1] for fit in fits]) if fits and kind == "symmetric" else None
    weights: list[Weights] = []
    if kind == "listwise" and scale and (in_batch or evaluator.scenes().by_popularity):
        columns = (np.arange(is_own.shape[1]) < ROWS) == in_batch
        parts = [_weights(evaluator, scene, columns, scale.value) for scene in scenes]
        weights = [part for part in parts if part]
    is_power = all(part.is_power for part in weights)
    # Weights that are no power of probability, as with smoothed labels, say nothing.
    if weights and (is_power or evaluator.loss.has(*CORRECTING)):
        slope = mean([part.slope for part in weights])
    positives = [part.positive for part in weights if part.positive and is_power]
    if scale:
        spread = min(evaluator.spread, STEEPEST / scale.value)
        evaluator = replace(evaluator, spread=spread)
    return evaluator, Facts(
        kind=kind,
        scale=scale,
        in_batch=in_batch,
        drawn=bool((any_counted & is_own)[:, ROWS:].any()),
        drawn_for_others=bool((any_counted & ~is_own)[:, ROWS:].any()) and not is_catalogue,
        catalogue=is_catalogue,
        slope=slope,
        positive_slope=mean([exponent for exponent, _ in positives]) if positives else None,
        positive_weight=mean([weight for _, weight in positives]) if positives else None,
        lengths=_lengths(evaluator, scenes[0]),
        is_power=is_power,
        masks=measure_masks(evaluator),
        contents=look(evaluator, batch_size),
    )


def kind_of(evaluator: Evaluator, scene: Scene, push: Float) -> Kind:
    """Return what the push of a negative depends on, by changing one score at a time."""
    counted = evaluator.negatives(push)
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
        return "other"
    if rival > LEAST and other_user > LEAST:
        return "symmetric"
    if other_user > LEAST and keeps_columns:
        return "over users"
    if rival > LEAST:
        return "listwise"
    highest = 1 if evaluator.loss.has("users") else 30
    changes = (CHANGE, highest - scene.scores[row, row])
    if keeps_rows and any(
        effect_of_positive(evaluator, scene, row, change)[1] for change in changes
    ):
        return "pairwise"
    return "pointwise" if effect(row, row, columns[0]) <= LEAST else "other"


def effect_of_positive(
    evaluator: Evaluator, scene: Scene, row: int, change: float = CHANGE
) -> tuple[bool, bool]:
    """Return whether a change of a row's own score changes its pull, and any of its pushes."""
    push = evaluator.pushes(scene)
    columns = evaluator.negatives(push)[row]
    other = evaluator.pushes(scene.with_score(row, row, change))[row]
    with np.errstate(all="ignore"):
        is_changed = np.abs(other / push[row] - 1) > LEAST
    return bool(is_changed[row]), bool(is_changed[columns].any())


def fit_of(evaluator: Evaluator, kind: Kind, scene: Scene) -> tuple[float, ...] | None:
    """Return the scale of scores within a loss, and what :func:`fit_symmetric` or :func:`logistic`
    returns with it.
    """
    push = evaluator.pushes(scene)
    if kind == "symmetric":
        return fit_symmetric(scene, push)
    return logistic(evaluator, scene, 0, int(np.argmax(push[0])))


def logistic(
    evaluator: Evaluator, scene: Scene, row: int, column: int, tolerance: float = 0.05
) -> tuple[float, float] | None:
    """Return the scale and the amplitude of a push that is a logistic function of its own score.

    1 / push is then linear in exp(-scale score), so three scores tell both, and two more whether it
    is so. That holds for the softmax, for BPR and for the cross-entropy, and for a positive's pull
    as its score falls. None for other functions.
    """
    sign = -1 if column == row else 1
    pushes = sign * evaluator.slopes(scene, row, column)[::sign]
    if min(pushes) <= 0:
        return None
    middle = pushes[2]
    falls = -np.diff(1 / pushes)
    if falls.min() <= 1e-9 / middle or falls[1] / falls[2] <= 1 + 1e-6:
        return None
    ratios = np.log(falls[:-1] / falls[1:])
    if np.ptp(ratios) > tolerance * ratios.max():
        return None  # of another shape
    second = falls[2] + falls[3]
    scale = math.log((falls[0] + falls[1]) / second) / CHANGE
    rest = second / (1 - math.exp(-scale * CHANGE))
    inverse = 1 / middle - rest
    return (scale, float(1 / inverse)) if inverse > 0 else None


class Weights(NamedTuple):
    """How the weights of a softmax's items follow their probability.

    Attributes:
        slope: exponent of probability in the weights of negatives.
        is_power: whether these are such a power.
        positive: the same exponent of the positive's weight, and its median over that of one
            negative of like probability, for as many negatives as there are.
    """

    slope: float
    is_power: bool
    positive: tuple[float, float] | None


def _weights(evaluator: Evaluator, scene: Scene, among: Bool, scale: float) -> Weights | None:
    """Fit the weights of some columns by least squares in each row; None where all columns are
    equally likely.
    """
    push, log_p = evaluator.pushes(scene), np.log(scene.probability)
    columns = evaluator.negatives(push) & among
    x = np.ma.array(np.broadcast_to(log_p, push.shape), mask=~columns)
    y = np.ma.array(np.log(np.where(columns, push, 1)) - scale * scene.scores, mask=~columns)
    means = [np.ma.filled(part.mean(axis=1), 0.0) for part in (x, y)]
    dx, dy = (part - middle[:, None] for part, middle in zip((x, y), means, strict=True))
    spread = float(np.ma.sum(dx**2) or 0.0)
    if spread < 1e-6:
        return None
    slope = float(np.ma.sum(dx * dy)) / spread
    rest, all_ = (float(np.std(part.compressed())) for part in (dy - slope * dx, dy))
    is_power = rest < 0.1 * max(all_, 1e-3) or abs(slope) < 0.1
    if not columns.any(axis=1).all():
        return Weights(slope, is_power, None)
    best = np.argmax(np.where(columns, push, 0), axis=1)
    fits = [logistic(evaluator, scene, *at) for at in enumerate(best.tolist())]
    largest = np.array([fit[1] if fit else math.nan for fit in fits])
    shares = 1 + np.diagonal(push) / largest
    if not (shares > 1e-9).all():
        return Weights(slope, is_power, None)
    negative = means[1] - np.log(largest) - slope * means[0]
    offsets = np.log(shares) - scale * np.diagonal(scene.scores) - negative
    of_items = log_p[: scene.b] - log_p[: scene.b].mean()
    exponent = float(np.dot(of_items, offsets) / max(np.dot(of_items, of_items), 1e-6))
    weight = float(np.exp(np.median(offsets)) / columns.sum(axis=1).mean())
    return Weights(slope, is_power, (exponent, weight))


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
    best = min(fits, key=lambda fit: fit.cost)
    if not math.sqrt(2 * best.cost) < 1e-4 * float(np.linalg.norm(wanted)):
        return None
    return float(best.x[0]), float(best.x[1]), float(best.x[2])


def _lengths(evaluator: Evaluator, scene: Scene) -> dict[str, bool]:
    """Return whether vectors of each side change a loss by their length, apart from a penalty on
    lengths, which is the same for all scores.
    """
    names = {role: name for name, role in evaluator.loss.roles.items() if role in VECTORS}
    changes = []
    for sized in (scene, replace(scene, score=scene.score / 2)):
        arrays = evaluator.arrays(sized)
        usual = evaluator.value_of(arrays)
        longer = [{**arrays, name: 2 * arrays[name]} for name in names.values()]
        changes.append([evaluator.value_of(other) - usual for other in longer])
    least = max(evaluator.tolerance / 10, 1e-6)
    return {
        role: not math.isclose(*both, rel_tol=least, abs_tol=least * max(1e-3, abs(usual)))
        for role, *both in zip(names, *changes, strict=True)
    }
