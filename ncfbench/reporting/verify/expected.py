"""Expected rows of the tables, and the runs that belong in each, derived from the runs alone.

This is a second derivation for ``ncfbench report --verify``. It calls nothing of
:mod:`ncfbench.reporting.comparison`, whose mistakes it has to find. It reads each run's settings,
data fingerprint, environment and status, and uses the catalog and the settings' defaults as data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ncfbench.catalog import SAMPLERS, baseline_sampler, find_encoder, find_loss, find_sampler
from ncfbench.config import RunConfig
from ncfbench.runs.folder import RunRecord

SEPARATE_ROWS = ("sampler", "stratum_size", "strata", "negatives", "uniform_items", "share")
"""Settings that make another row. A seed makes none; all others make another comparison."""


class Key(NamedTuple):
    """Columns that name a row; each value stands once in a table."""

    dataset: str
    encoder: str
    loss: str
    sampler: str
    variant: str
    settings: str
    data_fingerprint: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Key:
        """Return the key of a written row."""
        return cls(*(row[name] for name in cls._fields))

    def __str__(self) -> str:
        return "/".join(part for part in self[:-1] if part)


@dataclass(frozen=True)
class Cell:
    """A row that a table must have.

    Attributes:
        baseline: the sampler that the loss's family is measured against.
        runs: the newest run of each seed; empty where the sampler was not run.
        baselines: the same of the row to compare with; None where there is no such row.
        is_baseline: whether this row is the one to compare with.
    """

    key: Key
    baseline: str
    runs: Mapping[int, RunRecord]
    baselines: Mapping[int, RunRecord] | None
    is_baseline: bool

    @property
    def pairs(self) -> list[tuple[RunRecord, RunRecord]]:
        """Runs paired with the baseline's run of the same seed."""
        bases = self.baselines or {}
        return [(self.runs[seed], bases[seed]) for seed in sorted(self.runs) if seed in bases]

    @property
    def is_interleaved(self) -> bool:
        """True if every pair was trained in the same sessions, all of them shared."""
        sessions = [
            [run.environment.get("interleaved") or [None] for run in pair] for pair in self.pairs
        ]
        return bool(sessions) and all(own == base and None not in own for own, base in sessions)

    @property
    def is_simulated(self) -> bool:
        """True if any run had devices that a CPU simulated."""
        meshes = [
            run.environment.get("mesh")
            for run in [*self.runs.values(), *(self.baselines or {}).values()]
        ]
        return bool(self.runs) and any(mesh["simulated"] for mesh in meshes if mesh)

    @property
    def is_of_one_environment(self) -> bool:
        """True if the runs of each pair share an environment, so that times may be divided."""
        return all(run.environment["key"] == base.environment["key"] for run, base in self.pairs)


def diverged(run: RunRecord) -> bool:
    """Return whether a run ended because its loss was no longer finite."""
    return bool(run.summary["status"] == "diverged")


def cells(records: Sequence[RunRecord]) -> dict[Key, Cell]:
    """Return every row that the tables must have; unfinished runs are in none."""
    comparisons: dict[str, dict[Key, dict[int, RunRecord]]] = {}
    for record in sorted(records, key=lambda one: (str(one.environment.get("time")), one.name)):
        if record.summary["status"] in ("finished", "diverged"):
            rows = comparisons.setdefault(_shared(record), {})
            # Sorted by time: of two runs of a seed the later one stays.
            rows.setdefault(_key(record), {})[record.config.seed] = record
    found = {}
    for rows in comparisons.values():
        for key, runs in rows.items():
            sampler = baseline_sampler(key.loss)
            base = _baseline(rows, sampler, _negatives(runs), find_encoder(key.encoder).negatives)
            found[key] = Cell(key, sampler, runs, None if base is None else rows[base], key == base)
        some = next(iter(rows))
        config = next(iter(rows[some].values())).config
        absent = (
            [] if _own_objective(config) else _not_run(some.loss, {key.sampler for key in rows})
        )
        for name in absent:
            key = some._replace(sampler=name, variant="")
            found[key] = Cell(key, baseline_sampler(some.loss), {}, None, False)
    return found


