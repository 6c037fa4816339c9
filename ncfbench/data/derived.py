"""Dense features that ``prepare`` derives from the items' texts, and the seconds that they took.

A data set's fingerprint covers their definition, not their bits, which rounding makes different on
another machine: the manifest has a checksum of each kind of its own.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ncfbench.data.content import SPLITS, Content
from ncfbench.data.features import Float32, standardise
from ncfbench.data.options import SourceOptions
from ncfbench.errors import UsageError
from ncfbench.storage.free_space import require_memory


@dataclass(frozen=True)
class Derived:
    """Features of all items.

    Attributes:
        values: float32[n_items, F].
        seconds: that they took.
    """

    values: Float32
    seconds: float


Derive = Callable[[Content], Derived]
"""Derives features from a data set's content."""


def derivations(options: SourceOptions) -> dict[str, Derive]:
    """Return the features that options ask for, by the option's name."""
    size = options.lsa
    return {} if size is None else {"lsa": lambda content: _lsa(content, size)}


def with_derived(
    content: Content, wanted: Mapping[str, Derive], say: Callable[[str], None]
) -> tuple[Content, dict[str, Any]]:
    """Return content whose items have derived features behind their own, standardised as these are,
    and facts of each kind for the manifest: its number of columns, seconds, and SHA-256.

    Raises:
        UsageError: they cannot be derived.
    """
    facts: dict[str, Any] = {}
    for name, derive in wanted.items():
        derived, begin = derive(content), time.perf_counter()
        is_training = content.split == SPLITS.index("train")
        columns, constant = standardise(derived.values, is_training)
        own = [] if content.item_features is None else [content.item_features]
        content = replace(content, item_features=np.concatenate([*own, columns], axis=1))
        seconds = derived.seconds + time.perf_counter() - begin
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


def derived_seconds(manifest: Mapping[str, Any]) -> float:
    """Return the seconds that all derived features of a data set took; 0 where there are none."""
    return float(sum(fact["seconds"] for fact in manifest.get("derived_features", {}).values()))


def _lsa(content: Content, size: int) -> Derived:
    n_words, n_items = len(content.vocabulary.words), len(content.texts)
    if not n_words:
        raise UsageError(
            f"--lsa {size} makes features of texts, and the items have none. Leave it out, or name"
            " the items' texts."
        )
    # It imports SciPy's solvers, which other data do without.
    from ncfbench.data.lsa import lsa, lsa_bytes

    require_memory(f"{size:,} features by --lsa", lsa_bytes(n_items, n_words, size))
    begin = time.perf_counter()
    training = np.flatnonzero(content.split == SPLITS.index("train"))
    return Derived(lsa(content.texts, n_words, training, size), time.perf_counter() - begin)


def _sha256(columns: Float32) -> str:
    return hashlib.sha256(np.ascontiguousarray(columns, np.float32).data).hexdigest()
