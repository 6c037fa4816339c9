"""Answers: the arm to train with, by the finished runs of a data set, encoder and loss.

All arms have one target for each seed: the smallest probe loss of the baseline at its best. That is
the arm of the baseline which is sooner than most of its others, over batch sizes, k and learning
rates, each pair compared at the latest loss that both have reached. So neither a run that stopped
early decides, nor one that creeps below the others after hours. The best arm is the soonest of all
that come down to the target with every seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean as mean
from typing import Any, Literal, get_args

from ncfbench.catalog import find_encoder, find_loss, find_sampler
from ncfbench.config import RunConfig
from ncfbench.reporting.baselines import best_baseline, seconds_to
from ncfbench.reporting.comparison import (
    Comparison,
    arm_of,
    seeds_label,
    unusual_settings,
    usual_shape,
)
from ncfbench.reporting.contenders import Contender, contenders_of
from ncfbench.reporting.convergence import find_fault
from ncfbench.reporting.quality import RECALL, Quality, at_end, quality_of
from ncfbench.reporting.table import slug
from ncfbench.runs.arms import ARM_SETTINGS, Variant, shared_settings
from ncfbench.runs.folder import RunRecord, are_interleaved
from ncfbench.timing import seed_statistics, ties
from ncfbench.timing import statistics as analysis

TRIED = (
    *ARM_SETTINGS,
    "batch_size",
    "learning_rate",
    "epochs",
    "patience",
    "probe_every",
    "iterations_per_dispatch",
    "item_block",
    "tuned",
)
"""Settings in which the arms of an answer may differ: none changes the objective or the model."""
EASIER = (0.25, 0.5)
"""Shares of the baseline's way to the target, in iterations, whose losses are targets too."""
Status = Literal["best", "tied", "slower", "never", "diverged", "no target"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class Standing:
    """How a contender stands beside the baseline at its best.

    Attributes:
        sooner: how many times sooner it reaches the target; None without a target or common seed.
        seconds, iterations: means to the target over those seeds; None if some never reached it.
        quality: at the reported epoch, at the end, and at the target.
    """

    contender: Contender
    status: Status
    sooner: seed_statistics.AtTarget | None = None
    seconds: float | None = None
    iterations: float | None = None
    quality: Sequence[Quality] = ()

    @property
    def name(self) -> str:
        """The contender's."""
        return self.contender.name

    @property
    def at_end(self) -> Quality | None:
        """Quality at the last evaluation; None where nothing was evaluated."""
        return at_end(self.quality)


@dataclass(frozen=True)
class Answer:
    """The answer of some comparisons that differ only in :data:`TRIED`.

    Attributes:
        standings: the best first; at least one.
        baseline: the baseline at its best; None where none has trained.
        target: probe loss that all come down to, on average over the baseline's seeds.
        is_tie_known: False if some tie is a guess from one seed.
        reasons: why there is no ratio, or what was left out, in sentences.
    """

    config: RunConfig
    data_fingerprint: str
    data_label: str
    settings: str
    standings: Sequence[Standing]
    baseline: Standing | None = None
    target: float | None = None
    is_tie_known: bool = True
    reasons: Sequence[str] = field(default_factory=list)

    def named(self, kind: str) -> str:
        """Return the name of a table or figure of a kind."""
        config, digits = self.config, self.data_fingerprint[:6]
        return slug(kind, config.dataset, config.encoder, config.loss, digits, self.settings)

    @property
    def subject(self) -> str:
        """Data set, encoder, loss, b where all have the same, s and k of arms that name none, other
        settings, and seeds.
        """
        config = self.config
        configs = [each.contender.config for each in self.standings]
        shared = {each.batch_size for each in configs}
        parts = [config.dataset, find_encoder(config.encoder).title, find_loss(config.loss).title]
        parts += [f"b={config.batch_size}"] if len(shared) == 1 else []
        variants = [Variant.of(each) for each in configs]
        has_k = find_encoder(config.encoder).negatives in [each.negatives for each in variants]
        parts += usual_shape(variants, [config.encoder] if has_k else [])
        seeds = {seed for each in self.standings for seed in each.contender.runs}
        return ", ".join(filter(None, [*parts, self.settings, seeds_label(seeds)]))

    @property
    def best(self) -> Standing | None:
        """The recommended arm; None without a target."""
        first = self.standings[0]
        return first if first.status == "best" else None

    @property
    def easier(self) -> list[tuple[float, seed_statistics.Estimate]]:
        """How much sooner the best arm is at easier targets (:meth:`easier_of`)."""
        return self.easier_of(self.best) if self.best else []

    def easier_of(self, standing: Standing) -> list[tuple[float, seed_statistics.Estimate]]:
        """Return shares of :data:`EASIER`, each with how many times sooner an arm reaches the loss
        that the baseline has then; only those with a ratio, none for the baseline itself.
        """
        if self.baseline is None or standing is self.baseline:
            return []
        runs, bases = standing.contender.runs, self.baseline.contender.runs
        pairs = [
            (arm_of(runs[seed]), arm_of(bases[seed])) for seed in sorted(runs) if seed in bases
        ]
        found = []
        for share in EASIER:
            levels = [_level_at(share, base) for _, base in pairs]
            total = seed_statistics.speedup_at(levels, pairs).total
            if total is not None:
                found.append((share, seed_statistics.product(total, standing.contender.length)))
        return found

    @property
    def ties(self) -> list[Standing]:
        """Arms that cannot be told from the best."""
        return [each for each in self.standings if each.status == "tied"]

    @property
    def main(self) -> list[Standing]:
        """The best, its ties, the baseline at its best, and the first arm of each other sampler."""
        seen: set[str] = set()
        found = []
        for each in self.standings:
            sampler = each.contender.config.sampler
            if each.status in ("best", "tied") or each is self.baseline or sampler not in seen:
                found.append(each)
            seen.add(sampler)
        return found

    @property
    def spread(self) -> float:
        """Largest spread of the times of an arm's blocks."""
        return max(each.contender.spread for each in self.main)

    @property
    def rounds(self) -> int | None:
        """Rounds of the profile that says how long iterations are; None: the runs' own times."""
        retimed = self.standings[0].contender.retimed
        return retimed.rounds if retimed else None

    @property
    def is_interleaved(self) -> bool:
        """True if all arms shown took turns with the baseline."""
        if self.baseline is None:
            return False
        base = self.baseline.contender.runs
        return all(
            are_interleaved(run, base[seed])
            for each in self.main
            for seed, run in each.contender.runs.items()
            if seed in base and each is not self.baseline
        )

    @property
    def is_still_falling(self) -> bool:
        """True if the loss of the best arm still falls fast at the end."""
        if self.best is None:
            return False
        faults = [find_fault(run.curve) for run in self.best.contender.runs.values()]
        return any(fault is not None and fault.kind == "falling" for fault in faults)


def find_answers(comparisons: Sequence[Comparison], *, allow_mixed: bool = False) -> list[Answer]:
    """Return an answer for each data set, encoder, loss and choice of settings outside
    :data:`TRIED`.

    Args:
        allow_mixed: compare times of different environments too; else those of the newest run's
            environment count.
    """
    groups: dict[tuple[Any, ...], list[Comparison]] = {}
    for comparison in comparisons:
        shared = shared_settings(comparison.config)
        key = [(name, str(shared[name])) for name in sorted(shared) if name not in TRIED]
        groups.setdefault((comparison.data_fingerprint, *key), []).append(comparison)
    return [_answer(own, allow_mixed=allow_mixed) for own in groups.values()]


def _answer(comparisons: Sequence[Comparison], *, allow_mixed: bool) -> Answer:
    config = comparisons[0].config
    unusual = unusual_settings(config)
    shared = shared_settings(config).keys() - {"dataset", "encoder", "loss", *TRIED}
    settings = ", ".join(f"{name}={unusual[name]}" for name in unusual if name in shared)
    data = comparisons[0].data_fingerprint, comparisons[0].data_label
    runs, reasons = _comparable(comparisons, allow_mixed=allow_mixed)
    if untimed := sum(each.untimed for each in comparisons):
        reasons.append(f"{_runs(untimed)} whose arms are not in the profile left out.")
    sampler = comparisons[0].baseline_sampler
    contenders, shorter = contenders_of(runs, sampler)
    if shorter:
        reasons.append(f"{_runs(shorter)} left out: a longer one has its arm and seed.")
    baseline = None
    if any(each.is_simulated for each in comparisons):
        reasons.append("Devices are SIMULATED by CPUs: their times are not compared.")
    elif len(contenders) == 1:
        reasons.append(f"{contenders[0].name} is the only arm so far: there is nothing to compare.")
    else:
        baseline, untrained = best_baseline(contenders, find_sampler(sampler).title)
        reasons += untrained
    if baseline is None:
        standings = [
            Standing(each, "no target", quality=quality_of(each.runs, {})) for each in contenders
        ]
        standings.sort(key=_by_recall)
        return Answer(config, *data, settings, standings, reasons=reasons)
    targets = {seed: min(arm_of(run).losses) for seed, run in baseline.runs.items()}
    measured = [_stand(each, baseline, targets) for each in contenders]
    standings, is_tie_known = _ranked(measured, baseline, targets)
    return Answer(
        config,
        *data,
        settings,
        standings,
        next(each for each in standings if each.contender is baseline),
        mean(targets.values()),
        is_tie_known,
        reasons,
    )


def _comparable(
    comparisons: Sequence[Comparison], *, allow_mixed: bool
) -> tuple[list[RunRecord], list[str]]:
    """Return the runs whose times may be compared, and a sentence on those left out."""
    runs = [run for each in comparisons for own in each.arms.values() for run in own.values()]
    newest = max(runs, key=lambda run: str(run.environment.get("time"))).environment
    kept = [run for run in runs if allow_mixed or run.environment["key"] == newest["key"]]
    if len(kept) == len(runs):
        return runs, []
    return kept, [
        f"{_runs(len(runs) - len(kept))} of another machine or environment left out: the newest"
        " run's counts (--allow-mixed compares all)."
    ]


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count > 1)}"


