"""What a user can choose, and every setting: plain records, from which help, checks, defaults,
identity and documentation are made.

What is not built in is a plug-in: a class named ``package.module:Class``, or by a name that an
installed package registers under one of the entry-point groups of :data:`GROUPS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ncfbench.catalog.infos import FAMILIES as FAMILIES
from ncfbench.catalog.infos import EncoderInfo as EncoderInfo
from ncfbench.catalog.infos import Info as Info
from ncfbench.catalog.infos import InteractionInfo as InteractionInfo
from ncfbench.catalog.infos import LossFamily as LossFamily
from ncfbench.catalog.infos import LossInfo as LossInfo
from ncfbench.catalog.infos import SamplerInfo as SamplerInfo
from ncfbench.catalog.infos import UserTowerInfo as UserTowerInfo
from ncfbench.catalog.models import BUILT_IN as BUILT_IN
from ncfbench.catalog.models import ENCODERS as ENCODERS
from ncfbench.catalog.models import INTERACTIONS as INTERACTIONS
from ncfbench.catalog.models import LOSSES as LOSSES
from ncfbench.catalog.models import own_settings
from ncfbench.catalog.plugins import read_plugin
from ncfbench.catalog.samplers import SAMPLERS as SAMPLERS
from ncfbench.catalog.shared import MAX_SEED as MAX_SEED
from ncfbench.catalog.shared import SETTINGS as SETTINGS
from ncfbench.catalog.shared import TUNABLE as TUNABLE
from ncfbench.catalog.shared import SharedSettings as SharedSettings
from ncfbench.errors import UsageError, nearest
from ncfbench.settings import Kind, Setting

GROUPS: Mapping[Kind, str] = {
    "sampler": "ncfbench.samplers",
    "loss": "ncfbench.losses",
    "encoder": "ncfbench.encoders",
    "user_tower": "ncfbench.user_towers",
    "interaction": "ncfbench.interactions",
}
"""Entry-point groups under which an installed package registers plug-ins."""
AnyInfo = TypeVar("AnyInfo", bound=Info)


def find(kind: Kind, name: str) -> Info:
    """Return the record of a choice, built in or a plug-in.

    Raises:
        UsageError: the name is unknown (see :func:`import_path`), or the plug-in's record is wrong.
    """
    built_in = BUILT_IN[kind]
    return built_in[name] if name in built_in else read_plugin(kind, import_path(kind, name))


def _finder(wanted: type[AnyInfo]) -> Callable[[str], AnyInfo]:
    """Return :func:`find` for the kind of one type of records."""

    def find_record(name: str) -> AnyInfo:
        info = find(wanted.kind, name)
        assert isinstance(info, wanted)
        return info

    return find_record


find_sampler = _finder(SamplerInfo)
find_loss = _finder(LossInfo)
find_encoder = _finder(EncoderInfo)
find_user_tower = _finder(UserTowerInfo)
find_interaction = _finder(InteractionInfo)


def settings_for(choices: Mapping[Kind, str]) -> dict[str, Setting]:
    """Return the settings that a run with these choices has, those of every run first.

    Raises:
        UsageError: a choice declares a setting whose name is taken.
    """
    declared: dict[str, Setting] = {}
    borrowed: dict[str, Setting] = {}
    for info in (find(kind, name) for kind, name in choices.items()):
        for name in info.own:
            if name in SETTINGS or name in declared:
                raise UsageError(
                    f"{info.path} declares a setting {name!r}, a name that is taken. Rename it."
                )
        declared |= info.own
        borrowed |= {name: each for name, each in own_settings().items() if info.reads(name)}
    return SETTINGS | borrowed | declared


def all_settings(choices: Mapping[Kind, Iterable[str]] | None = None) -> dict[str, Setting]:
    """Return the settings of every run, of all that is built in, and of some more choices."""
    more = [find(kind, name).own for kind, names in (choices or {}).items() for name in names]
    return SETTINGS | own_settings() | {name: own[name] for own in more for name in own}


def baseline_sampler(loss: str) -> str:
    """Return the sampler against which the speedups of a loss are measured."""
    family = find_loss(loss).family
    return next(name for name, info in SAMPLERS.items() if family in info.baseline_for)


def samplers_for(family: LossFamily) -> list[str]:
    """Return the built-in samplers that serve losses of a family."""
    return [name for name, info in SAMPLERS.items() if family in info.families]


def losses_for(sampler: SamplerInfo, strata: str = "item") -> list[str]:
    """Return the built-in losses that a sampler serves, with strata by ``item`` or by ``user``."""
    return [name for name, loss in LOSSES.items() if serves(sampler, loss, strata)]


def serves(sampler: SamplerInfo, loss: LossInfo, strata: str = "item") -> bool:
    """Return whether a sampler's batches have what a loss needs."""
    has_positive = sampler.shares_items or not loss.includes_positive
    return has_positive and loss.family in sampler.families_with(strata)


def registered(kind: Kind) -> dict[str, str]:
    """Return names and import paths of the plug-ins that installed packages register."""
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=GROUPS[kind])}


def import_path(kind: Kind, name: str) -> str:
    """Return the ``package.module:Class`` that a name stands for.

    Raises:
        UsageError: it is neither built in, nor such a path, nor registered; the message lists the
            valid names and the nearest.
    """
    built_in = BUILT_IN[kind]
    if name in built_in:
        return built_in[name].path
    if ":" in name:
        return name
    points = registered(kind)
    if name in points:
        return points[name]
    valid = [*built_in, *points]
    raise UsageError(
        f"Unknown {kind.replace('_', ' ')} {name!r}{nearest(name, valid)} Valid:"
        f" {', '.join(valid)}, or a plug-in as package.module:Class."
    )
