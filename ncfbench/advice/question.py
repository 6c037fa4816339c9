"""The question of a race: what is fixed, what is tried, and the measure that decides."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ncfbench.catalog import LOSSES, SAMPLERS, find_encoder, find_loss, find_sampler
from ncfbench.config import RunConfig, all_settings, complete
from ncfbench.errors import UsageError, nearest

Target = Literal["loss", "recall"]
TARGETS: tuple[Target, ...] = get_args(Target)

BATCH_SIZES = (256, 512, 1024)
STRATUM_SIZES = (2, 4, 8)
NEGATIVE_SHARES = (1.0, 0.3, 0.1)
"""Numbers of negatives to try, as shares of the encoder's default."""
RATE_FACTORS = (1.0, 3.0, 1 / 3, 1.7, 0.6, 9.0, 1 / 9)
"""Learning rates to try, as multiples of the loss's default: the first three at once, the others
where their neighbours are best.
"""
FIRST_RATES = 3
TRIED = ("loss", "sampler", "batch_size", "stratum_size", "negatives", "learning_rate", "seed")
"""Settings that the candidates differ in."""


@dataclass(frozen=True)
class Question:
    """A question to a race. Empty tuples stand for the defaults.

    Attributes:
        fixed: settings that all candidates share, by name; the data set and the encoder above all.
        target: ``loss``: the least time to a probe loss; ``recall``: to a recall on validation
            items, for which losses compete too.
        seeds: wanted seeds of each finalist.

    Raises:
        UsageError: an unknown name, or a question without an answer.
    """

    fixed: Mapping[str, Any]
    target: Target = "loss"
    losses: tuple[str, ...] = ()
    samplers: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = BATCH_SIZES
    stratum_sizes: tuple[int, ...] = STRATUM_SIZES
    negatives: tuple[int, ...] = ()
    learning_rates: tuple[float, ...] = ()
    seeds: int = 2
    base: RunConfig = field(init=False)
    """The fixed settings, complete."""

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise UsageError(
                f"--target {self.target!r}{nearest(self.target, TARGETS)} Valid:"
                f" {', '.join(TARGETS)}."
            )
        for name in self.fixed:
            if name in TRIED:
                raise UsageError(f"{name} is what advise tries: give it by the flag of that name.")
        if self.seeds < 1:
            raise UsageError(f"--seeds {self.seeds}: at least one.")
        for name in self.samplers:
            find_sampler(name)
        for name in self.losses:
            find_loss(name)
        losses = self.losses or self.usual_losses
        if self.target == "loss" and len(losses) > 1:
            raise UsageError(
                "Values of different losses do not compare. Name one --loss, or use --target"
                " recall."
            )
        usual = tuple(name for name in SAMPLERS if find_sampler(name).in_default_race)
        base = complete({"loss": losses[0], **self.fixed})
        object.__setattr__(self, "losses", losses)
        object.__setattr__(self, "samplers", self.samplers or usual)
        object.__setattr__(self, "base", base)
        # The base has the default sampler, which need not have the settings of others.
        changed = [
            setting.name
            for setting in all_settings().values()
            if setting.used_by == "sampler"
            and setting.changes_objective
            and self.fixed.get(setting.name) is not None
            and setting.convert(self.fixed[setting.name]) != setting.default
        ]
        if self.target == "loss" and changed:
            raise UsageError(
                f"{changed[0]} gives samplers that have it another objective, and its value does"
                " not compare with others'. Leave it out, or use --target recall."
            )

    @property
    def usual_losses(self) -> tuple[str, ...]:
        """The losses that compete where none is named."""
        if self.target == "loss":
            return (RunConfig.loss,)
        return tuple(name for name, info in LOSSES.items() if not info.bias)

    def values(self, name: str, loss: str, sampler: str) -> tuple[Any, ...]:
        """Return the values to try of a setting of :data:`TRIED`, the usual one first.

        A setting that the sampler does not use has none.
        """
        if name == "learning_rate":
            usual = find_loss(loss).learning_rate
            rates = tuple(float(f"{usual * factor:.2g}") for factor in RATE_FACTORS)
            return self.learning_rates or rates
        if name != "batch_size" and not find_sampler(sampler).reads(name):
            return ()
        default = find_encoder(self.base.encoder).negatives
        shares = dict.fromkeys(max(round(default * share), 1) for share in NEGATIVE_SHARES)
        given, wanted = {
            "batch_size": (self.batch_sizes, RunConfig.batch_size),
            "stratum_size": (self.stratum_sizes, RunConfig.stratum_size),
            "negatives": (self.negatives or tuple(shares), default),
        }[name]
        return tuple(sorted(given, key=lambda value: abs(value - wanted)))

    @property
    def name(self) -> str:
        """Name of the folder of its runs: the same question has the same."""
        shown = self.losses[0] if self.target == "loss" else "recall"
        asked = {
            each.name: getattr(self, each.name)
            for each in dataclasses.fields(self)
            if each.name not in ("base", "seeds")
        }
        digest = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode())
        parts = (self.base.dataset, self.base.encoder, shown, digest.hexdigest()[:6])
        return "-".join(parts).replace(":", ".")
