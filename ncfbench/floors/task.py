"""What a floor is fitted to, and which items it ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ncfbench.data.content import Split
from ncfbench.data.store import Dataset
from ncfbench.data.text import Texts

Float32: TypeAlias = NDArray[np.float32]
Features: TypeAlias = "sparse.csr_array | Float32"


@dataclass(frozen=True)
class Task:
    """Training links, the content of all items, and the items that are ranked for every user.

    Args:
        links_UxI: float32, 1 at every training link.
        candidates: int32[C], ids of the items that are ranked, ascending.
        features_IxF: float32, a row for each item; None where items have no content.
    """

    links_UxI: sparse.csr_array
    candidates: NDArray[np.int32]
    features_IxF: Features | None = None

    @classmethod
    def of(cls, dataset: Dataset, split: Split) -> Task:
        """Return the task of ranking the held-out items of a split."""
        users, items = dataset.links("train")
        ones = np.ones(len(users), np.float32)
        links = sparse.csr_array((ones, (users, items)), (dataset.n_users, dataset.n_items))
        return cls(links, dataset.items_of(split), content_features(dataset))

    @property
    def training_items(self) -> NDArray[np.int64]:
        """The items with a training link, ascending."""
        return np.unique(self.links_UxI.indices)


def content_features(dataset: Dataset) -> Features | None:
    """Return TF-IDF vectors of all items, or their dense features where there are no texts."""
    if len(dataset.vocabulary.words):
        return tfidf(dataset.texts, len(dataset.vocabulary.words))
    return dataset.item_features


def tfidf(texts: Texts, n_words: int) -> sparse.csr_array:
    """Return TF-IDF vectors of unit length, float32[texts, n_words]; zero for an empty text.

    A word that stands tf times in a text, and at least once in df of n texts, weighs
    (1 + log tf) (log((1 + n) / (1 + df)) + 1) before the row is scaled (Salton and Buckley 1988,
    with scikit-learn's smoothing). Held-out texts count in df: they are known before any link is.
    """
    n = len(texts)
    rows = np.repeat(np.arange(n), texts.lengths)
    ones = np.ones(len(rows))
    counts = sparse.csr_array(sparse.coo_array((ones, (rows, texts.words - 1)), (n, n_words)))
    df = np.bincount(counts.indices, minlength=n_words)
    idf = np.log((1 + n) / (1 + df)) + 1
    weights = (1 + np.log(counts.data)) * idf[counts.indices]
    squares = np.bincount(rows_of(counts), np.square(weights), n)
    weights /= np.sqrt(squares)[rows_of(counts)]
    return sparse.csr_array(
        (weights.astype(np.float32), counts.indices, counts.indptr), counts.shape
    )


def rows_of(matrix: sparse.csr_array) -> NDArray[np.int64]:
    """Return the row of each stored value."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
