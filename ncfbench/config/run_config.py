"""The settings of a run, complete and possible, and its identity: those that change its numbers."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ncfbench.catalog import BUILT_IN, SETTINGS, LossFamily, SharedSettings, infos_of, settings_for
from ncfbench.config.checks import check, noise_exponent
from ncfbench.settings import Kind, Setting


@dataclass(frozen=True, kw_only=True)
class RunConfig(SharedSettings):
    """Everything that decides a run's numbers, apart from the data.

    :func:`ncfbench.config.complete` makes it. A setting that the run's sampler, loss or encoder
    declares is an attribute too.

    Raises:
        UsageError: a value is out of range, or a combination cannot work.
    """

    own: tuple[tuple[str, Any], ...] = ()
    """Names and values of the settings that the run's choices declare."""

    def __post_init__(self) -> None:
        check(self.to_dict(), self.settings, self.infos)

    def __getattr__(self, name: str) -> Any:
        values = dict(self.__dict__.get("own", ()))
        if name in values:
            return values[name]
        raise AttributeError(
            f"no setting {name!r}: this run's sampler, loss and encoder declare none of that name"
        )

    @cached_property
    def infos(self) -> dict[Kind, Any]:
        """The records of the run's sampler, loss, encoder and so on."""
        return infos_of({kind: getattr(self, kind) for kind in BUILT_IN}, self.strata)

    @cached_property
    def settings(self) -> Mapping[str, Setting]:
        """The settings that the run has, by name (``lambda`` without its underscore)."""
        return settings_for(self.infos.values())

    def reads(self, setting: Setting) -> bool:
        """Return whether every run reads a setting, or one of this run's choices does."""
        if setting.used_by == "coupling":
            return self.coupling == "regularised"
        return not setting.used_by or any(info.reads(setting.name) for info in self.infos.values())

    @property
    def sampler_settings(self) -> dict[str, Any]:
        """The values of the sampler's own settings."""
        return {name: value for name, value in self.own if name in self.infos["sampler"].own}

    @property
    def noise_exponent(self) -> float:
        """alpha of P_n(v) ~ deg(v)^alpha: 1 for unigram, 0 for uniform."""
        return noise_exponent(self.noise)

    @property
    def family(self) -> LossFamily:
        """The family of the loss."""
        family: LossFamily = self.infos["loss"].family
        return family

    @property
    def normalize(self) -> bool:
        """True if embeddings have unit length, as the authors' program has it."""
        return self.family != "pointwise"

    @property
    def reads_item_features(self) -> bool:
        """True if item vectors depend on the items' dense features, where the data have any."""
        content = self.infos["encoder"].content
        return "features" in content or (self.features == "add" and "text" in content)

    @property
    def reads_histories(self) -> bool:
        """True if the user tower reads the items of users' training links."""
        return "history" in self.infos["user_tower"].content

    @property
    def reads_history_features(self) -> bool:
        """True if the user tower reads those items' dense features too."""
        return self.reads_histories and getattr(self, "history_of", None) != "ids"

    def on_one_device(self) -> RunConfig:
        """Return the same settings for one device."""
        return dataclasses.replace(self, devices=1)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as ``config.json`` has them: ``lambda`` without its underscore."""
        shared = {name: getattr(self, setting.attribute) for name, setting in SETTINGS.items()}
        return shared | dict(self.own)


def identity_of(config: RunConfig) -> dict[str, Any]:
    """Return all settings of a run, with None for those that change no number of it."""
    values, own = config.to_dict(), dict(config.own)
    for name, setting in config.settings.items():
        if setting.changes == "nothing" or (name not in own and not config.reads(setting)):
            values[name] = None
    return values


def digest(config: RunConfig) -> str:
    """Return twelve hexadecimal digits that name a run's settings."""
    return digest_of(identity_of(config), config.settings)


def digest_of(values: Mapping[str, Any], settings: Mapping[str, Setting]) -> str:
    """Return twelve hexadecimal digits that name values of settings.

    Values that are None or the default count for nothing, so a new setting leaves other runs their
    digest.
    """
    named = {
        name: value for name, value in values.items() if value not in (settings[name].default, None)
    }
    text = json.dumps(named, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
