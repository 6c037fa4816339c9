"""A run's figures from its raw records: the second computation's own, without the summary."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from ncfbench.catalog import find_encoder, find_user_tower
from ncfbench.config import RunConfig, default_values
from ncfbench.reporting.verify.statistics import Floats
from ncfbench.runs.arms import Variant, shared_settings
from ncfbench.runs.folder import RunRecord
from ncfbench.storage import schemas

Row = Mapping[str, Any]


def falls_to(level: float, at: Floats, values: Floats) -> float:
    """Return where the line through some points first falls to a level; NaN if nowhere."""
    below = np.flatnonzero(values <= level)
    if not len(below):
        return math.nan
    index = below[0]
    if index == 0:
        return float(at[0])
    share = (level - values[index - 1]) / (values[index] - values[index - 1])
    return float(at[index - 1] + share * (at[index] - at[index - 1]))


def unusual_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that a run reads and that are not the defaults."""
    usual = default_values(config)
    return {
        name: value
        for name, value in config.to_dict().items()
        if value != usual[name] and config.reads(config.settings[name])
    }


class Run:
    """A run. Its summary only says how it ended.

    Attributes:
        full, step: median seconds of an iteration; NaN without times.
        spread: interquartile range of the blocks' times over their median.
        lowest: smallest probe loss.
    """

    def __init__(self, record: RunRecord) -> None:
        self.record, self.config, self.environment = record, record.config, record.environment
        self.name, self.seed = record.name, record.config.seed
        self.variant = Variant.of(record.config)
        self.has_diverged: bool = record.summary["status"] == "diverged"
        self.is_over = self.has_diverged or record.summary["status"] == "finished"
        self.full, self.spread = self._block_times("full")
        self.step, _ = self._block_times("step")
        blocks = [row for row in record.timing if row["kind"] == "full" and row["item_slots"]]
        iterations = [row["iterations"] for row in blocks]
        slots = [row["item_slots"] for row in blocks]
        self.item_slots = float(np.average(slots, weights=iterations)) if blocks else math.nan
        self.points: list[tuple[float, float]] = [
            (row["iteration"], row["probe_loss"]) for row in record.curve
        ]
        self.lowest: float = min((loss for _, loss in self.points), default=math.nan)
        evaluated = [row for row in record.curve if row["test_recall_at_50"] is not None]
        self.at_end: Row = evaluated[-1] if evaluated else {}

    @cached_property
    def feature_seconds(self) -> float:
        """Seconds of derived item features, as ``config.json`` has them, of a run that reads
        features: its encoder does, or they are added to a text's vector, or to a user's history.
        """
        document = json.loads((self.record.folder / "config.json").read_text(encoding="utf-8"))
        settings = document["config"]
        content = find_encoder(settings["encoder"]).content
        reads_them = "features" in content or ("text" in content and settings["features"] == "add")
        if "history" in find_user_tower(settings.get("user_tower", "table")).content:
            reads_them |= settings.get("history_of") in (None, "content", "both")
        return float(document.get("feature_seconds", 0)) * reads_them

    def _block_times(self, kind: str) -> tuple[float, float]:
        kinds = (kind, self.environment["key"])
        blocks = [
            row for row in self.record.timing if (row["kind"], row["environment_key"]) == kinds
        ]
        blocks = [row for row in blocks if not row["resumed"]] or blocks
        half = max((row["iterations"] for row in blocks), default=0) / 2
        times = [row["seconds"] / row["iterations"] for row in blocks if row["iterations"] >= half]
        if not times:
            return math.nan, 0.0
        low, middle, high = np.quantile(times, (0.25, 0.5, 0.75)).tolist()
        return middle, (high - low) / middle

    def clock(self, iterations: Floats) -> Floats:
        """Return the seconds of training at some evaluations."""
        return iterations * self.full

    def compared_by(self, *tried: str) -> str:
        """Return the data and settings that it shares with those that it is compared with.

        Args:
            tried: settings that may differ too.
        """
        shared = shared_settings(self.config).items()
        common = {name: value for name, value in shared if name not in tried}
        own = [self.record.data_fingerprint, dict(self.record.revisions), common]
        return json.dumps(own, sort_keys=True)

    def timed(self, profile: Row | None) -> Run:
        """Return it with the length of an iteration that a profile measured, if there is one."""
        run = copy.copy(self)
        if profile is not None:
            run.full, run.spread = profile["measured_full_iteration_seconds"], 0.0
            run.environment = {**run.environment, "key": profile["environment_key"]}
        return run

    def iterations_to(self, level: float) -> float:
        """Return the iterations until the probes first come down to a level; NaN if never."""
        iterations, losses = np.array(self.points, float).T
        return falls_to(level, iterations, losses)

    @property
    def summary(self) -> Row:
        """Numbers that its summary must have."""
        return {
            "full_iteration_seconds": self.full,
            "step_iteration_seconds": self.step,
            "item_slots": self.item_slots,
            "smallest_probe_loss": self.lowest,
            **self.reported,
        }

    @property
    def reported(self) -> Row:
        """Epoch and quality of the row that is reported."""
        values = {f"test_{name}": self.chosen.get(f"test_{name}") for name in schemas.QUALITY}
        return {"reported_epoch": self.chosen.get("epoch"), **values}

    @cached_property
    def chosen(self) -> Row:
        """The row of the largest validation recall, the first of equal ones, up to the first
        evaluation that lies ``patience`` behind it; of the last evaluation without any.
        """
        name, chance = (f"validation_recall_at_50{end}" for end in ("", "_chance"))
        rows = [row for row in self.record.curve if row[name] is not None and row[chance] != 1]
        recalls = np.array([row[name] for row in rows])
        behind = (at - int(np.argmax(recalls[: at + 1])) for at in range(len(rows)))
        over = (at for at, waited in enumerate(behind) if waited >= self.config.patience)
        return rows[int(np.argmax(recalls[: next(over, None)]))] if rows else self.at_end

    @property
    def has_trained(self) -> bool:
        """True if recall is above chance at the end, the loss came below that before training and
        was best after the first two probes, and the last quarter made less than a tenth of its fall
        since the first probe.
        """
        if self.at_end.get("test_recall_at_50_error") is not None:
            recall, chance, *errors = (
                self.at_end[f"test_recall_at_50{end}"] or 0.0
                for end in ("", "_chance", "_error", "_item_error")
            )
            if chance < 1 and recall - chance <= 2 * math.hypot(*errors):
                return False
        losses = [loss for _, loss in self.points]
        if not self.points[0][0] and losses[0] == self.lowest:
            return False
        if len(losses) < 5:
            return True
        early = min(loss for at, loss in self.points if 4 * at <= 3 * self.points[-1][0])
        is_late = self.lowest not in losses[:3]
        return is_late and early - self.lowest < 0.1 * (losses[1] - self.lowest)
