"""The audit: conformance suite, X-ray and gradients of some samplers, losses and noises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ncfbench.auditing import conformance
from ncfbench.auditing.gradient_audit import BLOCKS, audit
from ncfbench.catalog import find_loss, find_sampler, serves
from ncfbench.config import RunConfig, complete
from ncfbench.data import Dataset
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError
from ncfbench.reporting.contents import xray
from ncfbench.runs.progress import Progress


@dataclass(frozen=True)
class Options:
    """The choices of an audit, besides the settings of a run."""

    samplers: tuple[str, ...]
    losses: tuple[str, ...]
    noises: tuple[str, ...]
    batches: int = 1536
    margin: float = 0.1
    warmup: int = 20
    variance_parts: bool = False
    """Measure which part of each gradient's variance lies over users, items and positive links."""

    def __post_init__(self) -> None:
        for name in ("samplers", "losses", "noises"):
            if not getattr(self, name):
                raise UsageError(f"No {name} are named: give some, separated by commas.")
        if self.batches and self.batches < 2 * BLOCKS:
            raise UsageError(
                f"batches = {self.batches}: the gradients need at least {2 * BLOCKS}, in {BLOCKS}"
                " blocks; with 0 only the conformance suite and the X-ray are made."
            )
        if not 0 < self.margin < 1:
            raise UsageError(
                f"margin = {self.margin}: it must lie between 0 and 1, for example 0.05 for 5 %."
            )
        if self.warmup < 1:
            raise UsageError(f"warmup = {self.warmup}: it must be at least 1 iteration.")


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


def run(
    dataset: Dataset,
    settings: Mapping[str, Any],
    options: Options,
    progress: Progress | None = None,
) -> Record:
    """Run the conformance suite, the X-ray and the audit of some samplers.

    Args:
        settings: of a run, without sampler, loss and noise; impossible combinations of these three
            are left out.

    Raises:
        UsageError: no combination is possible, or the exact sum would take too long.
    """
    progress = progress or Progress()
    configs = configurations(settings, options)
    samplers = len({sampler for _, _, sampler in configs})
    progress.say(f"Conformance suite and X-ray of {samplers} sampler{'s' if samplers > 1 else ''}.")
    outcomes, wrong = _conformance(dataset.graph, configs, options)
    for sampler in sorted({row["sampler"] for row in outcomes if row["result"] == "fail"}):
        progress.say(f"{sampler} fails the conformance suite.")
    broken = {
        row["sampler"]
        for row in outcomes
        if row["result"] == "fail" and row["property"] in ("shapes", "ids", "weights")
    }
    audited = {key: config for key, config in configs.items() if key[2] not in broken}
    first = {(noise, sampler): config for (_, noise, sampler), config in reversed(audited.items())}
    xrays = [xray(dataset, config) for config in reversed(first.values())]
    rows = []
    if audited and options.batches:
        rows = audit(
            dataset,
            audited,
            batches=options.batches,
            margin=options.margin,
            warmup=options.warmup,
            variance_parts=options.variance_parts,
            progress=progress,
        )
    for row in rows:
        # An unbiased or consistent gradient follows from right weights, whatever the parameters.
        kind = row["noise"], row["sampler"], find_loss(row["loss"]).family == "listwise"
        if kind in wrong and row["verdict"] != "biased":
            row |= {"verdict": "biased", "shown_by": "weights", "batches_needed": None}
    return Record(rows, xrays, outcomes)


def configurations(
    settings: Mapping[str, Any], options: Options
) -> dict[tuple[str, str, str], RunConfig]:
    """Return complete settings by (loss, noise, sampler), for the possible combinations.

    Raises:
        UsageError: there is none.
    """
    strata = str(settings.get("strata", RunConfig.strata))
    local = settings.get("share") == "local"
    # A sampler that shares nothing draws the same batches for shards as without them.
    samplers = [name for name in options.samplers if find_sampler(name).shares_items or not local]
    configs = {}
    for noise in options.noises:
        for sampler in samplers:
            for loss in options.losses:
                if serves(find_sampler(sampler).with_strata(strata), find_loss(loss)):
                    choice = {"noise": noise, "sampler": sampler, "loss": loss}
                    configs[loss, noise, sampler] = complete(
                        dict(settings) | choice, ignored=settings
                    )
    if not configs:
        first = {"sampler": options.samplers[0], "loss": options.losses[0]}
        complete(dict(settings) | first, ignored=settings)
    return configs


def _conformance(
    graph: BipartiteGraph, configs: Mapping[tuple[str, str, str], RunConfig], options: Options
) -> tuple[list[dict[str, Any]], set[tuple[str, str, bool]]]:
    """Return rows of the suite, and (noise, sampler, listwise) where the expected loss is wrong.

    Every family of losses is tested with the first noise distribution. With the others, weights
    differ only for listwise losses.
    """
    rows, wrong, seen = [], set(), set()
    for (_, noise, sampler), config in configs.items():
        listwise = config.family == "listwise"
        case = noise, sampler, config.family if noise == options.noises[0] else str(listwise)
        if case not in seen:
            seen.add(case)
            outcomes = conformance.conformance(graph, config)
            rows += conformance.rows(config, outcomes)
            if any(
                outcome.name == "expectation" and outcome.result == "fail" for outcome in outcomes
            ):
                wrong.add((noise, sampler, listwise))
    return rows, wrong