def _stand(contender: Contender, baseline: Contender, targets: Mapping[int, float]) -> Standing:
    """Return how soon a contender comes down to the targets; its status is decided later."""
    quality = quality_of(contender.runs, targets)
    if contender.has_diverged:
        return Standing(contender, "diverged", quality=quality)
    seeds = sorted(contender.runs.keys() & targets.keys())
    if not seeds or not contender.is_timed:
        return Standing(contender, "no target", quality=quality)
    arms = [arm_of(contender.runs[seed]) for seed in seeds]
    own_targets = [targets[seed] for seed in seeds]
    bases = [arm_of(baseline.runs[seed]) for seed in seeds]
    sooner = seed_statistics.speedup_at(own_targets, list(zip(arms, bases, strict=True)))
    if sooner.total is None:
        return Standing(contender, "never", sooner, quality=quality)
    sooner = replace(sooner, total=seed_statistics.product(sooner.total, contender.length))
    pairs = list(zip(own_targets, arms, strict=True))
    iterations = [analysis.iterations_to(level, arm.iterations, arm.losses) for level, arm in pairs]
    return Standing(
        contender,
        "slower",
        sooner,
        mean(seconds_to(level, arm) or 0.0 for level, arm in pairs),
        mean(each or 0.0 for each in iterations),
        quality,
    )


