"""TF-IDF vectors of texts, and dense features by latent semantic analysis."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ncfbench.data.features import Float32
from ncfbench.data.text import Texts
from ncfbench.errors import TooFewTextsError
from ncfbench.storage.free_space import require_memory

Float64: TypeAlias = NDArray[np.float64]
Ids: TypeAlias = NDArray[np.integer]


LANCZOS = 1.5
"""Lanczos vectors for each singular vector: CiteULike's 300 take two thirds of the time of SciPy's
default, 2, to the same seven digits.
"""
RANK = 1e-4
"""A singular value below this share of the largest is rounding in single precision."""


def tfidf(texts: Texts, n_words: int, counted: Ids) -> sparse.csr_array:
    """Return TF-IDF vectors of unit length, float32[texts, n_words]; zero for an empty text.

    A word that stands tf times in a text weighs (1 + log tf) times its :func:`idf` before the row
    is scaled (Salton and Buckley 1988).

    Args:
        counted: indices of the texts that decide idf: those of training items.
    """
    counts = _counts(texts, n_words)
    weights = (1 + np.log(counts.data)) * idf(counts, counted)[counts.indices]
    text = counts.tocoo().row
    weights /= np.sqrt(np.bincount(text, np.square(weights), len(texts)))[text]
    return sparse.csr_array(
        (weights.astype(np.float32), counts.indices, counts.indptr), counts.shape
    )


def lsa(texts: Texts, n_words: int, fitted: Ids, size: int) -> Float32:
    """Return the products of all TF-IDF vectors with the leading right singular vectors of some,
    float32[texts, size], by falling singular value (Deerwester et al. 1990).

    Lanczos iterations begin with ones, and each singular vector's largest element is made positive,
    so the same texts have the same features. A column is 0 where the singular value is rounding.

    Args:
        fitted: indices of the texts that are decomposed: those of training items.

    Raises:
        TooFewTextsError: the fitted texts, or the words, are not more than ``size``.
        UsageError: it takes more memory than there is.
    """
    if not n_words:
        raise TooFewTextsError(
            f"--lsa {size} makes features of texts, and the items have none. Leave it out, or name"
            " the items' texts."
        )
    n_bytes = 4 * (_lanczos(size) * min(len(texts), n_words) + 2 * size * (len(texts) + n_words))
    require_memory(f"{size:,} features by --lsa", n_bytes)
    content = tfidf(texts, n_words, fitted)
    chosen = content[fitted]
    smallest = min(chosen.shape)
    if size >= smallest or not chosen.nnz:
        raise TooFewTextsError(
            f"--lsa {size}: texts of {len(fitted):,} training items with {n_words:,} different"
            f" words have at most {max(smallest - 1, 0) * bool(chosen.nnz):,} such features."
        )
    from scipy.sparse.linalg import svds

    _, values, vectors = svds(
        chosen,
        size,
        ncv=_lanczos(size) if _lanczos(size) < smallest else None,
        v0=np.ones(smallest, np.float32),
        return_singular_vectors="vh",
    )
    order = np.argsort(-values, kind="stable")
    values, vectors = values[order], vectors[order]
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=1)[:, None], axis=1)
    vectors *= np.where(values > RANK * values[0], 1.0, 0.0)[:, None] * np.sign(largest)
    return np.asarray(content @ np.ascontiguousarray(vectors.T, np.float32), np.float32)


def _counts(texts: Texts, n_words: int) -> sparse.csr_array:
    """Return how often each text has each word, float64[texts, n_words]."""
    rows = np.repeat(np.arange(len(texts)), texts.lengths)
    once = np.ones(len(rows)), (rows, texts.words - 1)
    return sparse.csr_array(sparse.coo_array(once, (len(texts), n_words)))


def idf(counts: sparse.csr_array, counted: Ids) -> Float64:
    """Return log((1 + n) / (1 + df)) + 1 of each word, float64[n_words], where n texts are counted
    and df of them have the word (scikit-learn's smoothing).

    Args:
        counts: how often each text has each word, [texts, n_words].
        counted: indices of the texts that are counted: those of training items.
    """
    df = np.bincount(counts[counted].indices, minlength=counts.shape[1])
    return np.asarray(np.log((1 + len(counted)) / (1 + df)) + 1)


def _lanczos(size: int) -> int:
    return int(LANCZOS * size) + 20
