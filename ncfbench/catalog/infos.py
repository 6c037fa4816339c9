"""Records of samplers, losses, encoders, user towers and interactions.

A record says what others must know of a class before it is imported. Built-in classes have theirs
in :mod:`ncfbench.catalog`; a plug-in carries its own as the class attribute ``info``.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, cast, get_args

from ncfbench.errors import UsageError, nearest, reason
from ncfbench.settings import Kind, Setting

LossFamily = Literal["pointwise", "pairwise", "listwise"]
FAMILIES: tuple[LossFamily, ...] = get_args(LossFamily)
"""pointwise: a term for each link. pairwise: a term for a positive and a negative link of one user.
listwise: a term for a positive link and all its negatives. The last two need negative links of the
positive link's own user.
"""
UNSAID = cast(LossFamily, "")
NO_SYMBOLS = ("-",) * 5


@dataclass(frozen=True, kw_only=True)
class Info:
    """What the record of any class says.

    ``uses`` and ``settings`` decide a run's identity: a setting that neither names is no part of
    it. With ``uses = None`` every setting counts.
    """

    kind: ClassVar[Kind]
    path: str = ""
    """``package.module:Class``; a plug-in's is filled in."""
    title: str = ""
    """Name in tables and figures; by default that of the plug-in's class."""
    summary: str = ""
    """One line for ``ncfbench list``; by default the first line of the plug-in's docstring."""
    in_paper: bool = False
    """True if KDD 2017 has it."""
    revision: int = 1
    """Raised when the class computes something else with the same settings: its earlier runs are
    others then.
    """
    uses: tuple[str, ...] | None = None
    """Names of the settings that it reads, of those that not every run uses; others' own too."""
    settings: tuple[Setting, ...] = ()
    """Settings of its own, which only runs with it have."""

    def reads(self, name: str, strata: str = "item") -> bool:
        """Return whether a setting of which not every run reads is read by this class's runs.

        Args:
            strata: ``item`` or ``user``: a sampler may read more with strata by user.
        """
        return self.uses is None or name in self.names

    @cached_property
    def own(self) -> dict[str, Setting]:
        """``settings`` by name, each of them used by this kind of class."""
        return {each.name: replace(each, used_by=self.kind) for each in self.settings}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the settings that ``uses`` and ``settings`` have."""
        return (*(self.uses or ()), *self.own)

    def load(self) -> Any:
        """Import the class."""
        return load(self.path)


@dataclass(frozen=True, kw_only=True)
class SamplerInfo(Info):
    """Record of a sampler, a subclass of :class:`ncfbench.sampling.Sampler`."""

    kind = "sampler"
    families: tuple[LossFamily, ...] = ()
    """The families of losses that it serves."""
    families_by_user: tuple[LossFamily, ...] = ()
    """The same with strata by user, where these are others."""
    uses_by_user: tuple[str, ...] = ()
    """Settings that it reads with strata by user only."""
    shares_items: bool = False
    """True if a batch's items are negatives of all its links, or of all on one device (``--share
    local``).
    """
    keeps_vectors: bool = False
    """True if the step remembers item vectors from one iteration to the next: on one device."""
    least_strata: int = 1
    """Strata, or links where it has no strata, that a batch needs."""
    symbols: tuple[str, ...] = NO_SYMBOLS
    """Row of the paper's cost table: negative links, t_f, t_g, t_i, and ``vectors``, ``matrix`` or
    ``all_users``.
    """
    symbols_by_user: tuple[str, ...] = NO_SYMBOLS
    """The row with strata by user."""
    baseline_for: tuple[LossFamily, ...] = ()
    """The families of losses for which speedups are measured against it."""
    in_default_race: bool = True
    """True if ``advise`` races it where no sampler is named."""
    drawn_off_paper_clock: bool = False
    """True if the authors' program made its draws before the timer started."""

    def reads(self, name: str, strata: str = "item") -> bool:
        """See :meth:`Info.reads`."""
        return super().reads(name) or (strata == "user" and name in self.uses_by_user)

    def families_with(self, strata: str) -> tuple[LossFamily, ...]:
        """Return the families of losses it serves, with strata by ``item`` or by ``user``."""
        return (self.families_by_user or self.families) if strata == "user" else self.families

    def symbols_with(self, strata: str | None) -> tuple[str, ...]:
        """Return its row of the cost table, with strata by ``item`` or by ``user``."""
        return self.symbols_by_user if strata == "user" else self.symbols

    def title_with(self, strata: str | None) -> str:
        """Return the title, with strata by ``user`` marked."""
        return self.title + (" (by user)" if strata == "user" else "")


