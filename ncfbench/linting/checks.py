"""Checks of masks, corrections and sizes: each changes one thing in a scene."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from ncfbench.linting import batches
from ncfbench.linting.derivatives import LEAST, ROWS, Evaluator, imbalance
from ncfbench.linting.facts import Facts
from ncfbench.linting.findings import Finding, Severity, finding
from ncfbench.linting.scenes import Bool, Scene
from ncfbench.statistics.intervals import mean

SIZES = (ROWS, 5, 37, 1)
"""Rows of batches: a full one, a smaller last one, a larger one, the smallest."""
LEAST_LINKED, LEAST_DUPLICATES = 0.01, 0.001
"""Shares of the push on negatives above which linked pairs, and duplicates, are a fault."""
PADDED = (2, ROWS - 1)
"""Rows that are padding."""
WITHOUT_EFFECT = r"(.*_)?(verbose|progress(_bar)?|debug|checks?|checkpoint(s|ing)?|metrics?)(_.*)?"
"""Names of flags that may change nothing: whole words, for ``symmetric`` has ``metric`` in it."""
PROMISES = (
    r"(.*_)?(hits?|neg(ative)?s?|pos(itive)?s?|mask(s|ed)?|remove|exclude|dup(licate)?s?|symmetric"
    r"|bidirectional|norm(al(i[sz]ed?)?)?|weight(s|ed)?|reduction|correct(s|ed|ion)?|log_?q|debias(ed)?"
    r"|in_batch|hard(est)?)(_.*)?"
)
"""Names of flags that promise another loss; others, such as ``training``, may change nothing."""


def sizes(evaluator: Evaluator, _: Facts) -> Iterator[Finding]:
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


def padding(evaluator: Evaluator, _: Facts) -> Iterator[Finding]:
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
    at = scene.owner if evaluator.layout.labels == "pairs" else np.arange(ROWS)
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
    elif imbalance(push[rows]).max() > 1e-3 >= imbalance(evaluator.pushes(scene)).max():
        share = float(np.abs(push[rows].sum(axis=1)).sum() / size)
        yield finding("mask-zero", [share], unit, 0, f"padding of {name}")
    elif role == "row_mask":
        alone = evaluator.value(scene.rows(rows))
        if not math.isclose(value, alone, rel_tol=1e2 * evaluator.tolerance, abs_tol=1e-9):
            unit, ratio = "loss with padding over that without", value / (alone or 1.0)
            yield finding("padding", [ratio], unit, 1, f"rows of {name} 0, in the mean")


def masks(evaluator: Evaluator, facts: Facts) -> Iterator[Finding]:
    """Check the masks of pairs that are no true negatives, and what batches have of them."""
    masks, contents, kind = facts.masks, facts.contents, facts.kind
    unit = "push over that of a true negative"
    if kind == "listwise" and min(masks.constant, default=0.0) > 1e-3:
        yield finding("mask-zero", masks.constant, "share of the softmax", 0, "a masked pair")
    has_ids = evaluator.loss.has("item_ids") and evaluator.loss.has("negative_ids")
    if has_ids and masks.counts("drawn") and facts.drawn and kind != "pairwise":
        yield finding("duplicates", masks.pushes["drawn"], unit, 0, "a drawn negative")
    if not facts.in_batch:
        return
    if evaluator.loss.has("linked") and masks.counts("linked"):
        detail = "although the argument names the links"
        yield finding("linked", masks.pushes["linked"], unit, 0, detail)
    # In a pairwise loss the two columns of one item push and pull it alike.
    is_harmless = kind in ("over users", "pairwise") or _duplicates_belong(facts)
    is_frequent = mean(contents.duplicates_push).value > LEAST_DUPLICATES
    if masks.counts("same item") and is_frequent and not is_harmless:
        # Where the correction is not known, neither is whether they belong into the sum.
        is_open = kind in ("listwise", "symmetric") and facts.slope is None
        severity: Severity | None = "warning" if is_open else None
        detail = "two rows with one item"
        yield finding("duplicates", masks.pushes["same item"], unit, 0, detail, severity)
    if max(masks.pushes["same user"], default=1.0) < 0.01:
        return
    # A softmax over all items has training links among its items.
    severity = "error" if kind in ("pairwise", "pointwise") else "note"
    detail, unit = f"batches of {contents.rows} links", "share of the push on negatives"
    result = finding("linked", contents.linked_push, unit, 0, detail, severity)
    if result.low > LEAST_LINKED:
        yield result


def _duplicates_belong(facts: Facts) -> bool:
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


def corrections(evaluator: Evaluator, facts: Facts) -> Iterator[Finding]:
    """Check over what a softmax runs, and its correction for popularity."""
    if facts.kind == "over users":
        unit = "rows over which the softmax runs, as a share of the columns"
        yield finding("over-users", [1.0], unit, 0, "a change of another user's score shows it")
    slope, graph = facts.slope, evaluator.graph
    if slope is None:
        return
    # Exponent of an item's probability in how often batches count it as a negative.
    tilt = batches.tilt(graph, facts.contents.rows) if facts.masks.counts_once else 1.0
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
    pushes = facts.masks.pushes
    copies = pushes["same item"] or pushes["drawn"] or [0.0]  # below 0: they are positives too
    is_masked = max(map(abs, copies)) < 0.01
    if positive and abs(positive.value + 1) < 0.2 and (is_masked or abs(slope.value) < 0.1):
        unit = "exponent of probability in the positive's weight"
        yield finding("logq-positive", positive, unit, 0, f"{positive.value:+.2f}")


def idle(evaluator: Evaluator, _: Facts) -> Iterator[Finding]:
    """Say which flags change nothing, in any of some batches."""
    scenes = _scenes(evaluator)
    for name, value in evaluator.options.items():
        reductions = {"sum": "mean", "mean": "sum"}
        other = not value if isinstance(value, bool) else reductions.get(str(value))
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
    spread = replace(plain, score=np.abs(plain.score) ** 0.3 - 0.5)
    related = [scenes.related(0, ROWS, relation)[0] for relation in scenes.relations()]
    return [plain, scenes.distinct(0, 5), spread, *related]


def _differ(one: Evaluator, other: Evaluator, scenes: list[Scene]) -> bool:
    """Return whether two choices of options differ in a loss, a gradient or an error."""
    tolerance = 1e-9 if one.framework.is_double else 1e-6
    near = partial(np.allclose, rtol=tolerance, atol=tolerance**1.5, equal_nan=True)
    try:
        if not all(near(one.value(scene), other.value(scene)) for scene in scenes):
            return True
        sides = [variant.gradients(scenes[0]) for variant in (one, other)]
    except Exception:  # noqa: BLE001 - an option that makes the loss fail changes it
        return True
    near = partial(np.allclose, rtol=1e-5, atol=1e-8, equal_nan=True)
    return not all(near(sides[0][role], sides[1][role]) for role in sides[0])
