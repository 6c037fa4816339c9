"""The question of a race: what is fixed, what is tried, and the measure that decides."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ncfbench.catalog import SAMPLERS, find, find_encoder, find_loss, find_sampler
from ncfbench.config import RunConfig, all_settings, complete
from ncfbench.errors import UsageError, nearest
from ncfbench.storage.schemas import MEASURES

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
"""Settings that the candidates differ in where the target is a loss."""
LISTED = {
    "encoder": "encoders",
    "loss": "losses",
    "sampler": "samplers",
    "batch_size": "batch_sizes",
    "stratum_size": "stratum_sizes",
    "negatives": "negatives",
    "learning_rate": "learning_rates",
}
"""Settings whose values to try have a field of their own in a question, with its name."""
METRIC = "recall@50"


@dataclass(frozen=True)
class Question:
    """A question to a race. Empty tuples stand for the defaults.

    Attributes:
        fixed: settings that all candidates share, by name; the data set above all, and the encoder
            where the target is a loss.
        target: ``recall``: the least time to the best ranking of validation links, for which
            encoders, losses and all settings that declare values to try compete; ``loss``: the
            least time to a probe loss.
        metric: what ranking is judged by: ``recall@50``, ``ndcg@20``, ``mrr`` ...
        others: values to try of further settings, by name, where the target is recall.
        seeds: wanted seeds of each finalist.

    Raises:
        UsageError: an unknown name, or a question without an answer.
    """

    fixed: Mapping[str, Any]
    target: Target = "recall"
    metric: str = METRIC
    encoders: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    samplers: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    stratum_sizes: tuple[int, ...] = ()
    negatives: tuple[int, ...] = ()
    learning_rates: tuple[float, ...] = ()
    others: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    seeds: int = 2
    base: RunConfig = field(init=False)
    """The fixed settings, complete."""

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise UsageError(
                f"--target {self.target!r}{nearest(self.target, TARGETS)} Valid:"
                f" {', '.join(TARGETS)}."
            )
        if self.measure not in MEASURES:
            valid = [name.replace("_at_", "@") for name in MEASURES]
            raise UsageError(
                f"--metric {self.metric!r}{nearest(self.metric, valid)} Valid: {', '.join(valid)}."
            )
        if self.seeds < 1:
            raise UsageError(f"--seeds {self.seeds}: at least one.")
        for kind, names in (("encoder", self.encoders), ("sampler", self.samplers)):
            for name in names:
                find(kind, name)
        for name in self.losses:
            find_loss(name)
        object.__setattr__(self, "others", _converted(self.others))
        fixed = dict(self.fixed)
        if "encoder" in fixed:
            object.__setattr__(self, "encoders", (fixed.pop("encoder"),))
        object.__setattr__(self, "fixed", fixed)
        if self.target == "loss":
            self._require_one_objective()
        for name in TRIED if self.target == "loss" else (*self.given, "seed"):
            if name in self.fixed:
                raise UsageError(f"{name} is what advise tries: give it by the flag of that name.")
        usual = tuple(name for name in SAMPLERS if find_sampler(name).in_default_race)
        losses = self.losses or (RunConfig.loss,)
        encoders = self.encoders or (RunConfig.encoder,)
        chosen = {"loss": losses[0], "encoder": encoders[0]}
        object.__setattr__(self, "base", complete({**chosen, **self.fixed}))
        if self.target == "loss":
            object.__setattr__(self, "encoders", encoders)
            object.__setattr__(self, "losses", losses)
            object.__setattr__(self, "samplers", self.samplers or usual)
            object.__setattr__(self, "batch_sizes", self.batch_sizes or BATCH_SIZES)
            object.__setattr__(self, "stratum_sizes", self.stratum_sizes or STRATUM_SIZES)

    def _require_one_objective(self) -> None:
        if len(self.losses) > 1 or len(self.encoders) > 1 or self.others:
            raise UsageError(
                "Values of different losses or models do not compare. Name one --loss and one"
                " --encoder, or use --target recall."
            )
        # The base has the default sampler, which need not have the settings of others.
        changed = [
            setting.name
            for setting in all_settings().values()
            if setting.used_by == "sampler"
            and setting.changes_objective
            and self.fixed.get(setting.name) is not None
            and setting.convert(self.fixed[setting.name]) != setting.default
        ]
        if changed:
            raise UsageError(
                f"{changed[0]} gives samplers that have it another objective, and its value does"
                " not compare with others'. Leave it out, or use --target recall."
            )

    @property
    def measure(self) -> str:
        """The metric as columns name it, such as ``recall_at_50``."""
        return self.metric.replace("@", "_at_")

    @property
    def column(self) -> str:
        """The column of a curve that decides."""
        return "probe_loss" if self.target == "loss" else f"validation_{self.measure}"

    @property
    def given(self) -> dict[str, tuple[Any, ...]]:
        """The values to try that the question names itself, by setting."""
        listed = {name: getattr(self, attribute) for name, attribute in LISTED.items()}
        return {name: values for name, values in listed.items() if values} | dict(self.others)

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
        asked = {
            each.name: getattr(self, each.name)
            for each in dataclasses.fields(self)
            if each.name not in ("base", "seeds")
        }
        text = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode())
        about = [self.metric]
        if self.target == "loss":
            about = [self.base.encoder, self.losses[0]]
        parts = (self.base.dataset, *about, text.hexdigest()[:6])
        return "-".join(parts).replace(":", ".").replace("@", "")


def flag_of(name: str) -> str:
    """Return the option that lists the values to try of a setting of :data:`LISTED`."""
    return f"--{name if name in ('encoder', 'loss') else LISTED[name]}".replace("_", "-")


def _converted(tried: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """Return the values to try of some settings, of the types that these have."""
    known, found = all_settings(), {}
    for name, values in tried.items():
        if name in LISTED:
            raise UsageError(f"--try {name}: use {flag_of(name)}.")
        if name not in known or name in ("seed", "dataset"):
            raise UsageError(f"--try {name!r}{nearest(name, known)} It is no setting to try.")
        found[name] = tuple(map(known[name].convert, values))
        for value in found[name]:
            known[name].check(value)
    return found
