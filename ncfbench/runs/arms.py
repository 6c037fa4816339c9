"""Arms of a comparison: the settings in which runs may differ, and those that they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ncfbench.catalog import find_encoder, find_sampler
from ncfbench.config import RunConfig, identity_of

ARM_SETTINGS = ("sampler", "seed", "stratum_size", "strata", "negatives", "uniform_items")
"""Settings in which the runs of one comparison may differ."""


@dataclass(frozen=True)
class Variant:
    """A sampler with those of its settings that distinguish arms.

    ``stratum_size`` and ``negatives`` are None where the sampler does not use them. The others are
    None where they have their usual value. ``declared`` are those of the sampler itself.
    """

    sampler: str
    stratum_size: int | None
    negatives: int | None
    strata: str | None = None
    uniform_items: int | None = None
    declared: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, config: RunConfig) -> Variant:
        """Return the variant that a run belongs to."""
        effective = identity_of(config)
        drawn = effective["uniform_items"]
        return cls(
            config.sampler,
            effective["stratum_size"],
            effective["negatives"],
            strata="user" if effective["strata"] == "user" else None,
            uniform_items=None if drawn == config.batch_size else drawn,
            declared=tuple(config.sampler_settings.items()),
        )

    def label(self, encoder: str) -> str:
        """Return the sampler's name in tables and figures, with its :meth:`note`."""
        return sampler_label(self.sampler, self.note(encoder))

    def note(self, encoder: str) -> str:
        """Return the settings that differ from the paper's, such as ``s=8`` or ``k=20``."""
        parts = ["by user"] if self.strata else []
        if self.stratum_size not in (None, RunConfig.stratum_size):
            parts.append(f"s={self.stratum_size}")
        if self.negatives not in (None, find_encoder(encoder).negatives):
            parts.append(f"k={self.negatives}")
        if self.uniform_items is not None:
            parts.append(f"k'={self.uniform_items}")
        usual = {setting.name: setting.default for setting in find_sampler(self.sampler).settings}
        parts += [f"{name}={value}" for name, value in self.declared if value != usual.get(name)]
        return " ".join(parts)


def sampler_label(sampler: str, note: str = "") -> str:
    """Return the name of a sampler in tables and figures, such as ``neg (k=20)``.

    Args:
        note: what differs from its usual settings.
    """
    return f"{find_sampler(sampler).title} ({note})" if note else find_sampler(sampler).title


def shared_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that all runs of a comparison share: all but :data:`ARM_SETTINGS` and
    those that the sampler declares as its own.
    """
    of_arms = {*ARM_SETTINGS, *config.sampler_settings}
    return {name: value for name, value in config.to_dict().items() if name not in of_arms}
