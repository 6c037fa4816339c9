"""Answers: the arm to train with, by the finished runs of a data set, encoder and loss.

All arms have one target for each seed: the smallest probe loss of the baseline at its best. That is
the arm of the baseline which is sooner than most of its others, over batch sizes, k and learning
rates, each pair compared at the latest loss that both have reached. So neither a run that stopped
early decides, nor one that creeps below the others after hours. The best arm is the soonest of all
that come down to the target with every seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import fmean as mean
from typing import Any, NamedTuple

from ncfbench.catalog import find_encoder, find_loss, find_sampler
from ncfbench.config import RunConfig
from ncfbench.data.content import Split
from ncfbench.reporting.arms import ArmResult, arms_of
from ncfbench.reporting.blends import BlendResult, blend_of
from ncfbench.reporting.convergence import find_fault, why_no_ratio
from ncfbench.reporting.floors import FloorResult, arm_beside
from ncfbench.reporting.formats import counted
from ncfbench.reporting.frames import (
    Run,
    compared_by,
    latest_common_level,
    over_seeds,
    with_targets,
)
from ncfbench.reporting.labels import seeds_label, unusual_label, usual_shape
from ncfbench.reporting.quality import RECALL, quality_of
from ncfbench.reporting.table import slug
from ncfbench.runs.arms import ARM_SETTINGS, Variant
from ncfbench.runs.folder import are_interleaved
from ncfbench.timing.intervals import Estimate, product
from ncfbench.timing.ranking import most_wins, tied_ratios
from ncfbench.timing.speedups import Arm, AtTarget

TRIED = (
    *ARM_SETTINGS,
    "batch_size",
    "learning_rate",
    "epochs",
    "patience",
    "probe_every",
    "item_block",
)
"""Settings in which the arms of an answer may differ: none changes the objective or the model."""
EASIER = (0.25, 0.5)
"""Shares of the baseline's way to the target, in iterations, whose losses are targets too."""
BEST = ("best", "recommended")
"""Statuses of the recommended arm of a report and of a race."""
STATUSES = ("best", "tied", "slower", "never", "diverged", "no target")
"""Statuses of the arms of an answer, in their order."""


class Caveat(NamedTuple):
    """A reason to doubt an answer, or that there is none: a code for programs, and a sentence."""

    code: str
    sentence: str