def _ranked(
    measured: Sequence[Standing], baseline: Contender, targets: Mapping[int, float]
) -> tuple[list[Standing], bool]:
    """Return the standings with their statuses, the best first, and whether all ties are known."""
    logs = {
        each.name: _log_ratios(each.contender, baseline, targets)
        for each in measured
        if each.status == "slower"
    }
    best, tied, is_known = ties.tied_ratios(logs)
    found: dict[str, Status] = dict.fromkeys(tied, "tied")
    found[best] = "best"
    ranked = [replace(each, status=found.get(each.name, each.status)) for each in measured]
    ranked.sort(key=lambda each: (STATUSES.index(each.status), -_total(each)))
    return ranked, is_known


def _by_recall(standing: Standing) -> tuple[float, float]:
    """Return what orders arms without a target: recall at the end, then the smallest loss."""
    recall = standing.at_end.values[RECALL] if standing.at_end else None
    losses = [min(arm_of(run).losses, default=math.inf) for run in standing.contender.runs.values()]
    return -(recall or 0.0), mean(losses)


def _log_ratios(
    contender: Contender, baseline: Contender, targets: Mapping[int, float]
) -> dict[int, float]:
    """Return the logarithm of how many times sooner a contender reaches the target, by seed."""
    found = {}
    for seed in contender.runs.keys() & targets.keys():
        times = [
            seconds_to(targets[seed], arm_of(each.runs[seed])) for each in (baseline, contender)
        ]
        if times[0] and times[1]:
            found[seed] = math.log(times[0] / times[1])
    return found


def _total(standing: Standing) -> float:
    total = standing.sooner.total if standing.sooner else None
    return total.value if total else 0.0


def _level_at(share: float, arm: analysis.Arm) -> float:
    """Return the smallest probe loss of an arm up to a share of its way to its smallest."""
    end = arm.iterations[min(range(len(arm.losses)), key=arm.losses.__getitem__)]
    return min(
        loss
        for iteration, loss in zip(arm.iterations, arm.losses, strict=True)
        if iteration <= max(share * end, arm.iterations[0])
    )
