"""The audit: conformance suite, X-ray and gradients of some samplers, losses and noises."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncfbench.auditing import conformance
from ncfbench.auditing.gradient_audit import BLOCKS, audit
from ncfbench.catalog import LOSSES, SAMPLERS, find_loss, find_sampler, serves
from ncfbench.config import Folder, RunConfig, complete
from ncfbench.data import open_dataset
from ncfbench.data.assets import merge_named
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError
from ncfbench.reporting.contents import xray
from ncfbench.runs.progress import Progress
from ncfbench.timing.compile_cache import keep_compiled


@dataclass(frozen=True, repr=False)
class Record:
    """The findings of an audit, as rows of the tables of :mod:`ncfbench.storage.schemas`."""

    audit: list[dict[str, Any]]
    xray: list[dict[str, Any]]
    conformance: list[dict[str, Any]]

    def __repr__(self) -> str:
        rows = ", ".join(f"{len(rows)} rows of {name}" for name, rows in self.tables.items())
        return f"<Record of an audit: {rows}>"

    @property
    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Rows by their names in :data:`ncfbench.storage.schemas.AUDIT_TABLES`."""
        return {"conformance": self.conformance, "xray": self.xray, "audit": self.audit}

    @property
    def failures(self) -> list[str]:
        """One line for each biased gradient and for each property that does not hold."""
        biased = [
            f"{row['sampler']}: the gradient is biased for {row['loss']} ({row['noise']},"
            f" {row['point']})"
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
    margin: float = 0.1,
    warmup: int = 20,
    variance_parts: bool = False,
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
        batches: of each sampler; with 0 only the conformance suite and the X-ray are made.
        margin: largest bias, as a share of the exact gradient, that may be called unbiased.
        warmup: training iterations before the second set of parameters.
        variance_parts: measure too how much of the variance lies over users, items and links.

    Raises:
        DataError: the data set is not prepared.
        UsageError: no combination can work, or the data set is too large for exact gradients.
    """
    if batches and batches < 2 * BLOCKS:
        raise UsageError(
            f"batches = {batches}: the gradients need at least {2 * BLOCKS}, in {BLOCKS} blocks;"
            " with 0 only the conformance suite and the X-ray are made."
        )
    if not 0 < margin < 1:
        raise UsageError(
            f"margin = {margin}: it must lie between 0 and 1, for example 0.05 for 5 %."
        )
    if warmup < 1:
        raise UsageError(f"warmup = {warmup}: it must be at least 1 iteration.")
    progress = progress or Progress()
    samplers = tuple(SAMPLERS if samplers is None else samplers)
    losses = tuple(LOSSES if losses is None else losses)
    given, locations = merge_named(
        say, settings | {"data_dir": data_dir}, chosen={"sampler": samplers, "loss": losses}
    )
    configs = configurations(given, samplers, losses, tuple(noises))
    keep_compiled(say)
    name = next(iter(configs.values())).dataset
    dataset = open_dataset(name, data_dir=locations.data_dir, say=say)
    count = len({sampler for _, _, sampler in configs})
    progress.say(f"Conformance suite and X-ray of {count} sampler{'s' if count > 1 else ''}.")
    outcomes, wrong = _conformance(dataset.graph, configs)
    failed = [row for row in outcomes if row["result"] == "fail"]
    for sampler in sorted({row["sampler"] for row in failed}):
        progress.say(f"{sampler} fails the conformance suite.")
    broken = {row["sampler"] for row in failed if row["property"] in ("shapes", "ids", "weights")}
    audited = {key: config for key, config in configs.items() if key[2] not in broken}
    first = {(noise, sampler): config for (_, noise, sampler), config in reversed(audited.items())}
    xrays = [xray(dataset, config) for config in reversed(first.values())]
    rows = []
    if audited and batches:
        rows = audit(
            dataset,
            audited,
            batches=batches,
            margin=margin,
            warmup=warmup,
            variance_parts=variance_parts,
            progress=progress,
        )
    for row in rows:
        # An unbiased or consistent gradient follows from right weights, whatever the parameters.
        kind = row["noise"], row["sampler"], find_loss(row["loss"]).family == "listwise"
        if kind in wrong and row["verdict"] != "biased":
            row |= {"verdict": "biased", "shown_by": "weights", "batches_needed": None}
    return Record(rows, xrays, outcomes)


def configurations(
    settings: Mapping[str, Any],
    samplers: Sequence[str],
    losses: Sequence[str],
    noises: Sequence[str],
) -> dict[tuple[str, str, str], RunConfig]:
    """Return complete settings by (loss, noise, sampler), for the possible combinations.

    Raises:
        UsageError: there is none.
    """
    for kind, names in {"samplers": samplers, "losses": losses, "noises": noises}.items():
        if not names:
            raise UsageError(f"No {kind} are named: give some, separated by commas.")
    noises = tuple(dict.fromkeys(complete({"noise": name}).noise for name in noises))
    strata = str(settings.get("strata", RunConfig.strata))
    local = settings.get("share") == "local"
    # A sampler that shares nothing draws the same batches for shards as without them.
    sharing = [name for name in samplers if find_sampler(name).shares_items or not local]
    configs = {}
    for noise, sampler, loss in itertools.product(noises, sharing, losses):
        if serves(find_sampler(sampler).with_strata(strata), find_loss(loss)):
            choice = {"noise": noise, "sampler": sampler, "loss": loss}
            configs[loss, noise, sampler] = complete({**settings, **choice}, ignore_unknown=True)
    if not configs:
        first = {"sampler": samplers[0], "loss": losses[0]}
        complete({**settings, **first}, ignore_unknown=True)
    return configs


def _conformance(
    graph: BipartiteGraph, configs: Mapping[tuple[str, str, str], RunConfig]
) -> tuple[list[dict[str, Any]], set[tuple[str, str, bool]]]:
    """Return rows of the suite, and (noise, sampler, listwise) where the expected loss is wrong.

    Every family of losses is tested with the first noise distribution. With the others, weights
    differ only for listwise losses.
    """
    rows, wrong, seen = [], set(), set()
    first_noise = next(iter(configs))[1]
    for (_, noise, sampler), config in configs.items():
        listwise = config.family == "listwise"
        case = noise, sampler, config.family if noise == first_noise else str(listwise)
        if case not in seen:
            seen.add(case)
            outcomes = conformance.conformance(graph, config)
            rows += conformance.rows(config, outcomes)
            if any(
                outcome.name == "expectation" and outcome.result == "fail" for outcome in outcomes
            ):
                wrong.add((noise, sampler, listwise))
    return rows, wrong
