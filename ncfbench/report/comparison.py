"""The rows of the speedup and recall tables: which runs belong to one comparison, and what each
cell says.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncfbench.config import SETTINGS, RunConfig, complete
from ncfbench.registry import SAMPLERS, baseline_sampler, find_encoder, find_loss, find_sampler
from ncfbench.runs.arms import ARM_SETTINGS, Variant, shared_settings
from ncfbench.runs.folder import RunRecord, are_interleaved
from ncfbench.storage.schemas import CUTOFFS
from ncfbench.timing import seed_statistics
from ncfbench.timing import statistics as analysis


@dataclass(frozen=True)
class Comparison:
    """Runs that differ only in :data:`ARM_SETTINGS`, by variant and seed; the newest where one was
    repeated.
    """

    config: RunConfig
    """Any one of their settings."""
    data_fingerprint: str
    arms: Mapping[Variant, Mapping[int, RunRecord]]
    data_label: str = ""
    """What the data set is called wherever it appears, where its manifest says so."""

    @property
    def seed(self) -> int:
        """The seed that a missing run should have: the baseline's smallest, or the smallest of
        all.
        """
        baselines = [
            runs for arm, runs in self.arms.items() if arm.sampler == self.baseline_sampler
        ]
        return min(seed for runs in baselines or self.arms.values() for seed in runs)

    @property
    def is_simulated(self) -> bool:
        """Whether any of the runs had devices that one CPU simulated."""
        return any(run.is_simulated for runs in self.arms.values() for run in runs.values())

    @property
    def baseline_sampler(self) -> str:
        """See :func:`ncfbench.registry.baseline_sampler`."""
        return baseline_sampler(self.config.loss)

    def baseline(self, variant: Variant) -> Variant | None:
        """The baseline's variant to compare with: of the same k, else of the paper's, else the only
        one.
        """
        found = [arm for arm in self.arms if arm.sampler == self.baseline_sampler]
        paper = find_encoder(self.config.encoder).negatives
        for wanted in (variant.negatives, paper):
            for arm in found:
                if arm.negatives == wanted:
                    return arm
        return found[0] if len(found) == 1 else None

    def pairs(self, variant: Variant) -> list[tuple[RunRecord, RunRecord]]:
        """The variant's runs with their baselines of the same seeds, by seed."""
        base = self.baseline(variant)
        runs: Mapping[int, RunRecord] = self.arms.get(variant, {})
        baselines: Mapping[int, RunRecord] = self.arms.get(base, {}) if base else {}
        return [(runs[seed], baselines[seed]) for seed in sorted(runs) if seed in baselines]

    def title(self) -> str:
        """The settings that differ from the defaults, dataset, encoder and loss left out."""
        unnamed = ("dataset", "encoder", "loss", *ARM_SETTINGS, *self.config.tuned_settings)
        return ", ".join(
            f"{key}={value}"
            for key, value in _differences(self.config).items()
            if key not in unnamed
        )

    def tuned(self, variant: Variant) -> str:
        """What a sweep chose for a variant: ``learning_rate=0.02``; nothing where nothing was
        tuned.
        """
        runs = self.arms.get(variant, {})
        chosen = [
            {name: getattr(run.config, name) for name in run.config.tuned_settings}
            for run in runs.values()
        ]
        return " or ".join(
            dict.fromkeys(
                " ".join(f"{name}={value:g}" for name, value in one.items())
                for one in chosen
                if one
            )
        )


