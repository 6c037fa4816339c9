"""Checks of what a right loss must do: its pulls equal its pushes, on one scale of scores."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ncfbench.linting.derivatives import Evaluator
from ncfbench.linting.facts import (
    CHANGE,
    LEAST,
    SEEDS,
    Facts,
    fit_symmetric,
    logistic,
    negative_columns,
)
from ncfbench.linting.findings import Finding, finding
from ncfbench.linting.layouts import ROWS
from ncfbench.linting.scenes import Float, Scene
from ncfbench.linting.signature import call_of

SOFTMAXES = ("listwise", "symmetric", "other")
"""Kinds in whose sums a positive, or a constant, may stand."""
NEAR = 0.01
"""Relative difference of two scales, or of a weight from 2, that is one."""
CLAIMS = r"(.*_)?(cos(ine)?_.+|cosine|cos_?sim.*)"
"""Names by which a loss claims to compare vectors of unit length."""


def ratios(evaluator: Evaluator, scenes: Sequence[Scene]) -> Float:
    """Return the pull of all positives over the push of all other pairs, in each scene."""
    totals = [evaluator.totals(scene) for scene in scenes]
    return np.array([pull / push if push > 0 else math.nan for pull, push in totals])


def scales(evaluator: Evaluator, facts: Facts) -> Iterator[Finding]:
    """Check that positives and all negatives are on one scale of scores.

    Where the loss depends on differences of scores alone, pulls equal pushes. They differ by a
    constant factor where positives have a scale of their own.
    """
    scenes = _plain(evaluator)
    unit = "scale of the positives' scores over the negatives'"
    if facts.kind != "pointwise":
        found = ratios(evaluator, scenes)
        factor, spread = float(np.mean(found)), float(np.ptp(found))
        if spread < 1e-3 * factor and abs(math.log(factor)) > NEAR:
            scale = facts.scale.value if facts.scale else 1.0
            pull = evaluator.totals(scenes[0])[0]
            # A constant pull is another weight as well, unless the negatives alone have the scale.
            is_weight = not _counts_positive(evaluator, facts, scenes[0])
            if not is_weight or (abs(pull - 1) < NEAR and abs(factor * scale - 1) < NEAR):
                yield finding(
                    "temperature", found.tolist(), unit, 1, "pulls and pushes do not cancel"
                )
                return
    known: dict[str, list[float]] = {}
    if facts.kind == "symmetric" and not (facts.drawn or facts.drawn_for_others):
        both = [fit_symmetric(scene, evaluator.pushes(scene)) for scene in scenes]
        if all(both):
            known["the softmax over items"] = [fit[0] for fit in both if fit]
            known["that over users"] = [fit[2] for fit in both if fit]
    columns = np.arange(len(scenes[0].slot))
    groups = {"positives": columns == 0} if facts.kind == "pointwise" else {}
    groups |= {"the batch's items": (columns > 0) & (columns < ROWS), "drawn": columns >= ROWS}
    for name, some in groups.items():
        pushes = [np.abs(evaluator.pushes(scene)[0]) * some for scene in scenes]
        fits = [
            logistic(evaluator, scene, 0, int(np.argmax(push)), 0.002) if push.any() else None
            for scene, push in zip(scenes, pushes, strict=True)
        ]
        if all(fits):
            known[name] = [fit[0] for fit in fits if fit]
    for one, other in itertools.pairwise(known):
        quotients = np.divide(known[one], known[other]).tolist()
        if max(quotients) < 1 - NEAR or min(quotients) > 1 + NEAR:
            detail, unit = f"{one} beside {other}", "ratio of their scales"
            yield finding("temperature", quotients, unit, 1, detail)


def sums(evaluator: Evaluator, facts: Facts) -> Iterator[Finding]:
    """Check that no constant stands in the sum of a softmax, as a mask of zeros leaves it."""
    if facts.kind not in SOFTMAXES:
        return
    scenes = _plain(evaluator)
    if facts.in_batch or facts.drawn:
        shares = ratios(evaluator, scenes) - 1
        moved = [replace(scene, score=scene.score + CHANGE) for scene in scenes]
        # A constant's share falls where all scores rise.
        falls = (ratios(evaluator, moved) - 1) / np.where(shares == 0, 1, shares)
        least = math.exp(-facts.scale.value * CHANGE) if facts.scale else math.inf
        falls_so = min(falls) > 0.98 * least and max(falls) < 1 - NEAR
        if min(shares) > NEAR and falls_so and _is_in_sum(evaluator, scenes[0]):
            unit = "pull of positives beyond the push of the others, over that push"
            yield finding("mask-zero", shares.tolist(), unit, 0, "in every batch")


def lengths(evaluator: Evaluator, facts: Facts) -> Iterator[Finding]:
    """Check that a loss which normalises vectors, or claims to, does so on all sides."""
    counting = [f"{side}' vectors" for side, counts in facts.lengths.items() if counts]
    if not counting:
        return
    unit, detail = "sides whose vectors' length counts", " and ".join(counting)
    if len(counting) < len(facts.lengths):
        others = ", ".join(side for side, counts in facts.lengths.items() if not counts)
        detail = f"{detail} count by their length, those of {others} do not"
        yield finding("not-normalised", [float(len(counting))], unit, 0, detail)
        return
    scene = evaluator.scenes().plain(0, ROWS)
    doubled, halved = (
        evaluator.value_of(evaluator.arrays(each, each.coordinates(), length))
        for each, length in ((scene, 2.0), (replace(scene, score=scene.score / 2), 1.0))
    )
    if math.isclose(doubled, halved, rel_tol=1e-6):
        detail = "vectors are divided by their squared length"
        yield finding("not-normalised", [float(len(counting))], unit, 0, detail)
    elif _claims_cosine(evaluator):
        detail = "it is called a cosine, but no vectors are divided by their length"
        yield finding("not-normalised", [float(len(counting))], unit, 0, detail)


def _plain(evaluator: Evaluator) -> list[Scene]:
    return [evaluator.scenes().plain(seed, ROWS) for seed in SEEDS]


def _row(evaluator: Evaluator, scene: Scene) -> tuple[Float, list[int]]:
    """Return row 0's pushes, and the columns of its negatives, highest scores first."""
    push = evaluator.pushes(scene)
    columns = np.flatnonzero(negative_columns(evaluator, push)[0])
    return push[0], columns[np.argsort(-scene.scores[0, columns])].tolist()


