"""Checks of what a right loss must do: its pulls equal its pushes, on one scale of scores."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ncfbench.linting.derivatives import CHANGE, ROWS, SEEDS, Evaluator
from ncfbench.linting.facts import Facts, effect_of_positive, fit_of, logistic
from ncfbench.linting.findings import Finding, finding
from ncfbench.linting.scenes import Float, Scene

SOFTMAXES = ("listwise", "symmetric", "other")
"""Kinds in whose sums a positive, or a constant, may stand."""
TEMPERATURES = r"(softmax_?)?temp(erature)?|tau"
SCALES = r"(logit_?|similarity_?|inverse_?temperature_?)?scale|inv(erse)?_?temp(erature)?"
NEAR = 0.01
"""Relative difference of two scales, or of a weight from 2, that is one."""


def ratios(evaluator: Evaluator, scenes: Sequence[Scene]) -> Float:
    """Return the pull of all positives over the push of all other pairs, in each scene."""
    totals = [evaluator.totals(scene) for scene in scenes]
    return np.array([pull / push if push > 0 else math.nan for pull, push in totals])


def scales(evaluator: Evaluator, facts: Facts) -> Iterator[Finding]:
    """Check scales, and where they are right sums and temperatures, which rest on them."""
    wrong = [*_scales(evaluator, facts)]
    yield from wrong or [*_sums(evaluator, facts), *temperatures(evaluator, facts)]


def _scales(evaluator: Evaluator, facts: Facts) -> Iterator[Finding]:
    """Check that positives and all negatives are on one scale of scores.

    Where the loss depends on differences of scores alone, pulls equal pushes. They differ by a
    constant factor where positives have a scale of their own.
    """
    scenes = _plain(evaluator)
    unit = "scale of the positives' scores over the negatives'"
    if facts.kind != "pointwise":
        quotients = ratios(evaluator, scenes)
        factor, spread = float(np.mean(quotients)), float(np.ptp(quotients))
        if spread < 1e-3 * factor and abs(math.log(factor)) > NEAR:
            scale = facts.scale.value if facts.scale else 1.0
            pull = evaluator.totals(scenes[0])[0]
            # A constant pull is another weight as well, unless the negatives alone have the scale.
            counts = facts.kind == "pairwise" or effect_of_positive(evaluator, scenes[0], 0)[1]
            if counts or (abs(pull - 1) < NEAR and abs(factor * scale - 1) < NEAR):
                yield finding(
                    "temperature", quotients.tolist(), unit, 1, "pulls and pushes do not cancel"
                )
                return
    known: dict[str, list[float]] = {}
    if facts.kind == "symmetric" and not (facts.drawn or facts.drawn_for_others):
        both = [fit for scene in scenes if (fit := fit_of(evaluator, facts.kind, scene))]
        if len(both) == len(scenes):
            known["the softmax over items"] = [fit[0] for fit in both]
            known["that over users"] = [fit[2] for fit in both]
    columns = np.arange(len(scenes[0].slot))
    groups = {"positives": columns == 0} if facts.kind == "pointwise" else {}
    groups |= {"the batch's items": (columns > 0) & (columns < ROWS), "drawn": columns >= ROWS}
    for name, group in groups.items():
        pushes = [np.abs(evaluator.pushes(scene)[0]) * group for scene in scenes]
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


def _sums(evaluator: Evaluator, facts: Facts) -> Iterator[Finding]:
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
        # The positive stands in the sum too, or else only in front of it.
        is_pull, is_push = effect_of_positive(evaluator, scenes[0], 0)
        if min(shares) > NEAR and falls_so and is_pull == is_push:
            unit = "pull of positives beyond the push of the others, over that push"
            yield finding("mask-zero", shares.tolist(), unit, 0, "in every batch")


def temperatures(evaluator: Evaluator, facts: Facts) -> Iterator[Finding]:
    """Check that scores follow the temperature, or the scale, as its name says."""
    if facts.scale is None:
        return
    named = {
        name: expected
        for name, value in evaluator.options.items()
        for pattern, expected in ((TEMPERATURES, -1.0), (SCALES, 1.0))
        if re.fullmatch(pattern, name, re.IGNORECASE)
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and value > 0
    }
    for name, expected in named.items():
        value = evaluator.options[name]
        changed = evaluator.with_options(**{name: 1.25 * value})
        scenes = _plain(evaluator)
        flat = [replace(scene, score=0 * scene.score) for scene in scenes]
        quotients = ratios(changed, flat) / ratios(evaluator, flat)
        exponents = (np.log(quotients) / math.log(1.25)).tolist()
        if min(map(abs, exponents)) > 0.1:
            unit = f"exponent of {name} in the pull of positives over the push of the others"
            yield finding("temperature", exponents, unit, 0, f"{name} = {value}")
            continue
        # A logarithm, which the loss takes the exponential of.
        if abs(value) < 20 and abs(abs(math.log(facts.scale.value)) - abs(value)) < 0.01:
            continue
        fits = [
            [fit_of(variant, facts.kind, scene) for variant in (evaluator, changed)]
            for scene in scenes
        ]
        exponents = [
            math.log(after[0] / before[0]) / math.log(1.25)
            for before, after in fits
            if before and after
        ]
        if not exponents:
            continue
        unit, exponent = f"exponent of {name} in the scale of scores", float(np.mean(exponents))
        product = facts.scale.value * value ** (-expected)
        if abs(exponent - 2 * expected) < 0.1:
            yield finding("temperature-twice", exponents, unit, expected, f"{name} = {value}")
        elif abs(exponent + expected) < 0.1 and value**exponent >= 1:
            continue  # a temperature that multiplies makes scores larger, so it is a scale by name
        elif abs(exponent - expected) > 0.1:
            severity = None if abs(exponent + expected) < 0.1 else "warning"
            detail = f"{name} = {value}"
            yield finding("temperature", exponents, unit, expected, detail, severity)  # type: ignore[arg-type]
        # The product is 1 where it is right, so that a value near 1 shows nothing; 2 is the factor
        # by which squared distances of unit vectors exceed cosines.
        elif (
            len(named) == 1
            and abs(product / value**expected - 1) < 0.02
            and min(abs(product - 1), abs(product - 2)) > 0.02
        ):
            unit = f"scale of scores for {name} = {value}"
            yield finding("temperature-twice", facts.scale, unit, value**expected, "a constant")


def lengths(evaluator: Evaluator, facts: Facts) -> Iterator[Finding]:
    """Check that a loss which normalises vectors does so on all sides."""
    counting = [f"{side}' vectors" for side, counts in facts.lengths.items() if counts]
    if 0 < len(counting) < len(facts.lengths):
        rest = ", ".join(side for side, counts in facts.lengths.items() if not counts)
        detail = f"{' and '.join(counting)} count by their length, those of {rest} do not"
        unit = "sides whose vectors' length counts"
        yield finding("not-normalised", [float(len(counting))], unit, 0, detail)


def _plain(evaluator: Evaluator) -> list[Scene]:
    return [evaluator.scenes().plain(seed, ROWS) for seed in SEEDS]
