"""The settings of a run, complete and possible."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ncfbench.catalog import (
    BUILT_IN,
    SETTINGS,
    Info,
    LossFamily,
    SharedSettings,
    find,
    find_loss,
    settings_for,
)
from ncfbench.config.checks import check, noise_exponent
from ncfbench.settings import Kind, Setting


@dataclass(frozen=True, kw_only=True)
class RunConfig(SharedSettings):
    """Everything that decides a run's numbers. Where two runs agree in it and in the data, their
    curves are equal.

    :func:`ncfbench.config.complete` makes it. A setting that the run's sampler, loss or encoder
    declares is an attribute too.

    Raises:
        UsageError: a value is out of range, or a combination cannot work.
    """

    own: tuple[tuple[str, Any], ...] = ()
    """Names and values of the settings that the sampler, the loss and the encoder declare."""

    def __post_init__(self) -> None:
        check(self.to_dict(), self.infos)

    def __getattr__(self, name: str) -> Any:
        values = dict(self.__dict__.get("own", ()))
        if name in values:
            return values[name]
        raise AttributeError(
            f"no setting {name!r}: this run's sampler, loss and encoder declare none of that name"
        )

    @property
    def choices(self) -> dict[Kind, str]:
        """The names of the run's sampler, loss, encoder and so on."""
        return {kind: getattr(self, kind) for kind in BUILT_IN}

    @cached_property
    def infos(self) -> dict[str, Info]:
        """The records of the run's choices."""
        return {kind: find(kind, name) for kind, name in self.choices.items()}

    @cached_property
    def settings(self) -> Mapping[str, Setting]:
        """The settings that the run has, by name (``lambda`` without its underscore)."""
        return settings_for(self.choices)

    def reads(self, setting: Setting) -> bool:
        """Return whether every run reads a setting, or one of this run's choices does."""
        infos = self.infos.values()
        return not setting.used_by or any(info.reads(setting.name, self.strata) for info in infos)

    @property
    def sampler_settings(self) -> dict[str, Any]:
        """The values of the sampler's own settings."""
        return {
            name: value
            for name, value in self.own
            if self.settings[name].used_by == "sampler" and self.infos["sampler"].reads(name)
        }

    @property
    def mines(self) -> bool:
        """True if negatives are drawn from items that are mined during training."""
        return bool(self.sampler_settings.get("mined", 0))

    @property
    def arm_settings(self) -> dict[str, Any]:
        """The values of those of the sampler's own settings that leave the objective as it is."""
        own = self.sampler_settings
        return {name: own[name] for name in own if not self.settings[name].changes_objective}

    @property
    def objective_settings(self) -> dict[str, Any]:
        """The values of the sampler's own settings that give it another objective than L."""
        return {
            name: value
            for name, value in self.sampler_settings.items()
            if self.settings[name].changes_objective and value != self.settings[name].default
        }

    @property
    def noise_exponent(self) -> float:
        """alpha of P_n(v) ~ deg(v)^alpha: 1 for unigram, 0 for uniform."""
        return noise_exponent(self.noise)

    @property
    def family(self) -> LossFamily:
        """The family of the loss."""
        return find_loss(self.loss).family

    @property
    def normalize(self) -> bool:
        """True if embeddings are scaled to unit length, as the authors' program does for all but
        pointwise losses.
        """
        return self.family != "pointwise"

    @property
    def shares_locally(self) -> bool:
        """True if the shards of a batch share negatives only within themselves."""
        return self.share == "local"

    def on_one_device(self) -> RunConfig:
        """Return the same settings for one device."""
        return dataclasses.replace(self, devices=1, share="global", shard_tables=False)

    @property
    def placement(self) -> dict[str, Any]:
        """Device placement: with global sharing it affects timing, not results."""
        return {"devices": self.devices, "shard_tables": self.shard_tables and self.devices > 1}

    @property
    def tuned_settings(self) -> tuple[str, ...]:
        """The settings that a sweep chose for this arm on the validation items."""
        return tuple(self.tuned.partition(":")[0].split("+")) if self.tuned else ()

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as ``config.json`` has them: ``lambda`` without its underscore."""
        return {name: getattr(self, field_name(name)) for name in SETTINGS} | dict(self.own)


def field_name(name: str) -> str:
    """Return the name of a setting's field."""
    return "lambda_" if name == "lambda" else name
