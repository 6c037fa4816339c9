"""The question of a race: what is fixed, what is tried, and the measure that decides."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ncfbench.catalog import find, find_loss
from ncfbench.config import RunConfig, all_settings, complete
from ncfbench.errors import UsageError, nearest
from ncfbench.storage.schemas import MEASURES

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
    """A question to a race: which settings reach the best ranking of validation links soonest.

    Encoders, losses and all settings that declare values to try compete. Empty tuples stand for
    the declared values.

    Attributes:
        fixed: settings that all candidates share, by name; the data set above all.
        metric: what ranking is judged by: ``recall@50``, ``ndcg@20``, ``mrr`` ...
        others: values to try of further settings, by name.
        seeds: wanted seeds of each finalist.

    Raises:
        UsageError: an unknown name, or a question without an answer.
    """

    fixed: Mapping[str, Any]
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
        for name in (*self.given, "seed"):
            if name in self.fixed:
                raise UsageError(f"{name} is what advise tries: give it by the flag of that name.")
        losses = self.losses or (RunConfig.loss,)
        encoders = self.encoders or (RunConfig.encoder,)
        chosen = {"loss": losses[0], "encoder": encoders[0]}
        object.__setattr__(self, "base", complete({**chosen, **self.fixed}))

    @property
    def measure(self) -> str:
        """The metric as columns name it, such as ``recall_at_50``."""
        return self.metric.replace("@", "_at_")

    @property
    def column(self) -> str:
        """The column of a curve that decides."""
        return f"validation_{self.measure}"

    @property
    def given(self) -> dict[str, tuple[Any, ...]]:
        """The values to try that the question names itself, by setting."""
        listed = {name: getattr(self, attribute) for name, attribute in LISTED.items()}
        return {name: values for name, values in listed.items() if values} | dict(self.others)

    @property
    def name(self) -> str:
        """Name of the folder of its runs: the same question has the same."""
        asked = {
            each.name: getattr(self, each.name)
            for each in dataclasses.fields(self)
            if each.name not in ("base", "seeds")
        }
        text = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode())
        parts = (self.base.dataset, self.metric, text.hexdigest()[:6])
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