@dataclass(frozen=True, kw_only=True)
class LossInfo(Info):
    """Record of a loss, a subclass of a family of :mod:`ncfbench.models.losses`."""

    kind = "loss"
    family: LossFamily = UNSAID
    """A plug-in leaves it out: it is that of its base class."""
    learning_rate: float = 0.01
    """Default of the setting (KDD 2017, section 5.2)."""
    lambda_: float | None = None
    """Default weight of a pointwise loss's negative term; None for other families."""
    gamma: float | None = None
    """Default of the one parameter of a pairwise or listwise loss; None where it has none."""
    includes_positive: bool = False
    """True if a batch's estimate has the positive link's own item among the weighted ones: for
    samplers that share.
    """
    bias: str = ""
    """Why the estimate of a batch is biased on purpose, in words."""
    in_default_race: bool = True
    """True if ``advise`` tries it where no loss is named."""


@dataclass(frozen=True, kw_only=True)
class EncoderInfo(Info):
    """Record of an encoder, a :class:`flax.nnx.Module` like those of
    :mod:`ncfbench.models.encoders`.
    """

    kind = "encoder"
    negatives: int = 10
    """Default of the setting k (KDD 2017, section 5.2)."""
    content: tuple[str, ...] = ("text",)
    """Content of items that the encoder reads: ``text``, ``features``, both or nothing."""
    scores_cold_items: bool = True
    """True if it embeds items without training links."""
    pretrained_parts: tuple[str, ...] = ()
    """Its modules whose weights are pretrained: they learn at ``pretrained_learning_rate``."""
    item_tables: tuple[str, ...] = ()
    """Its :class:`flax.nnx.Embed` tables by item id. Where tables are spread over devices, only the
    rows of a batch's items are fetched from these.
    """
    is_costly: bool = False
    """True if a user waits for the vectors of all items: a run probes once an epoch by default, and
    says how long probes and evaluations take.
    """


@dataclass(frozen=True, kw_only=True)
class UserTowerInfo(Info):
    """Record of a user tower, a :class:`flax.nnx.Module` like that of
    :mod:`ncfbench.models.user_table`.
    """

    kind = "user_tower"
    content: tuple[str, ...] = ()
    """Content of users that the tower reads beside the id: ``features``, or nothing."""
    user_tables: tuple[str, ...] = ()
    """Its :class:`flax.nnx.Embed` tables by user id; see :attr:`EncoderInfo.item_tables`."""


@dataclass(frozen=True, kw_only=True)
class InteractionInfo(Info):
    """Record of an interaction, a subclass of :class:`ncfbench.models.interaction.Interaction`."""

    kind = "interaction"


def load(path: str) -> Any:
    """Import ``package.module:object``; modules of the current folder count as installed.

    Raises:
        UsageError: it cannot be imported, for whatever reason its own code gives.
    """
    module, _, attribute = path.partition(":")
    folder = str(Path.cwd())
    if not module.startswith("ncfbench.") and folder not in sys.path:
        sys.path.append(folder)
    try:
        found = vars(importlib.import_module(module))
    except Exception as error:
        raise UsageError(
            f"Cannot import {path!r}: {type(error).__name__}: {reason(error)}. Run from the folder"
            " that holds the module, or install it."
        ) from error
    if attribute not in found:
        names = [key for key in found if not key.startswith("_")]
        raise UsageError(f"Module {module!r} has no {attribute!r}{nearest(attribute, names)}")
    return found[attribute]
