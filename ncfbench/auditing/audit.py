"""The audit: conformance suite and gradients of some samplers, losses and noises."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ncfbench.auditing import conformance
from ncfbench.auditing.verdict import BLOCKS, Weighing, weighing
from ncfbench.catalog import LOSSES, SAMPLERS, find_loss, find_sampler, serves
from ncfbench.config import Folder, RunConfig, complete, identity_of
from ncfbench.data import open_dataset
from ncfbench.data.assets import merge_named
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError
from ncfbench.runs.progress import Progress
from ncfbench.timing.compile_cache import keep_compiled

MAX_TERMS = 2**34
"""Pairs of a link and an item that an exact gradient sums: about ten minutes of two cores."""


@dataclass(frozen=True, repr=False)
class Record:
    """The findings of an audit, as rows of the tables of :mod:`ncfbench.storage.schemas`."""

    audit: list[dict[str, Any]]
    conformance: list[dict[str, Any]]

    def __repr__(self) -> str:
        rows = ", ".join(f"{len(rows)} rows of {name}" for name, rows in self.tables.items())
        return f"<Record of an audit: {rows}>"

    @property
    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Rows by their names in :data:`ncfbench.storage.schemas.AUDIT_TABLES`."""
        return {"conformance": self.conformance, "audit": self.audit}

    @property
    def failures(self) -> list[str]:
        """One line for each biased gradient and for each property that does not hold."""
        biased = [
            f"{row['sampler']}: the gradient is biased for {row['loss']} ({row['noise']})"
            for row in self.audit
            if row["shown_by"] == "gradient"
        ]
        names = conformance.PROPERTIES
        failed = [
            f"{row['sampler']}: {names[row['property']]}: {row['detail']}"
            for row in self.conformance
            if row["result"] == "fail"
        ]
        return [*dict.fromkeys(failed), *biased]


def audit_samplers(
    *,
    samplers: Iterable[str] | None = None,
    losses: Iterable[str] | None = None,
    noises: Iterable[str] = ("unigram", "uniform", "0.75"),
    batches: int = 1536,
    suite: Iterable[str] = (),
    data_dir: Folder = None,
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
    **settings: Any,
) -> Record:
    """Measure the bias and the variance of samplers' gradients; ``record.failures`` names faults.

    Nothing is written: ``record.tables`` holds the rows.

    Args:
        samplers: names, by default of all built-in ones, as for ``losses``; combinations that
            cannot work are left out.
        batches: of each sampler; with 0 only the conformance suite is made.
        suite: losses for which the conformance suite alone is made, besides.

    Raises:
        DataError: the data set is not prepared.
        UsageError: no combination can work, or the data set is too large for exact gradients.
    """
    if 0 != batches < 2 * BLOCKS:
        raise UsageError(
            f"batches = {batches}: the gradients need at least {2 * BLOCKS}, in {BLOCKS} blocks;"
            " with 0 only the conformance suite is made."
        )
    progress = progress or Progress()
    samplers = tuple(SAMPLERS if samplers is None else samplers)
    losses = tuple(LOSSES if losses is None else losses)
    given, locations = merge_named(
        say, settings | {"data_dir": data_dir}, chosen={"sampler": samplers, "loss": losses}
    )
    noises = tuple(noises)
    configs = configurations(given, samplers, losses, noises)
    tested = configs
    if besides := tuple(suite):
        tested = configurations(given, samplers, tuple(dict.fromkeys((*losses, *besides))), noises)
    dataset = open_dataset(configs[0].dataset, data_dir=locations.data_dir, say=say)
    graph, n_items = dataset.graph, len(dataset.graph.items_in_use)
    if batches and graph.n_links * n_items > MAX_TERMS:
        raise UsageError(
            f"An exact gradient is a sum over {graph.n_links:,} x {n_items:,} pairs: too many. Use"
            " a smaller data set, for example: ncfbench prepare synthetic --users 200 --items 300"
            " --links 4000."
        )
    count = len({config.sampler for config in configs})
    progress.say(f"Conformance suite of {count} sampler{'s' if count > 1 else ''}.")
    results, wrong = _conformance(graph, tested)
    failed = [row for row in results if row["result"] == "fail"]
    for sampler in sorted({row["sampler"] for row in failed}):
        progress.say(f"{sampler} fails the conformance suite.")
    broken = {row["sampler"] for row in failed if row["property"] in ("shapes", "ids", "weights")}
    audited = [config for config in configs if config.sampler not in broken]
    rows = []
    if audited and batches:
        keep_compiled(say)
        from ncfbench.auditing.gradient_audit import GradientAudit

        audit = GradientAudit(dataset, audited, batches=batches, wrong=wrong, progress=progress)
        rows = audit.rows()
    return Record(rows, results)


def configurations(
    settings: Mapping[str, Any],
    samplers: Sequence[str],
    losses: Sequence[str],
    noises: Sequence[str],
) -> list[RunConfig]:
    """Return complete settings of the combinations that are possible.

    Raises:
        UsageError: there is none.
    """
    for kind, names in {"samplers": samplers, "losses": losses, "noises": noises}.items():
        if not names:
            raise UsageError(f"No {kind} are named: give some, separated by commas.")
    noises = [complete({"noise": name}).noise for name in noises]
    strata = str(settings.get("strata", RunConfig.strata))
    configs = []
    for noise, sampler, loss in itertools.product(*map(dict.fromkeys, (noises, samplers, losses))):
        if serves(find_sampler(sampler).with_strata(strata), find_loss(loss)):
            choice = {"noise": noise, "sampler": sampler, "loss": loss}
            configs.append(complete({**settings, **choice}, ignore_unknown=True))
    if not configs:
        first = {"sampler": samplers[0], "loss": losses[0]}
        complete({**settings, **first}, ignore_unknown=True)
    return configs


def _conformance(
    graph: BipartiteGraph, configs: Sequence[RunConfig]
) -> tuple[list[dict[str, Any]], set[Weighing]]:
    """Return rows of the suite, and where the expected loss is wrong."""
    rows, wrong = [], set()
    cases: dict[Weighing, RunConfig] = {}
    for config in configs:
        cases.setdefault(weighing(config), config)
    for case, config in cases.items():
        results = conformance.conformance(graph, config, cases=len(cases))
        effective = identity_of(config)
        names = ("dataset", "noise", "sampler", "strata")
        shared = {name: effective[name] for name in names} | {"loss_family": config.family}
        rows += [shared | asdict(result) for result in results]
        if results[-1].result == "fail":
            wrong.add(case)
    return rows, wrong
