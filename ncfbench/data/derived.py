"""Dense features that ``prepare`` derives from the items' texts, and the seconds that they took.

A data set's fingerprint covers their definition, not their bits, which rounding makes different on
another machine: the manifest has a checksum of each kind of its own.
"""

from __future__ import annotations

import hashlib
import pkgutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ncfbench.data.content import SPLITS, Content
from ncfbench.data.features import Float32, standardise
from ncfbench.data.options import USUAL_LSA, SourceOptions
from ncfbench.data.text import Texts
from ncfbench.errors import TooFewTextsError, UsageError

Embed: TypeAlias = Callable[[Path, Texts], tuple[Float32, float]]
"""Returns a checkpoint's vectors of texts; see :func:`ncfbench.models.embedding.embed_texts`."""
EMBED = "ncfbench.models.embedding:embed_texts"
"""Imported by this name where it is needed: JAX stands above data."""


def with_derived(
    content: Content,
    options: SourceOptions,
    pieces: Callable[[], Texts],
    embed: Embed | None,
    say: Callable[[str], None],
) -> tuple[Content, dict[str, Any]]:
    """Return content whose items have the features that options ask for behind their own,
    standardised as these are, and facts of each kind for the manifest: its number of columns,
    seconds, and SHA-256.

    Args:
        pieces: reads the source again, for the texts as word pieces of the checkpoint.
        embed: by default the one that :data:`EMBED` names, without a progress bar.
        say: receives a line of each kind.

    Raises:
        UsageError: they cannot be derived.
    """
    is_training = content.split == SPLITS.index("train")
    wanted: dict[str, Callable[[], Float32]] = {}
    if options.lsa:
        # It imports SciPy's solvers, which other data do without.
        from ncfbench.data.lsa import lsa

        shape = len(content.vocabulary), np.flatnonzero(is_training), options.lsa
        wanted["lsa"] = partial(lsa, content.texts, *shape)
    if (checkpoint := getattr(options, "embed", None)) is not None:
        if not content.vocabulary:
            raise UsageError(f"--embed {checkpoint} reads texts, and the items have none.")
        encode = embed or pkgutil.resolve_name(EMBED)
        wanted["embed"] = lambda: encode(checkpoint, pieces())[0]
    facts: dict[str, Any] = {}
    for name, derive in wanted.items():
        begin = time.perf_counter()
        try:
            columns, constant = standardise(derive(), is_training)
        except TooFewTextsError as error:
            if not type(options).lsa == options.lsa == USUAL_LSA:
                raise
            say(f"No features by LSA, which are made by default: {error}")
            continue
        seconds = time.perf_counter() - begin
        own = [] if content.item_features is None else [content.item_features]
        content = replace(content, item_features=np.concatenate([*own, columns], axis=1))
        facts[name] = {"columns": columns.shape[1], "seconds": seconds, "sha256": _sha256(columns)}
        more = f", {constant:,} of them 0 for all" if constant else ""
        say(f"--{name}: {columns.shape[1]:,} features of each item{more}, in {seconds:.1f} s.")
    return content, facts


def without_derived(content: Content, facts: Mapping[str, Any]) -> tuple[Content, bool]:
    """Return content as its source delivered it, and whether all that was derived is intact.

    Args:
        facts: those of :func:`with_derived`.
    """
    features = content.item_features
    for fact in reversed([*facts.values()]):
        if features is None or features.shape[1] < fact["columns"]:
            return content, False
        features, columns = np.split(features, [features.shape[1] - fact["columns"]], axis=1)
        if _sha256(columns) != fact["sha256"]:
            return content, False
    has_own = features is not None and features.shape[1] > 0
    return replace(content, item_features=features if has_own else None), True


def lsa_columns(n_columns: int, facts: Mapping[str, Any]) -> slice:
    """Return which of an item's features are those of LSA.

    Args:
        n_columns: of all features.
        facts: those of :func:`with_derived`.
    """
    columns = {name: fact["columns"] for name, fact in facts.items()}
    end = n_columns - columns.get("embed", 0)
    return slice(end - columns.get("lsa", 0), end)


def _sha256(columns: Float32) -> str:
    return hashlib.sha256(np.ascontiguousarray(columns, np.float32).data).hexdigest()
