"""Every choice a user can name, with its family and where its code lives.

Entries hold import paths as strings and load lazily: listing, checking and refusing names never
imports JAX. What is not built in is a plug-in: an object named ``package.module:object``, or by a
name that an installed package registers under one of the entry-point groups of :data:`GROUPS`.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from ncfbench.errors import UsageError, reason

LossFamily = Literal["pointwise", "pairwise", "listwise"]
FAMILIES: tuple[LossFamily, ...] = get_args(LossFamily)
"""pointwise: a term for each link. pairwise: a term for a positive and a negative link of one user.
listwise: a term for a positive link and all its negatives. The last two need negative links of the
positive link's own user.
"""


@dataclass(frozen=True)
class Sampler:
    """A way of building mini-batches. ``uses_*`` say which of the settings k, s and k' change its
    batches.
    """

    path: str
    title: str
    summary: str
    families: tuple[LossFamily, ...]
    uses_negatives: bool
    uses_strata: bool
    uses_uniform_items: bool = False
    shares_items: bool = False
    """Whether a batch's items are negatives of all its links, or of all on one device (``--share
    local``).
    """
    families_by_user: tuple[LossFamily, ...] = ()
    """The losses it serves with strata by user, where those are others."""
    instead: str = "neg, ns or strat-ns"
    """What to use instead when a loss of another family is asked for."""
    in_paper: bool = True

    def families_with(self, strata: str) -> tuple[LossFamily, ...]:
        """The families of losses it serves, with strata by ``item`` or by ``user``."""
        return (self.families_by_user or self.families) if strata == "user" else self.families

    def title_with(self, strata: str | None) -> str:
        """The title, with strata by ``user`` marked."""
        return self.title + (" (by user)" if strata == "user" else "")

    @classmethod
    def of(cls, path: str, plugin: Any) -> Sampler:
        """The entry of a plug-in: a subclass of :class:`ncfbench.sampling.Sampler` with a
        ``families`` attribute.
        """
        families = _declared(path, plugin, "families", ("assemble", "draw", "batches"))
        if not isinstance(families, tuple) or not families or not set(families) <= set(FAMILIES):
            raise UsageError(
                f"Plug-in {path!r} declares families = {families!r}: it must be a tuple of"
                f" {', '.join(map(repr, FAMILIES))}."
            )
        return cls(
            path=path,
            title=_title(plugin),
            summary=_summary(plugin),
            families=families,
            uses_negatives=bool(
                getattr(plugin, "draws_users", False) or getattr(plugin, "draws_items", False)
            ),
            uses_strata=bool(getattr(plugin, "stratified", False)),
            in_paper=False,
        )


@dataclass(frozen=True)
class Loss:
    """A loss, its family, and the paper's settings for it (KDD 2017, section 5.2)."""

    path: str
    title: str
    summary: str
    family: LossFamily
    learning_rate: float
    lambda_: float | None = None
    gamma: float | None = None
    in_paper: bool = True

    @property
    def baseline_sampler(self) -> str:
        """What speedups are measured against: IID; Negative Sampling for the losses that IID cannot
        train.
        """
        return "iid" if self.family == "pointwise" else "neg"

    @classmethod
    def of(cls, path: str, plugin: Any) -> Loss:
        """The entry of a plug-in: a class with a ``family``, built without arguments, or with
        ``gamma`` where it has one.
        """
        family = _declared(path, plugin, "family", ())
        if family not in FAMILIES:
            raise UsageError(
                f"Plug-in {path!r} declares family = {family!r}. Valid: {', '.join(FAMILIES)}."
            )
        methods = {
            "pointwise": ("positive", "negative"),
            "pairwise": ("pair",),
            "listwise": ("row",),
        }[family]
        _declared(path, plugin, "family", methods)
        lambda_, gamma = (
            getattr(plugin, "default_lambda", None),
            getattr(plugin, "default_gamma", None),
        )
        return cls(
            path=path,
            title=_title(plugin),
            summary=_summary(plugin),
            family=family,
            learning_rate=float(getattr(plugin, "learning_rate", 0.01)),
            lambda_=float(lambda_ or 1.0) if family == "pointwise" else None,
            gamma=None if gamma is None or family == "pointwise" else float(gamma),
            in_paper=False,
        )


@dataclass(frozen=True)
class Encoder:
    """An item function g, and the paper's number of negatives k for it."""

    path: str
    title: str
    summary: str
    negatives: int
    scores_cold_items: bool = True

    @classmethod
    def of(cls, path: str, plugin: Any) -> Encoder:
        """The entry of a plug-in: a :class:`flax.nnx.Module` built like those of
        :mod:`ncfbench.encoders`.
        """
        _require_call(path, plugin, "an encoder")
        scores_cold_items = bool(getattr(plugin, "scores_cold_items", True))
        return cls(
            path,
            _title(plugin),
            _summary(plugin),
            int(getattr(plugin, "negatives", 10)),
            scores_cold_items,
        )


