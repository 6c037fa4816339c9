"""The answer about a data set: arms of all its losses, encoders and samplers side by side.

The probes of two objectives do not compare, and the quality of their rankings does. The rule is
that of :mod:`ncfbench.reporting.ranked`, for finished runs and for a race.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ncfbench.catalog import BUILT_IN
from ncfbench.config import RunConfig
from ncfbench.data.content import Split
from ncfbench.reporting.answers import Answer, Caveat
from ncfbench.reporting.arms import TEST_RECALL, ArmResult
from ncfbench.reporting.formats import counted
from ncfbench.reporting.frames import grouped
from ncfbench.reporting.labels import NO_CHOICES, choices_label, choices_of, unusual_settings
from ncfbench.reporting.quality import RECALL
from ncfbench.reporting.ranked import RankedArm, Runs, above_chance_at, rank_soonest
from ncfbench.reporting.table import slug
from ncfbench.runs.arms import COMPUTATION_SETTINGS, shared_settings

FALLING = 0.03
"""A measure that improved by a larger share in the last doubling of the clock still improves."""


class Worth(NamedTuple):
    """A value of a choice that was not recommended, with the best arm that has it."""

    choice: str
    value: str
    arm: RankedArm


@dataclass(frozen=True, kw_only=True)
class Overall(Answer):
    """The answer about arms of different losses, encoders and models.

    Attributes:
        arms: the best first.
        target: the level that decides, a quality with its sign changed; None where no arm is known
            to be better than chance.
        metric: what ranking is judged by, such as ``recall@50``.
        split: the held-out links that decide.
        chance: test recall@50 by chance; None where it is not known.
        split_chance: the metric of the links that decide by chance; None where it is not known.
    """

    arms: Sequence[RankedArm]
    metric: str = "recall@50"
    split: Split = "validation"
    chance: float | None = None
    split_chance: float | None = None

    @property
    def asks(self) -> str:
        """The question, as titles have it."""
        return "What ranks best soonest"

    @property
    def subject(self) -> str:
        """Data set and metric."""
        return f"{self.config.dataset}, {self.metric}"

    def named(self, kind: str) -> str:
        """Return the name of a table of a kind."""
        return slug(kind, self.config.dataset, self.data_fingerprint[:6])

    @property
    def best(self) -> RankedArm | None:
        """The recommended arm; None where nothing was learned."""
        return next((arm for arm in self.arms if arm.status == "recommended"), None)

    @property
    def main(self) -> Sequence[RankedArm]:
        """The recommended arm and the best one with each other choice."""
        others = [row.arm for row in worth(self)]
        return [arm for arm in self.arms if arm is self.best or arm in others]

    @property
    def fall(self) -> float:
        """Share by which the best one's measure improved in the last doubling of its clock."""
        curve = self.best.curve if self.best else None
        before = curve.at(curve.clock / 2) if curve else 0.0
        return curve.gain() / abs(before) if curve and before else 0.0

    @property
    def is_still_falling(self) -> bool:
        """True if longer training may change the order, or find one."""
        return self.best is None or self.fall > FALLING


def find_overall(answers: Iterable[Answer], *, has_all: bool = False) -> list[Overall]:
    """Return the answer of each data set whose arms differ in more than sampler and seed: in loss,
    encoder, dimension and so on.

    Args:
        has_all: answer where arms differ in the sampler and seed alone too.
    """
    groups = grouped(answers, lambda answer: answer.data_fingerprint)
    found = (_overall(own, has_all=has_all) for own in groups.values())
    return [overall for overall in found if overall is not None]


def worth(answer: Overall) -> list[Worth]:
    """Return the best arm with every other value of sampler, loss, encoder and so on, and the best
    one with another value of each number; the choices that matter most first.

    Such arms may differ in other settings too: each value stands at its best.
    """
    best = answer.best
    if best is None:
        return []
    others = sorted(
        (arm for arm in answer.arms if math.isfinite(arm.level) and arm is not best),
        key=lambda arm: (arm.expected, arm.level, arm.first.name),
    )
    rows: list[Worth] = []
    for name, own in best.config.to_dict().items():
        if name in NO_CHOICES or not reads(best, name):
            continue
        of_value: dict[Any, RankedArm] = {}
        for arm in others:
            value = arm.config.to_dict().get(name, own)
            if value != own and reads(arm, name):
                of_value.setdefault(value, arm)
        shown = of_value.items() if name in BUILT_IN else [*of_value.items()][:1]
        rows += [Worth(name, str(value), arm) for value, arm in shown]
    first = {row.choice: row.arm for row in reversed(rows)}
    matters = {choice: (-arm.expected, -arm.level) for choice, arm in first.items()}
    return sorted(rows, key=lambda row: (row.choice not in BUILT_IN, *matters[row.choice]))


