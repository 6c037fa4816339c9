"""The settings of a run, with the paper's defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ncfbench.catalog import BUILT_IN, SETTINGS, LossFamily, SharedSettings, find_loss
from ncfbench.config import identity
from ncfbench.config.checks import check, noise_exponent
from ncfbench.config.own import own_settings, settings_of
from ncfbench.settings import Kind, Setting


@dataclass(frozen=True, kw_only=True)
class RunConfig(SharedSettings):
    """Everything that decides a run's numbers. Where two runs agree in it and in the data, their
    curves are equal.

    Complete and possible by construction: :func:`ncfbench.config.complete` makes it. A setting that
    the run's sampler, loss or encoder declares is an attribute too.

    Raises:
        UsageError: a value is out of range, or a combination cannot work.
    """

    own: tuple[tuple[str, Any], ...] = ()
    """Names and values of the settings that the sampler, the loss and the encoder declare."""

    def __post_init__(self) -> None:
        check(self)

    def __getattr__(self, name: str) -> Any:
        values = dict(self.__dict__.get("own", ()))
        if name in values:
            return values[name]
        raise AttributeError(
            f"no setting {name!r}: this run's sampler, loss and encoder declare none of that name"
        )

    @cached_property
    def settings(self) -> Mapping[str, Setting]:
        """The settings that the run has, by name (``lambda`` without its underscore)."""
        return run_settings({kind: getattr(self, kind) for kind in BUILT_IN})

    @property
    def sampler_settings(self) -> dict[str, Any]:
        """The values of the sampler's own settings."""
        return {name: getattr(self, name) for name in settings_of("sampler", self.sampler)}

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

    def effective(self) -> dict[str, Any]:
        """Return the settings of the run's identity: :func:`ncfbench.config.identity.effective`."""
        return identity.effective(self)

    def digest(self) -> str:
        """Return twelve hexadecimal digits that name these settings."""
        return identity.digest(self)


def field_name(name: str) -> str:
    """Return the name of a setting's field."""
    return "lambda_" if name == "lambda" else name


def run_settings(chosen: Mapping[Kind, str]) -> dict[str, Setting]:
    """Return the settings of a run, those of its choices behind those of every run."""
    return SETTINGS | own_settings(chosen, dir(RunConfig))