def group(records: Sequence[RunRecord]) -> list[Comparison]:
    """Finished runs by comparison, in a stable order; and those that diverged, for to leave them
    out would flatter an arm.
    """
    groups: dict[tuple[Any, ...], dict[Variant, dict[int, RunRecord]]] = {}
    configs: dict[tuple[Any, ...], RunConfig] = {}
    for record in sorted(
        records, key=lambda record: (str(record.environment.get("time")), record.name)
    ):
        if record.summary["status"] not in ("finished", "diverged"):
            continue
        settings = shared_settings(record.config)
        key = (
            *(settings[name] for name in ("dataset", "encoder", "loss")),
            record.data_fingerprint,
            tuple(sorted((name, str(value)) for name, value in settings.items())),
        )
        configs.setdefault(key, record.config)
        groups.setdefault(key, {}).setdefault(Variant.of(record.config), {})[record.config.seed] = (
            record
        )
    return [Comparison(configs[key], key[3], groups[key]) for key in sorted(groups)]


def speedup_rows(
    comparison: Comparison, *, allow_mixed: bool, places: Mapping[str, str]
) -> list[dict[str, Any]]:
    """One row for each variant, and one for each valid sampler that has no run.

    Args:
        allow_mixed: divide times of different environments all the same (``same_environment`` then
            says so).
        places: ``--data-dir`` and ``--runs-dir`` to repeat in commands.
    """
    rows = []
    for variant in _ordered(comparison):
        row = _speedup_row(comparison, variant, allow_mixed=allow_mixed, places=places)
        row["interleaved"] = _took_turns(comparison, variant)
        row["simulated"] = any(run.is_simulated for run in _runs_behind(comparison, variant))
        rows.append(_identity(comparison, variant) | row)
    return rows


def _took_turns(comparison: Comparison, variant: Variant) -> bool:
    """Whether all runs of a variant took turns with the baseline's runs of their seeds."""
    base = comparison.baseline(variant)
    baselines = comparison.arms[base] if base else {}
    pairs = [
        (run, baselines[seed])
        for seed, run in comparison.arms.get(variant, {}).items()
        if seed in baselines
    ]
    return bool(pairs) and all(are_interleaved(run, baseline) for run, baseline in pairs)


def _runs_behind(comparison: Comparison, variant: Variant) -> list[RunRecord]:
    """A variant's runs and its baseline's; none where it has none."""
    base = comparison.baseline(variant) if variant in comparison.arms else None
    arms = [comparison.arms.get(arm, {}) for arm in (variant, base) if arm is not None]
    return [run for runs in arms for run in runs.values()]


def _speedup_row(
    comparison: Comparison, variant: Variant, *, allow_mixed: bool, places: Mapping[str, str]
) -> dict[str, Any]:
    runs = comparison.arms.get(variant)
    base = comparison.baseline(variant)
    row: dict[str, Any] = {
        "baseline": comparison.baseline_sampler,
        "runs": [],
        "same_environment": None,
    }
    if not runs:
        return row | {
            "status": "missing",
            "command": _filling(comparison, variant, places, comparison.seed),
        }
    row |= {"runs": [run.name for run in runs.values()], "seeds": len(runs)} | _means(
        list(runs.values())
    )
    if any(run.summary["full_iteration_seconds"] is None for run in runs.values()):
        return row | {"status": "diverged" if any(map(diverges, runs.values())) else "no times"}
    if base is None:
        wanted = Variant(
            comparison.baseline_sampler, None, find_encoder(comparison.config.encoder).negatives
        )
        return row | {
            "status": "no baseline",
            "command": _filling(comparison, wanted, places, min(runs)),
        }
    pairs = comparison.pairs(variant)
    if not pairs:
        return row | {
            "status": "no baseline of this seed",
            "command": _filling(comparison, base, places, min(runs)),
        }
    row |= {"seeds": len(pairs)} | _means([run for run, _ in pairs])
    row |= {
        "runs": [run.name for run, _ in pairs],
        "baseline_runs": [baseline.name for _, baseline in pairs],
    }
    diverged = any(diverges(run) for pair in pairs for run in pair)
    if any(baseline.summary["full_iteration_seconds"] is None for _, baseline in pairs):
        return row | {"status": "diverged" if diverged else "no times"}
    row["same_environment"] = all(a.environment["key"] == b.environment["key"] for a, b in pairs)
    row["full_iteration_spread"] = max(times_spread(run) for pair in pairs for run in pair)
    may_divide = row["same_environment"] or allow_mixed
    result = seed_statistics.over_seeds(
        [(arm_of(run), arm_of(baseline)) for run, baseline in pairs]
    )
    if diverged:
        # An iteration still took its time; how soon a loss is reached is nothing to ask of an arm
        # that may not get there.
        return row | {"status": "diverged"} | (_per_iteration(result) if may_divide else {})
    reached = result.at_reference
    row |= {"reference_loss": _mean(result.reference_losses), "seeds_reached": reached.reached}
    if reached.reached == len(pairs):
        row["iterations_to_reference"] = _mean(result.iterations_to_reference)
        row["seconds_to_reference"] = _mean(
            [
                value * run.summary["full_iteration_seconds"]
                for value, (run, _) in zip(result.iterations_to_reference, pairs, strict=True)
                if value is not None
            ]
        )
    row |= _interval("iterations_speedup", reached.iterations) | {
        "iterations_speedup_at_most": reached.iterations_at_most
    }
    if variant == base:
        row["status"] = "baseline"
    elif may_divide:
        row["status"] = "reached" if reached.reached == len(pairs) else "not reached"
    else:
        return row | {"status": "different environment"}
    return (
        row
        | _per_iteration(result)
        | _interval("total_speedup", reached.total)
        | {"total_speedup_at_most": reached.total_at_most}
    )