@dataclass(frozen=True)
class Answer:
    """The answer of some runs that differ only in :data:`TRIED`.

    Attributes:
        arms: the best first; at least one.
        baseline: the baseline at its best; None where none has trained.
        target: probe loss that all come down to, on average over the baseline's seeds.
        is_tie_known: False if some tie is a guess from one seed.
        reasons: why there is no ratio, or what was left out.
        floors: of the data set, the highest recall first; none where none were fitted.
    """

    config: RunConfig
    data_fingerprint: str
    data_label: str
    settings: str
    arms: Sequence[ArmResult]
    baseline: ArmResult | None = None
    target: float | None = None
    is_tie_known: bool = True
    reasons: Sequence[Caveat] = ()
    floors: Sequence[FloorResult] = ()

    @property
    def judged_by(self) -> Split:
        """The links whose recall compares arms with floors, and with each other over time."""
        return "test"

    @cached_property
    def blends(self) -> list[BlendResult]:
        """The kept blend of the arm that stands beside floors; none where there is none."""
        arm = arm_beside(self.arms, self.best, self.judged_by) if self.floors else None
        found = None if arm is None else blend_of(arm, self.floors)
        return [] if found is None else [found]

    @property
    def asks(self) -> str:
        """The question, as titles have it."""
        return "Which sampler trains soonest"

    def named(self, kind: str) -> str:
        """Return the name of a table or figure of a kind."""
        config, digits = self.config, self.data_fingerprint[:6]
        return slug(kind, config.dataset, config.encoder, config.loss, digits, self.settings)

    @property
    def subject(self) -> str:
        """Data set, encoder, loss, b where all have the same, s and k of arms that name none, other
        settings, and seeds.
        """
        config, configs = self.config, [arm.config for arm in self.arms]
        parts = [config.dataset, find_encoder(config.encoder).title, find_loss(config.loss).title]
        if len({each.batch_size for each in configs}) == 1:
            parts.append(f"b={config.batch_size}")
        variants = [Variant.of(each) for each in configs]
        has_k = find_encoder(config.encoder).negatives in [each.negatives for each in variants]
        parts += usual_shape(variants, [config.encoder] if has_k else [])
        seeds = {seed for arm in self.arms for seed in arm.runs}
        return ", ".join(filter(None, [*parts, self.settings, seeds_label(seeds)]))

    @property
    def measures(self) -> dict[str, str]:
        """Columns of the curves that a figure of the answer shows, with their labels."""
        loss = find_loss(self.config.loss).title
        return {
            "probe_loss": f"probe loss ({loss}, log scale)",
            f"test_{RECALL}": "test recall@50",
        }

    @property
    def best(self) -> ArmResult | None:
        """The recommended arm; None without a target."""
        return next((arm for arm in self.arms if arm.status in BEST), None)

    @property
    def ties(self) -> Sequence[ArmResult]:
        """Arms that cannot be told from the best."""
        return [arm for arm in self.arms if arm.status == "tied"]

    @property
    def main(self) -> Sequence[ArmResult]:
        """The best, its ties, the baseline at its best, and the first arm of each other sampler."""
        first: dict[str, ArmResult] = {}
        for arm in self.arms:
            first.setdefault(arm.config.sampler, arm)
        return [
            arm
            for arm in self.arms
            if arm.status in (*BEST, "tied")
            or arm is self.baseline
            or arm is first[arm.config.sampler]
        ]

    @property
    def feature_seconds(self) -> float:
        """Seconds that the derived item features of its arms took before training."""
        return max((arm.feature_seconds for arm in self.arms), default=0.0)

    @property
    def spread(self) -> float:
        """Largest spread of the times of an arm's blocks."""
        return max((arm.spread for arm in self.main), default=0.0)

    @property
    def rounds(self) -> int | None:
        """Rounds of the profile that says how long iterations of some arm are; None: the runs' own
        times.
        """
        ratios = filter(None, (arm.profile_ratio for arm in self.arms))
        return next((ratio.seeds for ratio in ratios), None)

    @property
    def is_interleaved(self) -> bool:
        """True if all arms shown took turns with the baseline."""
        return self.baseline is not None and all(
            are_interleaved(run, self.baseline.runs[seed])
            for arm in self.main
            for seed, run in arm.runs.items()
            if seed in self.baseline.runs and arm is not self.baseline
        )

    @property
    def is_still_falling(self) -> bool:
        """True if the loss of the best arm still falls fast at the end."""
        faults = [find_fault(run.curve) for run in self.best.runs.values()] if self.best else []
        return any(fault is not None and fault.kind == "falling" for fault in faults)

    def easier(self, arm: ArmResult | None) -> list[tuple[float, Estimate]]:
        """Return shares of :data:`EASIER`, each with how many times sooner an arm reaches the loss
        that the baseline has then; only those with a ratio, none for the baseline itself.
        """
        if arm is None or self.baseline is None or arm is self.baseline:
            return []
        found = []
        for share in EASIER:
            runs = with_targets(arm.runs, self.baseline.runs, partial(_loss_after, share))
            total = _times_sooner(arm, runs).total
            if total is not None:
                found.append((share, total))
        return found


def find_answers(groups: Iterable[Sequence[Run]]) -> list[Answer]:
    """Return an answer for each data set, encoder, loss and choice of settings outside
    :data:`TRIED`.
    """
    answers: dict[tuple[Any, ...], list[Run]] = {}
    for runs in groups:
        answers.setdefault(compared_by(runs[0], TRIED), []).extend(runs)
    return [_answer(runs) for runs in answers.values()]


def _answer(runs: Sequence[Run]) -> Answer:
    first = runs[0]
    timed = [run.without_target() for run in runs if not run.is_unprofiled]
    kept, reasons = _comparable(timed)
    if untimed := len(runs) - len(timed):
        text = f"{counted(untimed, 'run')} whose arms are not in the profile left out."
        reasons.append(Caveat("not_profiled", text))
    arms, shorter = arms_of(kept, first.baseline_sampler)
    if shorter:
        text = f"{counted(shorter, 'run')} left out: a longer one has its arm and seed."
        reasons.append(Caveat("shorter_runs", text))
    baseline: ArmResult | None = None
    if any(run.is_simulated for run in timed):
        text = "Devices are SIMULATED by CPUs: their times are not compared."
        reasons.append(Caveat("simulated", text))
    elif len(arms) == 1:
        text = f"{arms[0].name} is the only arm so far: there is nothing to compare."
        reasons.append(Caveat("only_arm", text))
    else:
        baseline, why = _best_baseline(arms)
        reasons += why
    known: dict[str, Any] = {}
    if baseline is None:
        arms = [replace(arm, reported=quality_of(arm.runs.values())) for arm in arms]
        arms.sort(key=_by_recall)
    else:
        arms, is_tie_known = _ranked([_beside(arm, baseline) for arm in arms])
        known["baseline"] = next(arm for arm in arms if arm.name == baseline.name)
        known["target"] = mean(min(run.probes.losses) for run in baseline.runs.values())
        known["is_tie_known"] = is_tie_known
    data = first.data_fingerprint, first.data_label
    settings = unusual_label(first, TRIED)
    return Answer(first.config, *data, settings, arms, reasons=reasons, **known)


