"""Declarations: what samplers, losses, encoders, user towers and interactions say about themselves,
as attributes of their classes.

A class declares what others must know of it before it is built: the settings it uses, the losses it
serves, its title. Built-in classes and plug-ins declare the same attributes in the same way: those
of :class:`Traits` and of its subclass for their kind. A plug-in is imported and asked. A built-in
class is read from its source, so that help, checks and reports import neither NumPy nor JAX for it:
its declarations are therefore literals.

``uses`` decides identity. A setting is no part of it where the class itself has a ``uses``, and
neither that nor the ``uses`` of a base class names the setting. Without a ``uses`` in the class
itself every setting counts: a base class cannot know what its subclass reads.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from ncfbench.errors import UsageError, nearest, reason
from ncfbench.settings import Kind, Setting

LossFamily = Literal["pointwise", "pairwise", "listwise"]
FAMILIES: tuple[LossFamily, ...] = get_args(LossFamily)
"""pointwise: a term for each link. pairwise: a term for a positive and a negative link of one user.
listwise: a term for a positive link and all its negatives. The last two need negative links of the
positive link's own user.
"""
NO_SYMBOLS = ("-",) * 5


def _own(default: Any) -> Any:
    """A declaration that a subclass does not inherit: it would say something untrue of it."""
    return field(default=default, metadata={"own": True})


def _added(default: Any) -> Any:
    """A declaration that adds to that of the base classes: they read their settings as before."""
    return field(default=default, metadata={"added": True})


@dataclass(frozen=True)
class Traits:
    """Declarations of every kind of class."""

    path: str
    """``package.module:Class``."""
    title: str = _own("")
    """Name in tables and figures; by default that of the class."""
    summary: str = _own("")
    """One line for ``ncfbench list``; by default the first line of the docstring."""
    in_paper: bool = _own(False)
    """True if KDD 2017 has it."""
    revision: int = _own(1)
    """Raised when the class computes something else with the same settings: its earlier runs are
    others then.
    """
    uses: tuple[str, ...] = _added(())
    """The settings that it reads, of those that not every run uses; others' own settings too."""
    settings: tuple[Setting, ...] = _added(())
    """Settings of its own, which only runs with it have."""
    declares_uses: bool = False
    """True if the class itself has ``uses``."""

    def counts(self, name: str) -> bool:
        """Return whether a shared setting is part of the identity of this class's runs."""
        return not self.declares_uses or name in self.uses

    def counts_with(self, name: str, strata: str) -> bool:
        """Return :meth:`counts`, with strata by ``item`` or by ``user``."""
        return self.counts(name)

    def load(self) -> Any:
        """Import the class."""
        return load(self.path)


@dataclass(frozen=True)
class SamplerTraits(Traits):
    """Declarations of a sampler, a subclass of :class:`ncfbench.sampling.Sampler`."""

    families: tuple[LossFamily, ...] = ()
    """The families of losses that it serves."""
    families_by_user: tuple[LossFamily, ...] = ()
    """The same with strata by user, where these are others."""
    uses_by_user: tuple[str, ...] = _added(())
    """Settings that it reads with strata by user only."""
    shares_items: bool = False
    """True if a batch's items are negatives of all its links, or of all on one device (``--share
    local``).
    """
    keeps_vectors: bool = False
    """True if the step remembers item vectors from one iteration to the next: on one device."""
    least_strata: int = 1
    """Strata, or links where it has no strata, that a batch needs."""
    symbols: tuple[str, ...] = _own(NO_SYMBOLS)
    """Row of the paper's cost table: negative links, t_f, t_g, t_i, and ``vectors``, ``matrix`` or
    ``all_users``.
    """
    symbols_by_user: tuple[str, ...] = _own(NO_SYMBOLS)
    """The row with strata by user."""
    baseline_for: tuple[LossFamily, ...] = _own(())
    """The families of losses for which speedups are measured against it."""
    races_unasked: bool = True
    """True if ``advise`` races it where no sampler is named."""
    drawn_off_paper_clock: bool = _own(False)
    """True if the authors' program made its draws before the timer started."""

    @property
    def uses_negatives(self) -> bool:
        """True if k negative links are drawn for each positive one."""
        return "negatives" in self.uses

    @property
    def uses_strata(self) -> bool:
        """True if positive links come in strata."""
        return "stratum_size" in self.uses

    @property
    def uses_uniform_items(self) -> bool:
        """True if items are drawn uniformly into each batch."""
        return "uniform_items" in self.uses

    def counts_with(self, name: str, strata: str) -> bool:
        """Return :meth:`counts`, with strata by ``item`` or by ``user``."""
        return self.counts(name) or (strata == "user" and name in self.uses_by_user)

    def families_with(self, strata: str) -> tuple[LossFamily, ...]:
        """Return the families of losses it serves, with strata by ``item`` or by ``user``."""
        return (self.families_by_user or self.families) if strata == "user" else self.families

    def symbols_with(self, strata: str | None) -> tuple[str, ...]:
        """Return its row of the cost table, with strata by ``item`` or by ``user``."""
        return self.symbols_by_user if strata == "user" else self.symbols

    def title_with(self, strata: str | None) -> str:
        """Return the title, with strata by ``user`` marked."""
        return self.title + (" (by user)" if strata == "user" else "")


