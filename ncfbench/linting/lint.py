"""The lint of a loss: facts and findings."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ncfbench.errors import UsageError, nearest
from ncfbench.linting import balance, basics, batches, checks
from ncfbench.linting.derivatives import Evaluator
from ncfbench.linting.facts import Facts, measure
from ncfbench.linting.findings import KINDS, SEVERITIES, Finding
from ncfbench.linting.signature import read_loss
from ncfbench.runs.progress import Progress

FIRST = (basics.batch_axis, basics.pulls)
"""Checks of an evaluator alone: after a finding of these nothing else can be said."""
CHECKS = (
    *(basics.extremes, balance.scales, balance.lengths, checks.sizes, checks.padding),
    *(checks.idle, checks.masks, checks.corrections),
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

    def __repr__(self) -> str:
        codes = ", ".join(finding.code for finding in self.findings)
        return f"<Lint of {self.name}: {codes or 'clean'}>"

    @property
    def errors(self) -> list[Finding]:
        """The findings that are wrong for certain."""
        return [finding for finding in self.findings if finding.severity == "error"]

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
            "findings": [finding.as_row() for finding in self.findings],
            "accepted": [finding.as_row() for finding in self.accepted],
            "facts": facts,
            "batches": facts and facts.pop("contents"),
        }


def lint_loss(
    loss: Any,
    *,
    batch_size: int = 64,
    accept: Collection[str] = (),
    options_: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Lint:
    """Judge a loss by what changes of single scores do to its gradient.

    Args:
        loss: ``module:name``, a function, a class or an object; see
            :data:`ncfbench.linting.signature.SHAPES`.
        accept: codes of findings that are meant to be.
        options_: values of the loss's arguments in place of their defaults.

    Raises:
        UsageError: the loss cannot be used.
    """
    for code in accept:
        if code not in KINDS:
            raise UsageError(f"--accept {code}: no finding has that code{nearest(code, KINDS)}")
    if batch_size < 2:
        raise UsageError(f"batch_size = {batch_size}: a batch needs 2 links or more.")
    progress = progress or Progress()
    read = read_loss(loss, options_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the user's code, on made-up batches
        evaluator = Evaluator.of(read, batches.default_graph())
        progress.say(f"{read.name}: {evaluator.framework.name}.")
        findings = [finding for check in FIRST for finding in check(evaluator)]
        facts = None
        if not findings:
            evaluator, facts = measure(evaluator, batch_size)
            progress.say(f"Objective: {facts.title}. Masks, sizes and options are next.")
            findings = [finding for check in CHECKS for finding in check(evaluator, facts)]
    findings.sort(key=lambda f: (SEVERITIES.index(f.severity), list(KINDS).index(f.code)))
    return Lint(
        name=read.name,
        framework=evaluator.framework.name,
        facts=facts,
        findings=[finding for finding in findings if finding.code not in accept],
        accepted=[finding for finding in findings if finding.code in accept],
        read_as=evaluator.read_as(),
    )
