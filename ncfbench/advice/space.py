"""The space of a search: the settings that differ, and the values that are tried of each.

A setting declares its values itself (:attr:`ncfbench.settings.Setting.tried`). A point of the space
is the settings of a run. Settings that its choices do not read are not tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ncfbench.catalog import BUILT_IN, all_settings, find_encoder
from ncfbench.config import RunConfig, complete
from ncfbench.data import Dataset
from ncfbench.errors import UsageError
from ncfbench.runs.quality import can_rank

FOLLOWS = {"word_dimension": "dimension"}
"""Settings that have the value of another one, unless they are given."""
Point = Mapping[str, Any]
"""Values of the settings that are tried, by name."""


@dataclass(frozen=True)
class Space:
    """The settings of a search.

    Attributes:
        fixed: settings that all points share, the data set above all.
        tried: the values of each of the others. Choices such as the loss come first.
    """

    fixed: Mapping[str, Any]
    tried: Mapping[str, Sequence[Any]]

    @classmethod
    def of(
        cls, dataset: Dataset, fixed: Mapping[str, Any], given: Mapping[str, Sequence[Any]]
    ) -> Space:
        """Return the space for a data set: without what it cannot serve, and what is fixed.

        Args:
            given: values to try in place of those that the settings declare.
        """
        declared = {name: each.tried for name, each in all_settings().items() if each.tried}
        tried = {**declared, **given}
        if "encoder" not in given:
            tried["encoder"] = [name for name in tried["encoder"] if is_served(name, dataset)]
        if dataset.item_features is None and "history_of" not in given:
            tried["history_of"] = ["ids"]
        if dataset.item_features is None:
            tried.pop("features", None)
        if "batch_size" not in given:
            n_links = dataset.graph.n_links
            fitting = [size for size in tried["batch_size"] if size <= n_links]
            tried["batch_size"] = fitting or [2 ** (max(n_links, 1).bit_length() - 1)]
        order = [*BUILT_IN, *(name for name in tried if name not in BUILT_IN)]
        return cls(
            fixed,
            {name: tuple(tried[name]) for name in order if name in tried and name not in fixed},
        )

    def config(self, point: Point) -> RunConfig:
        """Return the settings of a run.

        Raises:
            UsageError: they cannot work together.
        """
        follows = {name: point[of] for name, of in FOLLOWS.items() if of in point}
        return complete({**follows, **self.fixed, **point})

    def names(self, config: RunConfig) -> list[str]:
        """Return the names of the tried settings that a run has and reads, in their order."""
        values = config.to_dict()
        return [
            name for name in self.tried if name in values and config.reads(config.settings[name])
        ]

    def point(self, config: RunConfig) -> dict[str, Any]:
        """Return the point of a run's settings."""
        values = config.to_dict()
        return {name: values[name] for name in self.names(config)}

    def neighbours(self, config: RunConfig) -> Iterator[RunConfig]:
        """Yield the points that differ in one setting: a choice, or a number by one step."""
        point = self.point(config)
        choices = {name: value for name, value in point.items() if name in BUILT_IN}
        for name, value in point.items():
            for other in self._beside(name, value):
                # What only the other choice reads has its default there.
                with suppress(UsageError):
                    names = self.names(self.config({**choices, name: other}))
                    kept = {key: value for key, value in point.items() if key in names}
                    yield self.config({**kept, name: other})

    def _beside(self, name: str, value: Any) -> Sequence[Any]:
        values = self.tried[name]
        if isinstance(value, str | bool):
            return [other for other in values if other != value]
        if value not in values:  # the margin of hinge among the scales of others
            return []
        place = values.index(value)
        return [values[at] for at in (place - 1, place + 1) if 0 <= at < len(values)]


def is_served(encoder: str, dataset: Dataset) -> bool:
    """Return whether a data set has what an encoder reads, and the encoder the vectors of the items
    that the data set ranks.
    """
    has = {"features": dataset.item_features is not None, "text": bool(dataset.n_words)}
    reads = find_encoder(encoder).content
    return can_rank(encoder, dataset) and all(has.get(content, True) for content in reads)
