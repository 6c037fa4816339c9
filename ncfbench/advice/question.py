"""The question of a race: what is fixed, what is tried, and the measure that decides."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncfbench.catalog import find, find_loss
from ncfbench.config import RunConfig, all_settings, complete
from ncfbench.errors import UsageError, nearest, refusal
from ncfbench.storage.schemas import MEASURES

METRIC = "recall@50"


@dataclass(frozen=True)
class Question:
    """A question to a race: which settings reach the best ranking of validation links soonest.

    All settings that declare values to try compete.

    Attributes:
        fixed: settings that all arms share, by name; the data set above all.
        metric: what ranking is judged by: ``recall@50``, ``ndcg@20``, ``mrr`` ...
        tried: values to try by setting, in place of the declared ones.

    Raises:
        UsageError: an unknown name, or a question without an answer.
    """

    fixed: Mapping[str, Any]
    metric: str = METRIC
    tried: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    base: RunConfig = field(init=False)
    """The fixed settings, complete."""

    def __post_init__(self) -> None:
        if self.measure not in MEASURES:
            valid = [name.replace("_at_", "@") for name in MEASURES]
            raise UsageError(refusal("--metric", self.metric, valid))
        tried, fixed = _converted(self.tried), dict(self.fixed)
        for name in tried:
            if name in fixed:
                raise UsageError(f"{name} is what advise tries: give its values by --try {name}=.")
        if "encoder" in fixed:
            tried["encoder"] = (fixed.pop("encoder"),)
        object.__setattr__(self, "tried", tried)
        object.__setattr__(self, "fixed", fixed)
        losses = tried.get("loss", (RunConfig.loss,))
        encoders = tried.get("encoder", (RunConfig.encoder,))
        object.__setattr__(
            self, "base", complete({"loss": losses[0], "encoder": encoders[0], **fixed})
        )

    @property
    def measure(self) -> str:
        """The metric as columns name it, such as ``recall_at_50``."""
        return self.metric.replace("@", "_at_")

    @property
    def column(self) -> str:
        """The column of a curve that decides."""
        return f"validation_{self.measure}"

    @property
    def name(self) -> str:
        """Name of the folder of its runs: the same question has the same."""
        asked = [dict(self.fixed), self.metric, dict(self.tried)]
        text = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode())
        parts = (self.base.dataset, self.metric, text.hexdigest()[:6])
        return "-".join(parts).replace(":", ".").replace("@", "")


def _converted(tried: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Return the values to try of some settings, of the types that these have."""
    known, converted = all_settings(), dict[str, Sequence[Any]]()
    for name, values in tried.items():
        if name not in known or name in ("seed", "dataset"):
            raise UsageError(f"--try {name!r}{nearest(name, known)} It is no setting to try.")
        converted[name] = tuple(map(known[name].convert, values))
        for value in converted[name]:
            known[name].check(value)
            if name in ("encoder", "sampler"):
                find(name, value)
            elif name == "loss":
                find_loss(value)
    return converted
