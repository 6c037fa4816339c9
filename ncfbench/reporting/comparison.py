"""Comparisons: the runs of a folder that differ only in what an arm may differ in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ncfbench.catalog import baseline_sampler, find_encoder
from ncfbench.config import RunConfig, default_values
from ncfbench.reporting.frames import Run, with_targets
from ncfbench.runs.arms import Variant, shared_settings
from ncfbench.runs.folder import RunRecord


@dataclass(frozen=True)
class Comparison:
    """Runs that differ only in :data:`ncfbench.runs.arms.ARM_SETTINGS`.

    Attributes:
        config: settings of any one of the runs.
        arms: runs by variant and seed; the newest run of a seed.
        data_label: name of the data set in its manifest, which tells a stand-in from the original.
        chosen_baseline: the sampler that speedups are measured against; None: the loss's own.
        untimed: runs that were left out where a profile gives the times, and not theirs.
    """

    config: RunConfig
    data_fingerprint: str
    arms: Mapping[Variant, Mapping[int, Run]]
    data_label: str = ""
    chosen_baseline: str | None = None
    untimed: int = 0

    @property
    def runs(self) -> list[Run]:
        """Its rows of the frame ``arms``, by variant and seed."""
        return [run for runs in self.arms.values() for run in runs.values()]

    @property
    def seed(self) -> int:
        """Seed for a missing run: the baseline's smallest, else the smallest of all."""
        baselines = [run for run in self.runs if run.config.sampler == self.baseline_sampler]
        return min(run.config.seed for run in baselines or self.runs)

    @property
    def seeds(self) -> set[int]:
        """Seeds of all its runs."""
        return {run.config.seed for run in self.runs}

    @property
    def is_simulated(self) -> bool:
        """True if any run had devices that one CPU simulated."""
        return any(run.is_simulated for run in self.runs)

    @property
    def baseline_sampler(self) -> str:
        """The sampler that speedups are measured against."""
        return self.chosen_baseline or baseline_sampler(self.config.loss)

    def baseline(self, variant: Variant) -> Variant | None:
        """Return the baseline's variant of the same k, else of the paper's k, else its only one."""
        baselines = [arm for arm in self.arms if arm.sampler == self.baseline_sampler]
        for wanted in (variant.negatives, find_encoder(self.config.encoder).negatives):
            for arm in baselines:
                if arm.negatives == wanted:
                    return arm
        return baselines[0] if len(baselines) == 1 else None

    def with_targets(self, variant: Variant) -> list[Run]:
        """Return the variant's runs of the seeds that its baseline has, by seed, each with the
        smallest loss of the baseline of that seed as its target.
        """
        base = self.baseline(variant)
        if base is None or variant not in self.arms:
            return []
        return list(with_targets(self.arms[variant], self.arms[base]).values())

    def title(self) -> str:
        """Return the settings that differ from the defaults, but for data set, encoder and loss."""
        return unusual_label(self.config)

    def tuned(self, variant: Variant) -> str:
        """Return what a sweep chose for a variant, such as ``learning_rate=0.02``."""
        chosen = [
            " ".join(f"{name}={getattr(run.config, name):g}" for name in run.config.tuned_settings)
            for run in self.arms.get(variant, {}).values()
        ]
        return " or ".join(filter(None, dict.fromkeys(chosen)))


def label(comparisons: Sequence[Comparison]) -> str:
    """Return b, s and k, other settings that differ from the defaults, and the seeds.

    s and k are those of arms that name none, such as ``b=512, s=4, k=10, epochs=8, seeds 0 to 2``.

    Args:
        comparisons: with the same :meth:`Comparison.title`.
    """
    variants = [variant for each in comparisons for variant in each.arms]
    parts = [f"b={comparisons[0].config.batch_size}"]
    parts += usual_shape(variants, [each.config.encoder for each in comparisons])
    others = comparisons[0].title().split(", ")
    parts += [part for part in others if part and not part.startswith("batch_size=")]
    return ", ".join([*parts, seeds_label({seed for each in comparisons for seed in each.seeds})])


def usual_shape(variants: Iterable[Variant], encoders: Iterable[str]) -> list[str]:
    """Return s and k of arms that name none, such as ``s=4`` and ``k=10``."""
    parts = []
    if any(variant.stratum_size == RunConfig.stratum_size for variant in variants):
        parts.append(f"s={RunConfig.stratum_size}")
    usual = {name: find_encoder(name).negatives for name in encoders}
    if len(set(usual.values())) == 1:
        return [*parts, f"k={next(iter(usual.values()))}"]
    return parts + [f"k={k} ({find_encoder(name).title})" for name, k in usual.items()]


def seeds_label(seeds: Iterable[int]) -> str:
    """Return ``seed 0``, ``seeds 0 to 2`` or ``seeds 0, 5``."""
    known = sorted(seeds)
    if len(known) == 1:
        return f"seed {known[0]}"
    if known == list(range(known[0], known[-1] + 1)):
        return f"seeds {known[0]} to {known[-1]}"
    return f"seeds {', '.join(map(str, known))}"


def group(records: Sequence[RunRecord]) -> list[Comparison]:
    """Return finished and diverged runs by comparison, in a stable order.

    Diverged runs count: without them an arm would look better than it is.
    """
    groups: dict[tuple[Any, ...], dict[Variant, dict[int, Run]]] = {}
    configs: dict[tuple[Any, ...], RunConfig] = {}
    for record in sorted(records, key=lambda one: (str(one.environment.get("time")), one.name)):
        if record.summary["status"] not in ("finished", "diverged"):
            continue
        config, settings = record.config, shared_settings(record.config)
        key = (
            *(settings[name] for name in ("dataset", "encoder", "loss")),
            record.data_fingerprint,
            tuple(sorted((name, str(value)) for name, value in settings.items())),
        )
        configs.setdefault(key, config)
        arms = groups.setdefault(key, {})
        arms.setdefault(Variant.of(config), {})[config.seed] = Run.of(record)
    return [Comparison(configs[key], key[3], groups[key]) for key in sorted(groups)]


@cache
def unusual_settings(config: RunConfig) -> Mapping[str, Any]:
    """Return the settings that differ from the defaults for the run's encoder, loss and sampler."""
    usual = default_values(config)
    return {name: value for name, value in config.to_dict().items() if value != usual[name]}


def unusual_label(config: RunConfig, left_out: Iterable[str] = ()) -> str:
    """Return the shared settings that differ from the defaults, such as ``epochs=8, noise=0.75``,
    but for data set, encoder, loss and those of ``left_out``.
    """
    shared = shared_settings(config).keys() - {"dataset", "encoder", "loss", *left_out}
    return ", ".join(
        f"{name}={value}" for name, value in unusual_settings(config).items() if name in shared
    )
