"""The lint of a loss: facts and findings."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ncfbench.errors import UsageError, nearest
from ncfbench.linting import balance, basics, batches, checks
from ncfbench.linting.derivatives import Evaluator
from ncfbench.linting.facts import Facts, measure
from ncfbench.linting.findings import KINDS, Finding, rank
from ncfbench.linting.signature import read_loss
from ncfbench.runs.progress import Progress

HOPELESS = (
    *("not-finite", "no-gradient", "wrong-sign", "wrong-positive", "wrong-negative", "batch-axis"),
    "no-pull",
)
"""Findings after which nothing else can be said."""
FIRST = (basics.batch_axis, basics.pulls)
"""Checks of an evaluator alone, before any fact is known."""
CHECKS = (
    *(basics.extremes, balance.scales, balance.lengths, checks.sizes, checks.row_weights),
    *(checks.padding, checks.idle, checks.masks, checks.corrections),
)
"""Checks of an evaluator and its facts."""


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
        facts = self.facts and asdict(self.facts) | {
            "objective": self.facts.title,
            "counts_once": self.facts.masks.counts_once,
        }
        return {
            "loss": self.name,
            "framework": self.framework,
            "read_as": dict(self.read_as),
            "graph": dict(self.sizes),
            "findings": [each.as_row() for each in self.findings],
            "accepted": [each.as_row() for each in self.accepted],
            "facts": facts,
            "batches": facts and facts.pop("contents"),
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
        findings = [each for check in FIRST for each in check(evaluator)]
        facts = None
        if not any(each.code in HOPELESS for each in findings):
            evaluator, facts = measure(evaluator, batch_size)
            progress.say(f"Objective: {facts.title}. Masks, sizes and options are next.")
            findings += [each for check in CHECKS for each in check(evaluator, facts)]
    findings.sort(key=lambda each: rank(each.code, each.severity))
    return Lint(
        name=read.name,
        framework=evaluator.framework.name,
        facts=facts,
        findings=[each for each in findings if each.code not in accept],
        accepted=[each for each in findings if each.code in accept],
        read_as=evaluator.read_as(),
        sizes={"users": graph.n_users, "items": graph.n_items, "links": graph.n_links},
    )