@dataclass(frozen=True)
class LossTraits(Traits):
    """Declarations of a loss, a subclass of a family of :mod:`ncfbench.models.losses`."""

    family: LossFamily = "pointwise"
    """Declared by the base class of the family."""
    learning_rate: float = 0.01
    """Default of the setting (KDD 2017, section 5.2)."""
    default_lambda: float | None = None
    """Default weight of a pointwise loss's negative term; 1 where it declares none."""
    includes_positive: bool = False
    """True if a batch's estimate has the positive link's own item among the weighted ones: for
    samplers that share.
    """
    bias: str = ""
    """Why the estimate of a batch is biased on purpose, in words; see
    :attr:`ncfbench.sampling.Sampler.declared_bias`.
    """
    races_unasked: bool = True
    """True if ``advise`` tries it where no loss is named."""
    default_gamma: float | None = None
    """Default of the one parameter of another loss; None where it has none."""
    squares_negatives: bool = _own(False)
    """True if the loss of a negative link is the square of its score."""

    @property
    def lambda_(self) -> float | None:
        """Default of ``lambda``; None for losses without a weight."""
        return (self.default_lambda or 1.0) if self.family == "pointwise" else None

    @property
    def gamma(self) -> float | None:
        """Default of ``gamma``; None for losses without one."""
        return None if self.family == "pointwise" else self.default_gamma


@dataclass(frozen=True)
class EncoderTraits(Traits):
    """Declarations of an encoder, a :class:`flax.nnx.Module` like those of
    :mod:`ncfbench.models.encoders`.
    """

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


@dataclass(frozen=True)
class UserTowerTraits(Traits):
    """Declarations of a user tower, a :class:`flax.nnx.Module` like that of
    :mod:`ncfbench.models.user_table`.
    """

    content: tuple[str, ...] = ()
    """Content of users that the tower reads beside the id: ``features``, or nothing."""
    user_tables: tuple[str, ...] = ()
    """Its :class:`flax.nnx.Embed` tables by user id; see :attr:`EncoderTraits.item_tables`."""


@dataclass(frozen=True)
class InteractionTraits(Traits):
    """Declarations of an interaction, a subclass of
    :class:`ncfbench.models.interaction.Interaction`.
    """


TRAITS: Mapping[Kind, type[Traits]] = {
    "sampler": SamplerTraits,
    "loss": LossTraits,
    "encoder": EncoderTraits,
    "user_tower": UserTowerTraits,
    "interaction": InteractionTraits,
}
DECLARED = {each.name for traits in TRAITS.values() for each in dataclasses.fields(traits)}
METHODS: Mapping[Kind, tuple[str, ...]] = {
    "sampler": ("draw", "assemble", "batches"),
    "loss": ("rows",),
    "encoder": ("__call__",),
    "user_tower": ("__call__",),
    "interaction": ("pairs", "indexed", "lists", "matrix"),
}
BASES: Mapping[Kind, str] = {
    "sampler": "a subclass of ncfbench.sampling.Sampler",
    "loss": "a subclass of Pointwise, Pairwise or Listwise of ncfbench.models.losses",
    "encoder": "a flax.nnx.Module with a __call__ method",
    "user_tower": "a flax.nnx.Module with a __call__ method",
    "interaction": "a subclass of ncfbench.models.interaction.Interaction",
}