def _comparable(runs: Sequence[Run]) -> tuple[Sequence[Run], list[Caveat]]:
    """Return the runs whose times may be compared, and a caveat on those left out."""
    newest = max(runs, key=lambda run: str(run.environment.get("time"))).environment
    kept = [run for run in runs if run.environment["key"] == newest["key"]]
    if len(kept) == len(runs):
        return runs, []
    text = (
        f"{counted(len(runs) - len(kept), 'run')} of another machine or environment left out: the"
        " newest run's counts."
    )
    return kept, [Caveat("other_environment", text)]


def _best_baseline(arms: Sequence[ArmResult]) -> tuple[ArmResult | None, list[Caveat]]:
    """Return the baseline at its best; None and the reason where none has trained."""
    baselines = [arm for arm in arms if arm.is_baseline]
    title = find_sampler(next(iter(arms[0].runs.values())).baseline_sampler).title
    if not baselines:
        return None, [
            Caveat(
                "no_baseline",
                f"No run of the baseline, {title}, is finished, so there is no ratio. To measure"
                f" against another sampler: --baseline {arms[0].config.sampler}.",
            )
        ]
    faults = {arm.name: why_no_ratio([*arm.runs.values()], arm.name) for arm in baselines}
    able = {arm.name: arm for arm in baselines if faults[arm.name] is None}
    if not able:
        text = " ".join(filter(None, faults.values()))
        return None, [Caveat("not_trained", f"No ratio: {text}")]
    # A fault that keeps no ratio from the answer needs no words.

    def ahead(one: str, other: str) -> float | None:
        runs = with_targets(able[one].runs, able[other].runs, latest_common_level)
        logs = [math.log(run.sooner) for run in runs.values() if run.sooner]
        return mean(logs) if logs else None

    def level(name: str) -> float:
        return mean(min(run.probes.losses) for run in able[name].runs.values())

    return able[most_wins(list(able), ahead, level)], []


def _beside(arm: ArmResult, baseline: ArmResult) -> ArmResult:
    """Return an arm with how soon it comes down to the targets; the best is found later."""
    paired = with_targets(arm.runs, baseline.runs)
    arm = replace(arm, runs={**arm.runs, **paired})
    arm = replace(arm, reported=quality_of(arm.runs.values()))
    if arm.has_diverged:
        return replace(arm, status="diverged")
    if not paired or not arm.is_timed:
        return arm
    sooner = _times_sooner(arm, paired)
    if sooner.total is None:
        return replace(arm, status="never", sooner=sooner)
    return replace(
        arm,
        status="slower",
        sooner=sooner,
        iterations=mean(run.iterations_to_target or 0.0 for run in paired.values()),
        seconds=mean(run.seconds_to_target or 0.0 for run in paired.values()),
    )


def _ranked(arms: Sequence[ArmResult]) -> tuple[list[ArmResult], bool]:
    """Return the arms with their statuses, the best first, and whether all ties are known."""
    logs = {
        arm.name: {seed: math.log(run.sooner) for seed, run in arm.runs.items() if run.sooner}
        for arm in arms
        if arm.status == "slower"
    }
    ranking = tied_ratios(logs)
    statuses = dict.fromkeys(ranking.tied, "tied") | {ranking.best: "best"}
    ranked = [replace(arm, status=statuses.get(arm.name, arm.status)) for arm in arms]

    def key(arm: ArmResult) -> tuple[int, float]:
        total = arm.sooner.total if arm.sooner else None
        return STATUSES.index(arm.status), -total.value if total else 0.0

    return sorted(ranked, key=key), not ranking.unknown


def _times_sooner(arm: ArmResult, runs: Mapping[int, Run]) -> AtTarget:
    """Return how many times sooner an arm comes down to the targets of some of its runs; the
    interval has a part of the profile, if one says how long iterations are.
    """
    sooner, ratio = over_seeds(runs.values()), arm.profile_ratio
    if sooner.total is None:
        return sooner
    length = Estimate(1, 1, 1, len(arm.runs))
    if ratio is not None:
        lower, upper = ratio.lower or ratio.value, ratio.upper or ratio.value
        length = replace(length, lower=lower / ratio.value, upper=upper / ratio.value)
    return replace(sooner, total=product(sooner.total, length))


def _by_recall(arm: ArmResult) -> tuple[float, float]:
    chosen = arm.chosen
    recall = chosen and (chosen.recall if chosen.validation is None else chosen.validation)
    losses = [min(run.probes.losses, default=math.inf) for run in arm.runs.values()]
    return -(recall or 0.0), mean(losses)


def _loss_after(share: float, own: Arm, base: Arm) -> float:
    """Return the smallest probe loss of a baseline up to a share of its way to its smallest."""
    end = base.iterations[min(range(len(base.losses)), key=base.losses.__getitem__)]
    return min(
        loss
        for iteration, loss in zip(base.iterations, base.losses, strict=True)
        if iteration <= max(share * end, base.iterations[0])
    )