def _overall(answers: Sequence[Answer], *, has_all: bool) -> Overall | None:
    """Return the answer of a data set; None where its arms differ in sampler and seed alone, unless
    all are wanted.
    """
    arms = [arm for answer in answers for arm in answer.arms if _is_comparable(arm)]
    runs = [run for arm in arms for run in arm.runs.values()]
    newest = max(runs, key=lambda run: str(run.environment.get("time")), default=None)
    kept = [
        arm
        for arm in arms
        if newest is None
        or all(run.environment["key"] == newest.environment["key"] for run in arm.runs.values())
    ]
    if not kept or (len({_model(arm.config) for arm in kept}) < 2 and not has_all):
        return None
    reasons = []
    if left := len(arms) - len(kept):
        text = f"{counted(left, 'arm')} of another machine or environment left out."
        reasons.append(Caveat("other_environment", text))
    has_validation = all(_is_evaluated(arm, f"validation_{RECALL}") for arm in kept)
    split: Split = "validation" if has_validation else "test"
    chances = {name: kept_chance(kept, name) for name in (f"{split}_{RECALL}", TEST_RECALL)}
    chance = chances[f"{split}_{RECALL}"]
    ranked, level = rank_soonest([_unranked(arm, split, chance) for arm in kept])
    return Overall(
        config=kept[0].config,
        data_fingerprint=answers[0].data_fingerprint,
        data_label=answers[0].data_label,
        settings="",
        arms=sorted((arm.with_quality() for arm in ranked), key=lambda arm: arm.place),
        target=level,
        reasons=reasons,
        floors=answers[0].floors,
        split=split,
        chance=chances[TEST_RECALL],
        split_chance=chance,
    )


def _unranked(arm: ArmResult, split: Split, chance: float | None) -> RankedArm:
    """Return an arm of an answer with the curves that decide.

    Args:
        chance: for runs that keep none.
    """
    by_seed = [run for _, run in sorted(arm.runs.items())]
    runs = [run for run in by_seed if run.is_timed] or by_seed
    first = runs[0]
    return RankedArm(
        name=choices_label(choices_of(first.config)),
        config=first.config,
        runs={run.config.seed: run for run in runs},
        status="diverged" if arm.has_diverged else "tied",
        measured=Runs.of(runs, f"{split}_{RECALL}", chance),
        learned_at=above_chance_at(first, split, chance or 0.0),
    )


def _model(config: RunConfig) -> tuple[Any, ...]:
    """Return the choices that arms of one comparison share."""
    chosen = shared_settings(config).keys() - {*NO_CHOICES, *COMPUTATION_SETTINGS}
    unusual = unusual_settings(config).items()
    return config.encoder, config.loss, *(item for item in unusual if item[0] in chosen)


def kept_chance(arms: Sequence[ArmResult], column: str) -> float | None:
    """Return the chance of a column that some run kept; it is that of the data set."""
    rows = (row for arm in arms for run in arm.runs.values() for row in run.curve)
    known = (row.get(f"{column}_chance") for row in rows)
    return next((chance for chance in known if chance is not None), None)


def _is_comparable(arm: ArmResult) -> bool:
    """Return whether an arm has recall of test links, and times that may be compared."""
    is_simulated = any(run.is_simulated for run in arm.runs.values())
    return _is_evaluated(arm, TEST_RECALL) and not is_simulated


def _is_evaluated(arm: ArmResult, column: str) -> bool:
    return any(row[column] is not None for row in arm.runs[min(arm.runs)].curve)


def reads(arm: RankedArm, name: str) -> bool:
    """Return whether an arm has a setting, and reads it."""
    config = arm.config
    setting = config.settings.get(name)
    return setting is not None and config.reads(setting)