@functools.cache
def read(kind: Kind, path: str) -> Traits:
    """Return what the class at an import path declares.

    Raises:
        UsageError: it cannot be imported, or it is none of its kind.
    """
    traits = _read(kind, path)
    if not isinstance(traits, SamplerTraits):
        return traits
    served = {*traits.families, *traits.families_by_user}
    if not traits.families or not served <= set(FAMILIES):
        raise UsageError(
            f"Plug-in {path!r} declares families = {traits.families!r}: it must be a tuple of"
            f" {', '.join(map(repr, FAMILIES))}."
        )
    return traits


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
        found = importlib.import_module(module)
    except Exception as error:
        raise UsageError(
            f"Cannot import {path!r}: {type(error).__name__}: {reason(error)}. Run from the folder"
            " that holds the module, or install it."
        ) from error
    if attribute not in vars(found):
        names = [key for key in vars(found) if not key.startswith("_")]
        raise UsageError(f"Module {module!r} has no {attribute!r}{nearest(attribute, names)}")
    return vars(found)[attribute]


def _read(kind: Kind, path: str) -> Traits:
    fields = {each.name: each.metadata for each in dataclasses.fields(TRAITS[kind])}
    declared = _in_source(path) or _of_class(kind, path)
    values: dict[str, Any] = {
        "title": path.partition(":")[2],
        "summary": declared.docstring.partition("\n")[0],
    }
    for level, attributes in enumerate(declared.levels, 1):
        is_own = level == len(declared.levels)
        for name in attributes.keys() & fields.keys():
            if "added" in fields[name]:
                if not isinstance(attributes[name], tuple):
                    raise UsageError(f"Plug-in {path!r} declares {name}, which must be a tuple.")
                values[name] = values.get(name, ()) + attributes[name]
            elif is_own or "own" not in fields[name]:
                values[name] = attributes[name]
    settings = values.get("settings", ())
    if not all(isinstance(each, Setting) for each in settings):
        raise UsageError(
            f"Plug-in {path!r}: settings must be a tuple of ncfbench.settings.Setting."
        )
    values["settings"] = tuple({each.name: each for each in settings}.values())
    values |= {"path": path, "declares_uses": "uses" in declared.levels[-1]}
    return TRAITS[kind](**values)


@dataclass(frozen=True)
class _Declared:
    """Attributes of a class's bases and then of the class itself, and its docstring."""

    levels: list[Mapping[str, Any]]
    docstring: str


def _of_class(kind: Kind, path: str) -> _Declared:
    """Import a class and take its attributes."""
    found = load(path)
    if not inspect.isclass(found):
        raise UsageError(f"Plug-in {path!r} is not a class; {_a(kind)} is {BASES[kind]}.")
    levels = [vars(base) for base in reversed(found.__mro__)]
    for name in METHODS[kind]:
        if not any(name in level for level in levels):
            raise UsageError(f"Plug-in {path!r} has no {name!r}; {_a(kind)} is {BASES[kind]}.")
    return _Declared(list(levels), inspect.getdoc(found) or "")


def _a(kind: Kind) -> str:
    return f"{'an' if kind[0] in 'ei' else 'a'} {kind.replace('_', ' ')}"


@functools.cache
def _parsed(module: str) -> ast.Module:
    """Parse a module of this package; what is none is empty."""
    package, *parts = module.split(".")
    file = Path(__file__).parent.joinpath(*parts).with_suffix(".py")
    is_ours = package == "ncfbench" and file.is_file()
    return ast.parse(file.read_bytes() if is_ours else b"")


@functools.cache
def _in_source(path: str) -> _Declared | None:
    """Read a class of this package from its source, with its bases in this package."""
    module, _, name = path.partition(":")
    classes = {node.name: node for node in _parsed(module).body if isinstance(node, ast.ClassDef)}
    if name not in classes:
        return None
    origins = {
        alias.name: f"{node.module}:{alias.name}"
        for node in _parsed(module).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    } | {each: f"{module}:{each}" for each in classes}
    levels: list[Mapping[str, Any]] = []
    for base in reversed(classes[name].bases):
        found = _in_source(origins.get(base.id, "")) if isinstance(base, ast.Name) else None
        levels += found.levels if found else []
    own = {
        target.id: _literal(node.value)
        for node in classes[name].body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in DECLARED
    }
    return _Declared([*levels, own], inspect.cleandoc(ast.get_docstring(classes[name]) or ""))


def _literal(node: ast.expr) -> Any:
    """Evaluate a literal, in which ``Setting(...)`` and ``FAMILIES`` may stand too."""
    if isinstance(node, ast.Tuple):
        return tuple(map(_literal, node.elts))
    if isinstance(node, ast.Name) and node.id == "FAMILIES":
        return FAMILIES
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Setting":
        named = {word.arg: _literal(word.value) for word in node.keywords if word.arg}
        return Setting(*map(_literal, node.args), **named)
    return ast.literal_eval(node)