def _counts_positive(evaluator: Evaluator, facts: Facts, scene: Scene) -> bool:
    """Return whether the positive's score changes how its negatives are pushed."""
    if facts.kind == "pairwise":
        return True
    push, columns = _row(evaluator, scene)
    if not columns:
        return False
    other = evaluator.push(scene.with_score(0, 0, CHANGE), 0, columns[0])
    return bool(abs(other / push[columns[0]] - 1) > LEAST)


def _is_in_sum(evaluator: Evaluator, scene: Scene) -> bool:
    """Return whether the positive stands in the sum, or else only in front of it."""
    push, columns = _row(evaluator, scene)
    some = [0, *columns[:1]]
    other = evaluator.pushes(scene.with_score(0, 0, CHANGE))[0]
    changes = np.abs(other[some] / push[some] - 1) > LEAST
    return bool(changes.all() or not changes.any())


def _claims_cosine(evaluator: Evaluator) -> bool:
    """Return whether names of the loss, of its options or within it speak of cosines."""
    code = getattr(inspect.unwrap(call_of(evaluator.loss.target)), "__code__", None)
    names = {evaluator.loss.name.rpartition(":")[2], *evaluator.options}
    names |= {*code.co_names, *code.co_varnames} if code else set()
    plain = (re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in names)
    return any(re.fullmatch(CLAIMS, name) for name in plain)
