"""Records of samplers, losses, encoders and user towers.

A record says what others must know of a class before it is built. Samplers and plug-ins carry it
as the class attribute ``info``; records of built-in classes that import JAX are in
:mod:`ncfbench.catalog.models`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, cast, get_args

from ncfbench.errors import UsageError, nearest, reason
from ncfbench.settings import Kind, Panel, Setting

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
    """Record of a class of any kind."""

    kind: ClassVar[Kind]
    has_plugins: ClassVar[bool] = True
    panel: ClassVar[Panel] = "Model"
    """Group of ``--help`` for settings of its own that name none."""
    base: ClassVar[tuple[str, str]] = ("flax", "Module")
    """Package and name of the base class of a plug-in, and in words:"""
    base_words: ClassVar[str] = "a flax.nnx.Module with a __call__ method"

    path: str = ""
    """``package.module:Class``; a plug-in's is filled in."""
    title: str = ""
    """Name in tables and figures; by default that of the plug-in's class."""
    uses: tuple[str, ...] | None = None
    """Settings that it reads, of those that not every run reads; None: all count in its runs'
    identity.
    """
    settings: tuple[Setting, ...] = ()
    """Settings of its own, which only runs with it have."""
    fault: Callable[[Mapping[str, Any]], str] | None = None
    """Returns what cannot work together among values of a run's settings, as a sentence; empty for
    none.
    """

    @cached_property
    def own(self) -> dict[str, Setting]:
        """``settings`` by name, each used by this kind of class and in a panel."""
        return {
            setting.name: replace(setting, used_by=self.kind, panel=setting.panel or self.panel)
            for setting in self.settings
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the settings that ``uses`` and ``settings`` have."""
        return (*(self.uses or ()), *self.own)

    def reads(self, name: str) -> bool:
        """Return whether its runs read a setting that not every run reads."""
        return self.uses is None or name in self.names

    def load(self) -> Any:
        """Import the class; modules of the current folder count as installed.

        Raises:
            UsageError: it cannot be imported, for whatever reason its own code gives.
        """
        module, _, attribute = self.path.partition(":")
        folder = str(Path.cwd())
        if not module.startswith("ncfbench.") and folder not in sys.path:
            sys.path.append(folder)
        try:
            contents = vars(importlib.import_module(module))
        except (Exception, SystemExit) as error:
            lacks = error.name if isinstance(error, ModuleNotFoundError) else None
            advice = "Run from the folder that holds the module, or install it."
            if lacks and not f"{module}.".startswith(f"{lacks}."):
                advice = f"It needs the package {lacks}, which is not installed."
            raise UsageError(
                f"Cannot import {self.path!r}: {type(error).__name__}: {reason(error)}. {advice}"
            ) from error
        if attribute not in contents:
            public = [name for name in contents if not name.startswith("_")]
            raise UsageError(f"Module {module!r} has no {attribute!r}{nearest(attribute, public)}")
        return contents[attribute]


@dataclass(frozen=True, kw_only=True)
class SamplerInfo(Info):
    """Record of a sampler, a subclass of :class:`ncfbench.sampling.Sampler`."""

    kind = "sampler"
    panel = "Sampler"
    base = ("ncfbench", "Sampler")
    base_words = "a subclass of ncfbench.sampling.Sampler"

    in_paper: bool = False
    """True if KDD 2017 has it."""
    families: tuple[LossFamily, ...] = ()
    """The families of losses that it serves."""
    shares_items: bool = False
    """True if a batch's items are negatives of all its links."""
    least_strata: int = 1
    """Strata, or links where it has no strata, that a batch needs."""
    symbols: tuple[str, ...] = NO_SYMBOLS
    """Row of the paper's cost table: negative links, t_f, t_g, t_i, and ``vectors`` or ``matrix``.
    """
    by_user: Mapping[str, Any] = field(default_factory=dict)
    """``families`` or ``symbols`` with strata by user, where others; see :meth:`with_strata`."""

    def with_strata(self, strata: str | None) -> SamplerInfo:
        """Return the record with strata by ``item`` or by ``user``; the title says the latter."""
        if strata != "user":
            return self
        usual = {"title": f"{self.title} (by user)", "symbols": NO_SYMBOLS}
        return replace(self, **{**usual, **self.by_user})


@dataclass(frozen=True, kw_only=True)
class LossInfo(Info):
    """Record of a loss, a subclass of a family of :mod:`ncfbench.models.losses`."""

    kind = "loss"
    panel = "Training"
    base = ("ncfbench", "Loss")
    base_words = "a subclass of Pointwise, Pairwise or Listwise of ncfbench.models.losses"

    family: LossFamily = UNSAID
    """A plug-in leaves it out: it is that of its base class."""
    learning_rate: float = 0.01
    """Default of the setting (KDD 2017, section 5.2)."""
    lambda_: float | None = None
    """Default weight of a pointwise loss's negative term; None for other families."""
    gamma: float | None = None
    """Default of the one parameter of a pairwise or listwise loss; None where it has none."""
    includes_positive: bool = False
    """True if the positive link's own item is among the weighted ones: for samplers that share."""
    bias: str = ""
    """Why the estimate of a batch is biased on purpose, in words."""

    def reads(self, name: str) -> bool:
        """See :meth:`Info.reads`; a loss reads those parameters for which it has a default."""
        parameters = {"gamma": self.gamma, "lambda": self.lambda_}
        return super().reads(name) if name not in parameters else parameters[name] is not None


@dataclass(frozen=True, kw_only=True)
class EncoderInfo(Info):
    """Record of an encoder, a module like those of :mod:`ncfbench.models.encoders`."""

    kind = "encoder"

    negatives: int = 10
    """Default of the setting k (KDD 2017, section 5.2)."""
    content: tuple[str, ...] = ("text",)
    """Content of items that the encoder reads: ``text``, ``features``, both or nothing."""
    scores_cold_items: bool = True
    """True if it embeds items without training links."""
    pretrained_parts: tuple[str, ...] = ()
    """Its modules whose weights are pretrained: they learn at ``pretrained_learning_rate``."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """Rows of its :class:`flax.nnx.Embed` tables, ``items`` or ``words``, by attribute: where an
    optimiser updates rows, a table holds a batch's, and items or tokens are rows of it.
    """
    is_costly: bool = False
    """True if a user waits for the vectors of all items: a run probes once an epoch by default, and
    announces how long that takes.
    """


@dataclass(frozen=True, kw_only=True)
class UserTowerInfo(Info):
    """Record of a user tower, a module like that of :mod:`ncfbench.models.user_towers`."""

    kind = "user_tower"
    has_plugins = False

    content: tuple[str, ...] = ()
    """Content that the tower reads beside the id: ``history``, the items of users' training links,
    or nothing.
    """
    tables: Mapping[str, str] = field(default_factory=dict)
    """Rows of its tables, ``users`` or ``histories`` (items that it indexes by those of histories),
    by attribute; see :attr:`EncoderInfo.tables`.
    """


INFOS: Mapping[Kind, type[Info]] = {info.kind: info for info in Info.__subclasses__()}
"""The type of record by kind of class."""
