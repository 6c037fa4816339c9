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
from ncfbench.storage.free_space import require_memory

Derived: TypeAlias = tuple[Float32, float]
"""Features of all items, float32[n_items, F], and the seconds that they took."""
Embed: TypeAlias = Callable[[Path, Texts], Derived]
"""Returns a checkpoint's vectors of texts; see :func:`ncfbench.models.embedding.embed_texts`."""
EMBED = "ncfbench.models.embedding:embed_texts"
"""Imported by this name where it is needed: JAX stands above data."""


def with_derived(
    content: Content,
    options: SourceOptions,
    pieces: Callable[[], Content],
    embed: Embed | None,
    say: Callable[[str], None],
) -> tuple[Content, dict[str, Any]]:
    """Return content whose items have the features that options ask for behind their own,
    standardised as these are, and facts of each kind for the manifest: its number of columns,
    seconds, and SHA-256.

    Args:
        pieces: reads the source again, with the word pieces of the checkpoint as its texts.
        embed: by default the one that :data:`EMBED` names, without a progress bar.
        say: receives a line of each kind.

    Raises:
        UsageError: they cannot be derived.
    """
    wanted: dict[str, Callable[[], Derived]] = {}
    if options.lsa:
        wanted["lsa"] = partial(_lsa, content, options.lsa)
    if (checkpoint := getattr(options, "embed", None)) is not None:
        encode = embed or pkgutil.resolve_name(EMBED)
        wanted["embed"] = partial(_embedded, content, pieces, checkpoint, encode)
    facts: dict[str, Any] = {}
    for name, derive in wanted.items():
        try:
            (values, seconds), begin = derive(), time.perf_counter()
        except TooFewTextsError as error:
            if not type(options).lsa == options.lsa == USUAL_LSA:
                raise
            say(f"No features by LSA, which are made by default: {error}")
            continue
        is_training = content.split == SPLITS.index("train")
        columns, constant = standardise(values, is_training)
        own = [] if content.item_features is None else [content.item_features]
        content = replace(content, item_features=np.concatenate([*own, columns], axis=1))
        seconds += time.perf_counter() - begin
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


def _lsa(content: Content, size: int) -> Derived:
    n_words, n_items = len(content.vocabulary.words), len(content.texts)
    if not n_words:
        raise TooFewTextsError(
            f"--lsa {size} makes features of texts, and the items have none. Leave it out, or name"
            " the items' texts."
        )
    # It imports SciPy's solvers, which other data do without.
    from ncfbench.data.lsa import lsa, lsa_bytes

    require_memory(f"{size:,} features by --lsa", lsa_bytes(n_items, n_words, size))
    begin = time.perf_counter()
    training = np.flatnonzero(content.split == SPLITS.index("train"))
    return lsa(content.texts, n_words, training, size), time.perf_counter() - begin


def _embedded(
    content: Content,
    pieces: Callable[[], Content],
    checkpoint: Path,
    embed: Embed,
) -> Derived:
    if not content.vocabulary.words:
        raise UsageError(f"--embed {checkpoint} reads texts, and the items have none.")
    begin = time.perf_counter()
    texts = pieces().texts
    read = time.perf_counter() - begin
    values, seconds = embed(checkpoint, texts)
    return values, read + seconds


def _sha256(columns: Float32) -> str:
    return hashlib.sha256(np.ascontiguousarray(columns, np.float32).data).hexdigest()
