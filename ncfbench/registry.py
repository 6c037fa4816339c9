"""Every choice a user can name, with its family and where its code lives.

Entries hold import paths as strings and load lazily: listing, checking and refusing names never imports JAX.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from ncfbench.errors import UsageError

LossFamily = Literal["pointwise", "pairwise"]


@dataclass(frozen=True)
class Sampler:
    """A way of building mini-batches. ``uses_*`` say which of k and s change its batches."""

    path: str
    title: str
    summary: str
    families: tuple[LossFamily, ...]
    uses_negatives: bool
    uses_strata: bool
    instead: str = ""
    """What to use instead when a loss of the other family is asked for."""


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


@dataclass(frozen=True)
class Encoder:
    """An item function g, and the paper's number of negatives k for it."""

    path: str
    title: str
    summary: str
    negatives: int
    scores_cold_items: bool = True


SAMPLERS: Mapping[str, Sampler] = {
    "iid": Sampler(
        path="ncfbench.samplers.listed:IidSampler",
        title="IID",
        summary="positive and negative links drawn independently",
        families=("pointwise",),
        uses_negatives=True,
        uses_strata=False,
        instead="neg, ns or strat-ns",
    ),
    "neg": Sampler(
        path="ncfbench.samplers.listed:NegativeSampler",
        title="Negative",
        summary="k negative items drawn for the user of each positive link",
        families=("pointwise", "pairwise"),
        uses_negatives=True,
        uses_strata=False,
    ),
    "strat": Sampler(
        path="ncfbench.samplers.listed:StratifiedSampler",
        title="Stratified",
        summary="s positive links an item; k negative users drawn for the item of each",
        families=("pointwise",),
        uses_negatives=True,
        uses_strata=True,
        instead="strat-ns, ns or neg",
    ),
    "ns": Sampler(
        path="ncfbench.samplers.shared:NegativeSharingSampler",
        title="N.S.",
        summary="the batch's other items are every user's negatives",
        families=("pointwise", "pairwise"),
        uses_negatives=False,
        uses_strata=False,
    ),
    "strat-ns": Sampler(
        path="ncfbench.samplers.shared:StratifiedSharingSampler",
        title="Strat. w. N.S.",
        summary="s positive links an item, and the batch's other items are every user's negatives",
        families=("pointwise", "pairwise"),
        uses_negatives=False,
        uses_strata=True,
    ),
}

LOSSES: Mapping[str, Loss] = {
    "sg": Loss(
        path="ncfbench.losses:SkipGram",
        title="SG",
        summary="skip-gram: -log sigmoid(score) for positives, -log sigmoid(-score) for negatives",
        family="pointwise",
        learning_rate=0.01,
        lambda_=128.0,
    ),
    "mse": Loss(
        path="ncfbench.losses:MeanSquaredError",
        title="MSE",
        summary="squared distance of the score to 1 (positives) or 0 (negatives)",
        family="pointwise",
        learning_rate=0.001,
        lambda_=8.0,
    ),
    "log": Loss(
        path="ncfbench.losses:LogLoss",
        title="Log",
        summary="-log sigmoid(gamma (positive score - negative score)), on unit vectors",
        family="pairwise",
        learning_rate=0.01,
        gamma=10.0,
    ),
    "hinge": Loss(
        path="ncfbench.losses:Hinge",
        title="Hinge",
        summary="max(negative score - positive score + gamma, 0), on unit vectors",
        family="pairwise",
        learning_rate=0.01,
        gamma=0.1,
    ),
}

ENCODERS: Mapping[str, Encoder] = {
    "mf": Encoder(
        path="ncfbench.encoders.mf:MatrixFactorization",
        title="MF",
        summary="a free vector for each item; cannot score cold items",
        negatives=10,
        scores_cold_items=False,
    ),
    "cnn": Encoder(
        path="ncfbench.encoders.cnn:Convolution",
        title="CNN",
        summary="word embeddings, convolution of width 3, maximum over time, dense",
        negatives=10,
    ),
    "lstm": Encoder(
        path="ncfbench.encoders.lstm:Lstm",
        title="LSTM",
        summary="word embeddings, LSTM over the words, dense",
        negatives=5,
    ),
}

Entry = TypeVar("Entry")


def nearest(name: str, valid: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the closest valid name, or a full stop."""
    close = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else "."


def lookup(kind: str, entries: Mapping[str, Entry], name: str) -> Entry:
    """The entry called ``name``.

    Raises:
        UsageError: it is unknown; the message lists the valid names and the nearest.
    """
    if name not in entries:
        raise UsageError(f"Unknown {kind} {name!r}{nearest(name, entries)} Valid: {', '.join(entries)}.")
    return entries[name]


def load(path: str) -> Any:
    """Import ``package.module:object``."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)
