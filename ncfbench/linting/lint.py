"""The lint of a loss: facts and findings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ncfbench.errors import UsageError, nearest
from ncfbench.linting import balance, basics, batches, checks, options
from ncfbench.linting.derivatives import Evaluator
from ncfbench.linting.facts import Facts, measure
from ncfbench.linting.findings import KINDS, Finding, finding, rank
from ncfbench.linting.signature import read_loss
from ncfbench.runs.progress import Progress
from ncfbench.statistics.intervals import mean

HOPELESS = (
    *("not-finite", "no-gradient", "wrong-sign", "wrong-positive", "wrong-negative", "batch-axis"),
    "no-pull",
)
"""Findings after which nothing else can be said."""
STEEPEST = 5.0
"""Largest difference of a scene's scores within a softmax: beyond, it looks at one item alone."""
LEAST_LINKED, LEAST_DUPLICATES = 0.01, 0.001
"""Shares of the push on negatives above which linked pairs, and duplicates, are a fault."""


@dataclass(frozen=True, repr=False)
class Lint:
    """All that is known of a loss.

    Attributes:
        findings: the worst first, without those that were accepted.
        accepted: those that were.
        read_as: how each argument was understood, by name.
    """

    name: str
    framework: str
    facts: Facts | None
    findings: list[Finding]
    accepted: list[Finding]
    contents: batches.Contents | None
    read_as: Mapping[str, str]
    sizes: Mapping[str, int]

    def __repr__(self) -> str:
        return f"<Lint of {self.name}: {', '.join(each.code for each in self.findings) or 'clean'}>"

    @property
    def errors(self) -> list[Finding]:
        """The findings that are wrong for certain."""
        return [each for each in self.findings if each.severity == "error"]

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        facts = asdict(self.facts) | {"objective": self.facts.title} if self.facts else None
        return {
            "loss": self.name,
            "framework": self.framework,
            "read_as": dict(self.read_as),
            "graph": dict(self.sizes),
            "findings": [each.as_row() for each in self.findings],
            "accepted": [each.as_row() for each in self.accepted],
            "facts": facts,
            "batches": asdict(self.contents) if self.contents else None,
        }


def lint_loss(
    loss: Any,
    *,
    pairs: str | Path | None = None,
    batch_size: int = 64,
    accept: Collection[str] = (),
    options_: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Lint:
    """Judge a loss by what changes of single scores do to its gradient.

    Args:
        loss: ``module:name``, a function, a class or an object; see
            :data:`ncfbench.linting.signature.SHAPES`.
        pairs: a file of training links; by default a small random graph.
        accept: codes of findings that are meant to be.
        options_: values of the loss's arguments in place of their defaults.

    Raises:
        DataError: the pairs cannot be read, or are too few or too dense.
        UsageError: the loss cannot be used.
    """
    for code in accept:
        if code not in KINDS:
            raise UsageError(f"--accept {code}: no finding has that code{nearest(code, KINDS)}")
    if batch_size < 2:
        raise UsageError(f"batch_size = {batch_size}: a batch needs 2 links or more.")
    progress = progress or Progress()
    read = read_loss(loss, options_)
    graph = batches.read_pairs(Path(pairs)) if pairs else batches.default_graph()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the user's code, on made-up batches
        evaluator = Evaluator.of(read, graph)
        progress.say(
            f"{read.name}: {evaluator.framework.name}, on {graph.n_users:,} users,"
            f" {graph.n_items:,} items and {graph.n_links:,} links."
        )
        found, facts, contents = _judged(evaluator, batch_size, progress.say)
    found = sorted(map(_certain, found), key=lambda each: rank(each.code, each.severity))
    return Lint(
        name=read.name,
        framework=evaluator.framework.name,
        facts=facts,
        findings=[each for each in found if each.code not in accept],
        accepted=[each for each in found if each.code in accept],
        contents=contents,
        read_as=evaluator.read_as(),
        sizes={"users": graph.n_users, "items": graph.n_items, "links": graph.n_links},
    )


def _certain(found: Finding) -> Finding:
    """Return a finding, as a warning where its interval holds what would be right."""
    is_open = found.low <= found.expected <= found.high
    return replace(found, severity="warning") if is_open and found.severity == "error" else found


def _judged(
    evaluator: Evaluator, batch_size: int, say: Callable[[str], None]
) -> tuple[list[Finding], Facts | None, batches.Contents | None]:
    """Return all findings, and what is known of the loss as far as it can be judged."""
    found: list[Finding] = []
    for check in (basics.batch_axis, basics.basics):
        found += check(evaluator)
        if any(each.code in HOPELESS for each in found):
            return found, None, None
    facts = measure(evaluator)
    if facts.scale:
        steepest = STEEPEST / facts.scale.value
        evaluator = replace(evaluator, spread=min(evaluator.spread, steepest))
    found += basics.extremes(evaluator, facts)
    scales = [*balance.scales(evaluator, facts)]
    scales += [] if scales else balance.sums(evaluator, facts)
    found += [*scales, *balance.lengths(evaluator, facts)]
    say(f"Objective: {facts.title}. Masks, batches and options are next.")
    found += checks.sizes(evaluator, facts)
    for check in (checks.row_weights, checks.padding, options.idle):
        found += check(evaluator)
    masks = checks.look_at_masks(evaluator)
    facts = replace(facts, counts_once=masks.counts_once)
    contents = batches.look(evaluator, batch_size)
    for each in checks.masks(evaluator, facts, masks):
        if each.code != "duplicates" or mean(contents.duplicates_push).value > LEAST_DUPLICATES:
            found.append(each)
    found += checks.collisions(evaluator, facts, masks)
    found += _linked(facts, masks, contents)
    spread = batches.log_spread(evaluator.graph)
    tilt = batches.tilt(evaluator.graph, batch_size) if facts.counts_once else 1.0
    found += checks.corrections(facts, masks, spread, tilt)
    found += [] if scales else options.temperatures(evaluator, facts)
    return found, facts, contents


def _linked(facts: Facts, masks: checks.Masks, contents: batches.Contents) -> Iterator[Finding]:
    """Say how much push is on training links, where the objective leaves them out.

    A softmax over all items has them among its items.
    """
    if not facts.in_batch or (masks.same_user and max(masks.same_user) < 0.01):
        return
    severity = "error" if facts.kind in ("pairwise", "pointwise") else "note"
    detail, unit = f"batches of {contents.rows} links", "share of the push on negatives"
    result = finding("linked", contents.linked_push, unit, 0, detail, severity)  # type: ignore[arg-type]
    if result.low > LEAST_LINKED:
        yield result