@dataclass(frozen=True)
class UserTower:
    """A user function f."""

    path: str
    title: str
    summary: str

    @classmethod
    def of(cls, path: str, plugin: Any) -> UserTower:
        """Describe a plug-in, built like those of :mod:`ncfbench.models.user_table`."""
        _require_call(path, plugin, "a user tower")
        return cls(path, _title(plugin), _summary(plugin))


@dataclass(frozen=True)
class Interaction:
    """A score r(u, v) of a user's and an item's vector."""

    path: str
    title: str
    summary: str

    @classmethod
    def of(cls, path: str, plugin: Any) -> Interaction:
        """Describe a plug-in: a subclass of :class:`ncfbench.models.interaction.Interaction`."""
        methods = ("pairs", "lists", "matrix")
        if not inspect.isclass(plugin) or not all(hasattr(plugin, name) for name in methods):
            raise UsageError(
                f"Plug-in {path!r} is not a subclass of ncfbench.models.interaction.Interaction."
            )
        return cls(path, _title(plugin), _summary(plugin))


SAMPLERS: Mapping[str, Sampler] = {
    "iid": Sampler(
        path="ncfbench.sampling.listed:IidSampler",
        title="IID",
        summary="positive and negative links drawn independently",
        families=("pointwise",),
        uses_negatives=True,
        uses_strata=False,
    ),
    "neg": Sampler(
        path="ncfbench.sampling.listed:NegativeSampler",
        title="Negative",
        summary="k negative items drawn for the user of each positive link",
        families=FAMILIES,
        uses_negatives=True,
        uses_strata=False,
    ),
    "strat": Sampler(
        path="ncfbench.sampling.listed:StratifiedSampler",
        title="Stratified",
        summary="s positive links an item; k negative users drawn for the item of each",
        families=("pointwise",),
        uses_negatives=True,
        uses_strata=True,
        families_by_user=FAMILIES,
        instead="strat-ns, ns or neg (or --strata user)",
    ),
    "ns": Sampler(
        path="ncfbench.sampling.shared:NegativeSharingSampler",
        title="N.S.",
        summary="the batch's other items are every user's negatives",
        families=FAMILIES,
        uses_negatives=False,
        uses_strata=False,
        shares_items=True,
    ),
    "strat-ns": Sampler(
        path="ncfbench.sampling.shared:StratifiedSharingSampler",
        title="Strat. w. N.S.",
        summary="s positive links an item, and the batch's other items are every user's negatives",
        families=FAMILIES,
        uses_negatives=False,
        uses_strata=True,
        shares_items=True,
    ),
    "mixed-ns": Sampler(
        path="ncfbench.sampling.shared:MixedSharingSampler",
        title="Mixed N.S.",
        summary="like ns, with k' items drawn uniformly added to the batch",
        families=FAMILIES,
        uses_negatives=False,
        uses_strata=False,
        uses_uniform_items=True,
        in_paper=False,
        shares_items=True,
    ),
}

LOSSES: Mapping[str, Loss] = {
    "sg": Loss(
        path="ncfbench.models.losses:SkipGram",
        title="SG",
        summary="skip-gram: -log sigmoid(score) for positives, -log sigmoid(-score) for negatives",
        family="pointwise",
        learning_rate=0.01,
        lambda_=128.0,
    ),
    "mse": Loss(
        path="ncfbench.models.losses:MeanSquaredError",
        title="MSE",
        summary="squared distance of the score to 1 (positives) or 0 (negatives)",
        family="pointwise",
        learning_rate=0.001,
        lambda_=8.0,
    ),
    "log": Loss(
        path="ncfbench.models.losses:LogLoss",
        title="Log",
        summary="-log sigmoid(gamma (positive score - negative score)), on unit vectors",
        family="pairwise",
        learning_rate=0.01,
        gamma=10.0,
    ),
    "hinge": Loss(
        path="ncfbench.models.losses:Hinge",
        title="Hinge",
        summary="max(negative score - positive score + gamma, 0), on unit vectors",
        family="pairwise",
        learning_rate=0.01,
        gamma=0.1,
    ),
    "softmax": Loss(
        path="ncfbench.models.losses:SampledSoftmax",
        title="Softmax",
        summary=(
            "-log of the positive item's share of exp(gamma score), with logQ correction, on unit"
            " vectors"
        ),
        family="listwise",
        learning_rate=0.01,
        gamma=10.0,
        in_paper=False,
    ),
}

ENCODERS: Mapping[str, Encoder] = {
    "mf": Encoder(
        path="ncfbench.models.encoders.mf:MatrixFactorization",
        title="MF",
        summary="a free vector for each item; cannot score cold items",
        negatives=10,
        scores_cold_items=False,
    ),
    "cnn": Encoder(
        path="ncfbench.models.encoders.cnn:Convolution",
        title="CNN",
        summary="word embeddings, convolution of width 3, maximum over time, dense",
        negatives=10,
    ),
    "lstm": Encoder(
        path="ncfbench.models.encoders.lstm:Lstm",
        title="LSTM",
        summary="word embeddings, LSTM over the words, dense",
        negatives=5,
    ),
}