def recall_rows(comparison: Comparison, *, places: Mapping[str, str]) -> list[dict[str, Any]]:
    """One row for each variant, and one for each valid sampler that has no run."""
    rows = []
    for variant in _ordered(comparison):
        runs = list(comparison.arms.get(variant, {}).values())
        row = _identity(comparison, variant) | {"runs": [run.name for run in runs]}
        if not runs:
            missing = _filling(comparison, variant, places, comparison.seed)
            rows.append(row | {"status": "missing", "command": missing})
            continue
        if lost := sum(map(diverges, runs)):
            reason = f"{lost} of {len(runs)} seeds diverged"
            rows.append(row | {"seeds": len(runs), "status": "diverged", "reason": reason})
            continue
        recalls: dict[str, Any] = {}
        for name in (f"test_recall_at_{m}" for m in CUTOFFS):
            known = [run.summary[name] for run in runs if run.summary[name] is not None]
            recalls |= _interval(
                name, seed_statistics.mean(known) if known and len(known) == len(runs) else None
            )
        reason = runs[-1].summary["recall_reason"]
        row |= {
            "seeds": len(runs),
            "status": "no recall" if reason else "measured",
            "reason": reason,
        }
        rows.append(
            row
            | recalls
            | {"reported_epoch": _mean([run.summary["reported_epoch"] for run in runs])}
        )
    return rows


def command(config: RunConfig, variant: Variant, places: Mapping[str, str], seed: int) -> str:
    """The command line that makes the run of a missing cell."""
    settings = _differences(config) | {
        "dataset": config.dataset,
        "encoder": config.encoder,
        "loss": config.loss,
    }
    settings = {key: value for key, value in settings.items() if key not in ARM_SETTINGS}
    settings["sampler"] = variant.sampler
    if variant.stratum_size not in (None, RunConfig.stratum_size):
        settings["stratum_size"] = variant.stratum_size
    if variant.negatives not in (None, find_encoder(config.encoder).negatives):
        settings["negatives"] = variant.negatives
    if variant.strata is not None:
        settings["strata"] = variant.strata
    if variant.uniform_items is not None:
        settings["uniform_items"] = variant.uniform_items
    if variant.share is not None:
        settings["share"] = variant.share
    if seed:
        settings["seed"] = seed
    words = ["ncfbench", "run"]
    for name in ("dataset", "sampler", "encoder", "loss", *config.settings):
        if name in settings:
            words += config.settings[name].arguments(settings.pop(name))
    for flag, place in places.items():
        words += [flag, place]
    return shlex.join(words)


