"""Dense features of items: a row of numbers each, such as an image's embedding; and those that
``prepare`` derives from the items' texts, with the seconds that they took.

A data set's fingerprint covers the definition of derived features, not their bits, which rounding
makes different on another machine: the manifest has a checksum of each kind of its own.
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
from numpy.typing import NDArray

from ncfbench.data.content import SPLITS, Content
from ncfbench.data.options import MAX_FEATURES, USUAL_LSA, SourceOptions
from ncfbench.data.text import Texts
from ncfbench.errors import DataError, TooFewTextsError, UsageError, reason

Float32: TypeAlias = NDArray[np.float32]
Numbers: TypeAlias = NDArray[np.number]
ROWS_AT_ONCE = 2**14  # that are standardised at a time
Embed: TypeAlias = Callable[[Path, Texts], tuple[Float32, float]]
"""Returns a checkpoint's vectors of texts; see :func:`ncfbench.models.embedding.embed_texts`."""
EMBED = "ncfbench.models.embedding:embed_texts"
"""Imported by this name where it is needed: JAX stands above data."""


def read_features(path: Path, n_rows: int) -> Numbers:
    """Map a ``.npy`` file, number[rows, F], whose rows are those of the items' file.

    Raises:
        DataError: another number of rows, no feature, or a value that float32 cannot hold.
    """
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"Cannot read {path}: {reason(error)}. Is it a .npy file?") from error
    if values.ndim != 2 or values.dtype.kind not in "fiub":
        shape = " x ".join(f"{size:,}" for size in values.shape)
        raise DataError(
            f"{path} is an array of {values.dtype} of shape {shape}: features are numbers, a row"
            " for each item."
        )
    if not 1 <= (width := values.shape[1]) <= MAX_FEATURES:
        raise DataError(f"{path}: {width:,} features; 1 to {MAX_FEATURES:,} are supported.")
    if len(values) != n_rows:
        raise DataError(
            f"{path} has {len(values):,} rows, and --items {n_rows:,}: row i of one must belong to"
            " row i of the other."
        )
    with np.errstate(over="ignore"):
        fits = np.isfinite(values.astype(np.float32, copy=False)).all(axis=1)
    if not fits.all():
        raise DataError(
            f"{path}, row {np.argmin(fits) + 1}: a value is not a finite number, or too large for"
            " float32 (3.4e38). Correct it, or scale its column down."
        )
    found: Numbers = values
    return found


def standardise(features: Numbers, fitted: NDArray[np.bool_]) -> tuple[Float32, int]:
    """Give every column a mean of 0 and a variance of 1 over some rows, by float64.

    A column that is constant over these rows, but for rounding, becomes 0. A number of the other
    rows that is too far away from the mean for float32 becomes infinite.

    Args:
        features: number[n, F], finite.
        fitted: bool[n], the rows that means and variances are taken over; at least one.

    Returns:
        float32[n, F], and the number of constant columns.
    """
    is_single = features.dtype in (np.float32, np.float16)
    # Sums of differences from a row are exact where a column is constant.
    origin = 0.0 if is_single else features[np.argmax(fitted)].astype(np.float64)
    mean = origin + np.mean(features[fitted] - origin, axis=0, dtype=np.float64)
    squares = np.zeros_like(mean)
    rows = np.flatnonzero(fitted)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        squares += np.sum(np.square(features[rows[start : start + ROWS_AT_ONCE]] - mean), axis=0)
    deviation = np.sqrt(squares / len(rows))
    # A deviation below the distance of two neighbouring numbers is rounding.
    rounding = float(np.finfo(str(features.dtype)).eps) if is_single else 1e-14
    is_constant = deviation <= rounding * np.abs(mean)
    factor = np.where(is_constant, 0.0, 1 / np.where(is_constant, 1.0, deviation))
    found = np.empty(features.shape, np.float32)
    for start in range(0, len(features), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        with np.errstate(over="ignore"):
            found[part] = (features[part] - mean) * factor
    return found, int(is_constant.sum())


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