def _shared(record: RunRecord) -> str:
    """Return what all runs of a comparison share: the data, and settings not tuned or of a row."""
    settings = record.config.to_dict()
    own = set(record.config.sampler_settings) - set(_own_objective(record.config))
    for name in ("seed", *SEPARATE_ROWS, *own, *record.config.tuned_settings):
        settings.pop(name)
    return json.dumps([record.data_fingerprint, settings], sort_keys=True)


def _key(record: RunRecord) -> Key:
    config = record.config
    return Key(
        config.dataset,
        config.encoder,
        config.loss,
        config.sampler,
        _variant(config),
        _settings(config),
        record.data_fingerprint,
    )


def _variant(config: RunConfig) -> str:
    """Return the sampler's settings that are not the paper's: ``by user s=8 k=20 k'=64``."""
    sampler, parts = find_sampler(config.sampler), []
    if sampler.reads("strata") and config.strata == "user":
        parts.append("by user")
    if sampler.reads("stratum_size") and config.stratum_size != 4:
        parts.append(f"s={config.stratum_size}")
    if sampler.reads("negatives") and config.negatives != find_encoder(config.encoder).negatives:
        parts.append(f"k={config.negatives}")
    if sampler.reads("uniform_items") and config.uniform_items != config.batch_size:
        parts.append(f"k'={config.uniform_items}")
    if config.share == "local":
        parts.append("local")
    for setting in sampler.settings:
        value = config.to_dict()[setting.name]
        if value != setting.default and not setting.changes_objective:
            parts.append(f"{setting.symbol or setting.name}={value}")
    return " ".join(parts)


def _settings(config: RunConfig) -> str:
    """Return the comparison's settings that are not the defaults: ``epochs=7, noise=0.75``."""
    loss = find_loss(config.loss)
    usual: dict[str, Any] = {name: setting.default for name, setting in config.settings.items()}
    usual |= {"learning_rate": loss.learning_rate, "gamma": loss.gamma, "lambda": loss.lambda_}
    named_elsewhere = {
        *("dataset", "encoder", "loss", "seed", *SEPARATE_ROWS),
        *(set(config.sampler_settings) - set(_own_objective(config))),
        *config.tuned_settings,
    }
    return ", ".join(
        f"{name}={value}"
        for name, value in config.to_dict().items()
        if name not in named_elsewhere and value != usual[name]
    )


def _own_objective(config: RunConfig) -> list[str]:
    """Return the settings with which the sampler does not estimate the loss over all pairs."""
    return [
        setting.name
        for setting in find_sampler(config.sampler).settings
        if setting.changes_objective and config.to_dict()[setting.name] != setting.default
    ]


def _negatives(runs: Mapping[int, RunRecord]) -> int | None:
    """Return k of a row; None for a sampler without k."""
    config = next(iter(runs.values())).config
    return config.negatives if find_sampler(config.sampler).reads("negatives") else None


def _baseline(
    rows: Mapping[Key, Mapping[int, RunRecord]], sampler: str, own: int | None, paper: int
) -> Key | None:
    """Return the baseline's row: that of the same k, else of the paper's k, else its only one."""
    by_negatives = {_negatives(runs): key for key, runs in rows.items() if key.sampler == sampler}
    for wanted in (own, paper):
        if wanted in by_negatives:
            return by_negatives[wanted]
    return next(iter(by_negatives.values())) if len(by_negatives) == 1 else None


def _not_run(loss: str, present: set[str]) -> list[str]:
    """Return the paper's samplers that could train a loss and have no run."""
    traits = find_loss(loss)
    able = [find_sampler(name).shares_items or not traits.includes_positive for name in SAMPLERS]
    served = [name for name, is_able in zip(SAMPLERS, able, strict=True) if is_able]
    served = [name for name in served if traits.family in find_sampler(name).families]
    return [name for name in served if find_sampler(name).in_paper and name not in present]