def _filling(
    comparison: Comparison, variant: Variant, places: Mapping[str, str], seed: int
) -> str | None:
    """The command that fills a cell; none among tuned arms, whose settings only a sweep can
    choose.
    """
    return None if comparison.config.tuned else command(comparison.config, variant, places, seed)


def defaults(config: RunConfig) -> dict[str, Any]:
    """The settings that a run would have of which only encoder, loss and sampler are named."""
    given = {
        name: getattr(config, name)
        for name in ("encoder", "loss", "sampler", "strata", "batch_size", "stratum_size")
    }
    usual = {name: SETTINGS[name].default for name in ("strata", "batch_size", "stratum_size")}
    return complete(given).to_dict() | usual


def _differences(config: RunConfig) -> dict[str, Any]:
    """Settings that are not the default for the run's encoder and loss."""
    default = defaults(config)
    return {key: value for key, value in config.to_dict().items() if value != default[key]}


def _ordered(comparison: Comparison) -> list[Variant]:
    """Variants in the paper's order, with the paper's own variant of every valid sampler that has
    none.
    """
    family = find_loss(comparison.config.loss).family
    result = []
    for name in dict.fromkeys([*SAMPLERS, *sorted(variant.sampler for variant in comparison.arms)]):
        present = [variant for variant in comparison.arms if variant.sampler == name]
        result += sorted(present, key=_order)
        sampler = find_sampler(name)
        if not present and sampler.in_paper and family in sampler.families:
            strata = RunConfig.stratum_size if sampler.uses_strata else None
            paper = find_encoder(comparison.config.encoder).negatives
            result.append(Variant(name, strata, paper if sampler.uses_negatives else None))
    return result


def _order(variant: Variant) -> tuple[str, int, int, int, str]:
    sizes = (variant.stratum_size or 0, variant.negatives or 0, variant.uniform_items or 0)
    return (variant.strata or "", *sizes, variant.share or "")


def _identity(comparison: Comparison, variant: Variant) -> dict[str, Any]:
    config = comparison.config
    return {
        "dataset": config.dataset,
        "encoder": config.encoder,
        "loss": config.loss,
        "sampler": variant.sampler,
        "variant": variant.note(config.encoder),
        "settings": comparison.title(),
        "data_fingerprint": comparison.data_fingerprint,
    }


def arm_of(run: RunRecord) -> analysis.Arm:
    """A run's probes and seconds per iteration."""
    return analysis.Arm(
        iterations=[row["iteration"] for row in run.curve],
        losses=[row["probe_loss"] for row in run.curve],
        full_iteration_seconds=run.summary["full_iteration_seconds"],
        step_iteration_seconds=run.summary["step_iteration_seconds"],
    )


def _means(runs: Sequence[RunRecord]) -> dict[str, float | None]:
    columns = ("full_iteration_seconds", "step_iteration_seconds", "item_slots")
    return {column: _mean([run.summary[column] for run in runs]) for column in columns}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def times_spread(run: RunRecord) -> float:
    """Of the times that a run's ``full_iteration_seconds`` is the median of."""
    own = [row for row in run.timing if row["environment_key"] == run.environment["key"]]
    return analysis.spread(own, "full") or 0.0


def diverges(run: RunRecord) -> bool:
    """Whether a run's loss stopped being finite."""
    return bool(run.summary["status"] == "diverged")


def _per_iteration(result: seed_statistics.SeedSpeedup) -> dict[str, float | None]:
    return _interval("per_iteration_speedup", result.per_iteration) | _interval(
        "step_per_iteration_speedup", result.step_per_iteration
    )


def _interval(name: str, estimate: seed_statistics.Estimate | None) -> dict[str, float | None]:
    """The three columns of an estimate."""
    if estimate is None:
        return {name: None, f"{name}_lower": None, f"{name}_upper": None}
    return {name: estimate.value, f"{name}_lower": estimate.lower, f"{name}_upper": estimate.upper}
