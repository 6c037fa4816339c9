"""Checks of a loss's options: flags must change something, numbers what their names say."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ncfbench.linting import balance
from ncfbench.linting.derivatives import Evaluator
from ncfbench.linting.facts import SEEDS, Facts, fit_symmetric, logistic
from ncfbench.linting.findings import Finding, Severity, finding
from ncfbench.linting.layouts import ROWS
from ncfbench.linting.scenes import Scene

TEMPERATURES = r"(softmax_?)?temp(erature)?|tau"
SCALES = r"(logit_?|similarity_?|inverse_?temperature_?)?scale|inv(erse)?_?temp(erature)?"
WITHOUT_EFFECT = r"(.*_)?(verbose|progress(_bar)?|debug|checks?|checkpoint(s|ing)?|metrics?)(_.*)?"
"""Names of flags that may change nothing: whole words, for ``symmetric`` has ``metric`` in it."""
PROMISES = (
    r"(.*_)?(hits?|neg(ative)?s?|pos(itive)?s?|mask(s|ed)?|remove|exclude|dup(licate)?s?|symmetric"
    r"|bidirectional|norm(al(i[sz]ed?)?)?|weight(s|ed)?|reduction|correct(s|ed|ion)?|log_?q|debias(ed)?"
    r"|in_batch|hard(est)?)(_.*)?"
)
"""Names of flags that promise another loss; others, such as ``training``, may change nothing."""


def idle(evaluator: Evaluator) -> Iterator[Finding]:
    """Say which flags change nothing, in any of some batches."""
    if evaluator.is_random or evaluator.is_stateful:
        return
    scenes = _scenes(evaluator)
    for name, value in evaluator.options.items():
        other = _alternative(value)
        if other is None or re.fullmatch(WITHOUT_EFFECT, name):
            continue
        if _differ(evaluator, evaluator.with_options(**{name: other}), scenes):
            continue
        # One that is off may need another option beside it.
        claims = value is not False and re.fullmatch(PROMISES, name, re.IGNORECASE)
        severity: Severity | None = None if claims else "warning"
        detail = f"{name} = {value}, tried {other}"
        yield finding("idle-flag", [0.0], "largest relative change", 1, detail, severity)


def _scenes(evaluator: Evaluator) -> list[Scene]:
    scenes = evaluator.scenes()
    plain = scenes.plain(0, ROWS)
    # Large scores and small ones, that margins and thresholds look at.
    found = [plain, scenes.distinct(0, 5), replace(plain, score=np.abs(plain.score) ** 0.3 - 0.5)]
    found += [scenes.related(0, ROWS, relation)[0] for relation in scenes.relations()]
    if evaluator.layout.k:
        found.append(scenes.collision(0, ROWS))
    return found


def _alternative(value: Any) -> Any:
    """Return another value of a flag or a reduction; None where none is known."""
    if isinstance(value, bool):
        return not value
    return {"sum": "mean", "mean": "sum"}.get(value) if isinstance(value, str) else None


def _differ(one: Evaluator, other: Evaluator, scenes: list[Scene]) -> bool:
    """Return whether two choices of options differ in a loss, a gradient or an error."""
    tolerance = 1e-9 if one.framework.is_double else 1e-6
    near = partial(np.allclose, rtol=tolerance, atol=tolerance**1.5, equal_nan=True)
    try:
        if not all(near(one.value(scene), other.value(scene)) for scene in scenes):
            return True
        sides = [each.gradients(scenes[0]) for each in (one, other)]
    except Exception:  # noqa: BLE001 - an option that makes the loss fail changes it
        return True
    near = partial(np.allclose, rtol=1e-5, atol=1e-8, equal_nan=True)
    return not all(near(sides[0][role], sides[1][role]) for role in sides[0])


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
        scenes = [evaluator.scenes().plain(seed, ROWS) for seed in SEEDS]
        flat = [replace(scene, score=0 * scene.score) for scene in scenes]
        ratios = balance.ratios(changed, flat) / balance.ratios(evaluator, flat)
        exponents = (np.log(ratios) / math.log(1.25)).tolist()
        if min(map(abs, exponents)) > 0.1:
            unit = f"exponent of {name} in the pull of positives over the push of the others"
            yield finding("temperature", exponents, unit, 0, f"{name} = {value}")
            continue
        # A logarithm, which the loss takes the exponential of.
        if abs(value) < 20 and abs(abs(math.log(facts.scale.value)) - abs(value)) < 0.01:
            continue
        exponents = []
        for seed in SEEDS[:3]:
            scales = [_scale(each, facts, seed) for each in (evaluator, changed)]
            if None not in scales:
                exponents.append(math.log(scales[1] / scales[0]) / math.log(1.25))  # type: ignore[operator]
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


def _scale(evaluator: Evaluator, facts: Facts, seed: int) -> float | None:
    """Return the factor of scores within the loss."""
    scene = evaluator.scenes().plain(seed, ROWS)
    push = evaluator.pushes(scene)
    if facts.kind == "symmetric":
        both = fit_symmetric(scene, push)
        return both[0] if both else None
    fit = logistic(evaluator, scene, 0, int(np.argmax(push[0])))
    return fit[0] if fit else None