USER_TOWERS: Mapping[str, UserTower] = {
    "table": UserTower(
        path="ncfbench.models.user_table:UserTable",
        title="Table",
        summary="a free vector for each user",
    ),
}

INTERACTIONS: Mapping[str, Interaction] = {
    "dot": Interaction(
        path="ncfbench.models.interaction:DotProduct",
        title="Dot product",
        summary="the dot product of both vectors",
    ),
}

Entry = TypeVar("Entry")
KINDS: Mapping[str, Any] = {
    "sampler": Sampler,
    "encoder": Encoder,
    "loss": Loss,
    "user tower": UserTower,
    "interaction": Interaction,
}
GROUPS = {
    "sampler": "ncfbench.samplers",
    "encoder": "ncfbench.encoders",
    "loss": "ncfbench.losses",
    "user tower": "ncfbench.user_towers",
    "interaction": "ncfbench.interactions",
}
"""Entry-point groups under which an installed package registers plug-ins."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the closest valid name, or a full stop."""
    close = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else "."


def find_sampler(name: str) -> Sampler:
    """The sampler called ``name``, built in or a plug-in; see :func:`plugin_path`."""
    return SAMPLERS[name] if name in SAMPLERS else _plugin("sampler", name, SAMPLERS)


def find_loss(name: str) -> Loss:
    """The loss called ``name``, built in or a plug-in; see :func:`plugin_path`."""
    return LOSSES[name] if name in LOSSES else _plugin("loss", name, LOSSES)


def find_encoder(name: str) -> Encoder:
    """The encoder called ``name``, built in or a plug-in; see :func:`plugin_path`."""
    return ENCODERS[name] if name in ENCODERS else _plugin("encoder", name, ENCODERS)


def find_user_tower(name: str) -> UserTower:
    """The user tower called ``name``, built in or a plug-in; see :func:`plugin_path`."""
    return USER_TOWERS[name] if name in USER_TOWERS else _plugin("user tower", name, USER_TOWERS)


def find_interaction(name: str) -> Interaction:
    """The interaction called ``name``, built in or a plug-in; see :func:`plugin_path`."""
    if name in INTERACTIONS:
        return INTERACTIONS[name]
    return _plugin("interaction", name, INTERACTIONS)


def registered(kind: str) -> dict[str, str]:
    """Names and import paths that installed packages register for a kind: sampler, encoder or
    loss.
    """
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=GROUPS[kind])}


def plugin_path(kind: str, name: str, built_in: Iterable[str]) -> str:
    """The ``package.module:object`` that a name which is not built in stands for.

    Raises:
        UsageError: it is neither such a path nor registered; the message lists the valid names and
            the nearest.
    """
    if ":" in name:
        return name
    points = registered(kind)
    if name in points:
        return points[name]
    valid = [*built_in, *points]
    raise UsageError(
        f"Unknown {kind} {name!r}{nearest(name, valid)} Valid: {', '.join(valid)}, or a plug-in as"
        " package.module:object."
    )


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
    if not hasattr(found, attribute):
        names = [key for key in vars(found) if not key.startswith("_")]
        raise UsageError(f"Module {module!r} has no {attribute!r}{nearest(attribute, names)}")
    return getattr(found, attribute)


@functools.cache
def _from_path(kind: str, path: str) -> Any:
    return KINDS[kind].of(path, load(path))


def _plugin(kind: str, name: str, built_in: Mapping[str, Entry]) -> Entry:
    entry: Entry = _from_path(kind, plugin_path(kind, name, built_in))
    return entry


def _declared(path: str, plugin: Any, attribute: str, methods: tuple[str, ...]) -> Any:
    """What a plug-in's class says in an attribute that it must have."""
    if not inspect.isclass(plugin):
        raise UsageError(f"Plug-in {path!r} is not a class.")
    missing = [name for name in (attribute, *methods) if not hasattr(plugin, name)]
    if missing:
        raise UsageError(
            f"Plug-in {path!r} has no {missing[0]!r}; the README's guide to plug-ins shows what it"
            " needs."
        )
    return getattr(plugin, attribute)


def _require_call(path: str, plugin: Any, what: str) -> None:
    """Refuse a plug-in that is no class with a ``__call__`` method of its own or its bases."""
    if not inspect.isclass(plugin) or not any("__call__" in vars(base) for base in plugin.__mro__):
        raise UsageError(
            f"Plug-in {path!r} is not a class with a __call__ method, as {what} must be."
        )


def _title(plugin: Any) -> str:
    return str(getattr(plugin, "title", plugin.__name__))


def _summary(plugin: Any) -> str:
    return str(getattr(plugin, "summary", "") or (inspect.getdoc(plugin) or "").partition("\n")[0])
