"""Records of all that a user can choose, and of every setting, from which help, checks, defaults,
identity and documentation are made.

What is not built in is a plug-in: a class named ``package.module:Class``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from ncfbench.catalog.infos import FAMILIES as FAMILIES
from ncfbench.catalog.infos import INFOS as INFOS
from ncfbench.catalog.infos import EncoderInfo as EncoderInfo
from ncfbench.catalog.infos import Info as Info
from ncfbench.catalog.infos import LossFamily as LossFamily
from ncfbench.catalog.infos import LossInfo as LossInfo
from ncfbench.catalog.infos import SamplerInfo as SamplerInfo
from ncfbench.catalog.infos import UserTowerInfo as UserTowerInfo
from ncfbench.catalog.models import BUILT_IN as BUILT_IN
from ncfbench.catalog.models import ENCODERS as ENCODERS
from ncfbench.catalog.models import LOSSES as LOSSES
from ncfbench.catalog.models import own_settings
from ncfbench.catalog.plugins import read_plugin
from ncfbench.catalog.samplers import BASELINES
from ncfbench.catalog.samplers import SAMPLERS as SAMPLERS
from ncfbench.catalog.shared import FLAGS as FLAGS
from ncfbench.catalog.shared import MAX_SEED as MAX_SEED
from ncfbench.catalog.shared import SETTINGS as SETTINGS
from ncfbench.catalog.shared import SharedSettings as SharedSettings
from ncfbench.errors import UsageError, nearest
from ncfbench.settings import Kind, Setting


def find(kind: Kind, name: str) -> Any:
    """Return the record (:class:`Info`) of a choice, built in or a plug-in.

    Raises:
        UsageError: the name is neither built in nor an import path, or the plug-in's record is
            wrong.
    """
    built_in = BUILT_IN[kind]
    if name in built_in:
        return built_in[name]
    has_plugins = INFOS[kind].has_plugins
    if has_plugins and ":" in name:
        return read_plugin(kind, name)
    more = ", or a plug-in as package.module:Class" * has_plugins
    raise UsageError(
        f"Unknown {kind.replace('_', ' ')} {name!r}{nearest(name, built_in)} Valid:"
        f" {', '.join(built_in)}{more}."
    )


find_sampler: Callable[[str], SamplerInfo] = partial(find, "sampler")
find_loss: Callable[[str], LossInfo] = partial(find, "loss")
find_encoder: Callable[[str], EncoderInfo] = partial(find, "encoder")
find_user_tower: Callable[[str], UserTowerInfo] = partial(find, "user_tower")


def infos_of(names: Mapping[Kind, str], strata: str) -> dict[Kind, Any]:
    """Return the records of a run's choices by kind, for strata by ``item`` or by ``user``."""
    infos = {kind: find(kind, name) for kind, name in names.items()}
    return infos | {"sampler": infos["sampler"].with_strata(strata)}


def settings_for(infos: Collection[Info]) -> dict[str, Setting]:
    """Return the settings that a run with these choices has, those of every run first."""
    settings = SETTINGS | {
        name: setting
        for name, setting in own_settings().items()
        if any(info.reads(name) for info in infos)
    }
    for info in infos:
        settings |= info.own
    return settings


def all_settings(choices: Mapping[Kind, Iterable[str]] | None = None) -> dict[str, Setting]:
    """Return the settings of every run, of all that is built in, and of some more choices."""
    settings = SETTINGS | own_settings()
    for kind, names in (choices or {}).items():
        for name in names:
            settings |= find(kind, name).own
    return settings


def baseline_sampler(loss: str) -> str:
    """Return the sampler against which the speedups of a loss are measured."""
    return BASELINES[find_loss(loss).family]


def losses_for(sampler: SamplerInfo) -> list[str]:
    """Return the built-in losses that a sampler serves."""
    return [name for name, loss in LOSSES.items() if serves(sampler, loss)]


def serves(sampler: SamplerInfo, loss: LossInfo) -> bool:
    """Return whether a sampler's batches have what a loss needs."""
    has_positive = sampler.shares_items or not loss.includes_positive
    return has_positive and loss.family in sampler.families
