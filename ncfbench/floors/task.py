"""Training links and content, to which floors are fitted, and the held-out links that they rank."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ncfbench.data.content import MOST_RANKED_USERS, Split
from ncfbench.data.features import Float32, lsa_columns
from ncfbench.data.hold_out import SEED, draw_users
from ncfbench.data.lsa import Ids, tfidf
from ncfbench.data.store import Dataset
from ncfbench.rng import Streams
from ncfbench.runs.quality import Evaluation, Ranking
from ncfbench.runs.ranks import Ranks, Scores, by_user, rank_links
from ncfbench.storage.schemas import EVALUATED, OF_USERS

Features: TypeAlias = "sparse.csr_array | Float32"
BLOCK_SCORES = 2**24
"""Scores of a block of users, 64 MB."""
APART = 0.1
"""Share of the training items, or links, on which a penalty is chosen without validation."""


@dataclass(frozen=True)
class Task:
    """Training links and content of all items.

    Args:
        links_UxI: float32, 1 at every training link.
        content_IxF: float32, a row for each item; None where items have no content.
        leaves_out_known: whether a user's training items are no candidates for him.
    """

    links_UxI: sparse.csr_array
    content_IxF: Features | None = None
    leaves_out_known: bool = False

    @classmethod
    def of(cls, dataset: Dataset, content: Features | None = None) -> Task:
        """Return the task of a data set."""
        graph = dataset.graph  # whose links are in order already
        rows = graph.link_item, graph.user_offsets.astype(np.int32)
        ones = np.ones(graph.n_links, np.float32)
        links = sparse.csr_array((ones, *rows), (dataset.n_users, dataset.n_items))
        return cls(links, content, dataset.ranks_known_items)

    @cached_property
    def known(self) -> Ids:
        """The K items with a training link, ascending."""
        return np.flatnonzero(self.item_degrees)

    @cached_property
    def known_UxK(self) -> sparse.csr_array:  # noqa: N802 - a name with its shape
        """The training links, without the columns of items that have none."""
        return self.links_UxI[:, self.known]

    @cached_property
    def item_degrees(self) -> NDArray[np.int64]:
        """Training links of each item."""
        return np.bincount(self.links_UxI.indices, minlength=self.links_UxI.shape[1])

    @property
    def content(self) -> Features:
        """The items' content."""
        assert self.content_IxF is not None, "the items of this task have content"
        return self.content_IxF

    @cached_property
    def first_alike(self) -> Ids:
        """The first item of the same content as each item."""
        content = sparse.csr_array(self.content)
        rows = [
            content.indices[first:last].tobytes() + content.data[first:last].tobytes()
            for first, last in itertools.pairwise(content.indptr.tolist())
        ]
        first_of: dict[bytes, int] = {}
        return np.array([first_of.setdefault(row, item) for item, row in enumerate(rows)])

    def apart(self) -> tuple[Task, HeldOut]:
        """Return the task without a tenth of its items with all their links or, where links are
        held out, a tenth of the links of each user; and what was taken from it.
        """
        rng = Streams(0).generator("floors")
        shape = self.links_UxI.shape
        users, items = self.links_UxI.tocoo().coords
        if self.leaves_out_known:
            candidates = np.arange(shape[1])
            is_apart = rng.random(len(items)) < APART
            stay = np.bincount(users[~is_apart], minlength=shape[0])
            is_apart &= stay[users] > 0
        else:
            n_items = max(round(APART * len(self.known)), 1)
            candidates = np.sort(rng.choice(self.known, n_items, replace=False))
            is_apart = np.isin(items, candidates)
        ends = users[~is_apart], items[~is_apart]
        links = sparse.csr_array((np.ones(len(ends[0]), np.float32), ends), shape)
        reduced = replace(self, links_UxI=links)
        return reduced, HeldOut(reduced, users[is_apart], items[is_apart], candidates)


class HeldOut:
    """Held-out links, and the items among which they are ranked.

    Args:
        task: the training links.
        users, items: the ends of each held-out link.
        candidates: int32[C], ids of the items that are ranked, ascending.

    Attributes:
        left_out: returns the indices that are no candidates of a user; None where all are.
        n_users: number of users with a held-out link.
    """

    @classmethod
    def of(cls, task: Task, dataset: Dataset) -> dict[str, HeldOut]:
        """Return those of each split of a data set that has any; of more users than
        :data:`ncfbench.data.content.MOST_RANKED_USERS` those of a sample.
        """
        splits: dict[str, HeldOut] = {}
        for split in EVALUATED:
            users, items = dataset.links(split)
            linked = np.unique(users)
            drawn = linked[draw_users(len(linked), MOST_RANKED_USERS, SEED)]
            if len(linked):
                of_drawn = np.isin(users, drawn)
                ends = users[of_drawn], items[of_drawn]
                splits[split] = cls(task, *ends, dataset.candidates(split))
        return splits

    def __init__(self, task: Task, users: Ids, items: Ids, candidates: Ids) -> None:
        order = np.lexsort((items, users))
        self.candidates, self._users = candidates, users[order]
        self._index = np.searchsorted(candidates, items[order])
        links, more = task.links_UxI, {}
        self.left_out: Callable[[int], Ids] | None = None
        if task.leaves_out_known:  # of all items, each at the index that is its id
            self.left_out = by_user(links.indptr, links.indices)
            more = {"n_excluded": np.diff(links.indptr), "is_new": task.item_degrees == 0}
        self.n_users, degrees = len(np.unique(users)), np.diff(links.indptr)
        self.ranking = Ranking(self._users, self._index, len(candidates), degrees > 0, **more)

    def evaluate(self, scores: Scores, block_users: int | None = None) -> Evaluation:
        """Return the quality of a ranking by scores of the candidates.

        Args:
            block_users: users whose scores are asked for at a time.
        """
        return self.evaluate_all(lambda users: [scores(users)], block_users)[0]

    def evaluate_all(
        self, scores: Callable[[Ids], Iterable[Float32]], block_users: int | None = None
    ) -> list[Evaluation]:
        """Return :meth:`evaluate` of several scores, which are computed together."""
        size = block_users or max(BLOCK_SCORES // len(self.candidates), 1)
        first = np.flatnonzero(np.diff(self._users, prepend=-1))
        ranks = []
        for links in np.split(np.arange(len(self._users)), first[size::size]):
            several = scores(np.unique(self._users[links]))
            ranks.append([self._rank(links, of) for of in several])
        by_scores = zip(*ranks, strict=True)
        return [self.ranking(Ranks(*np.concatenate(of, axis=1))) for of in by_scores]

    def _rank(self, links: Ids, scores: Float32) -> Ranks:
        """Rank all links of some users by these users' scores."""
        users, index = self._users[links], self._index[links]
        return rank_links(lambda _: scores, users, index, len(scores), self.left_out)


def columns_of_split(split: Split, quality: Evaluation) -> dict[str, Any]:
    """Return the columns of tables of floors and blends on the quality of a split."""
    row: dict[str, Any] = {f"{split}_{name}": value for name, value in quality.figures.items()}
    lists = quality.user_recalls.tolist(), quality.item_shares.tolist()
    return row | dict(zip(OF_USERS[split], lists, strict=True))


def contents_of(dataset: Dataset) -> tuple[dict[str, Features], float]:
    """Return by title what floors can read of the items, and the seconds that `prepare` took to
    derive features: TF-IDF vectors, dense features, or the former alone and both side by side.

    Each part has unit length. Features by LSA are left out: they are made of the TF-IDF vectors.
    """
    contents: dict[str, Features] = {}
    if dataset.n_words:
        contents["TF-IDF"] = tfidf(dataset.texts, dataset.n_words, dataset.items_of("train"))
    columns = _feature_columns(dataset)
    if dataset.item_features is None or not len(columns):
        return contents, 0.0
    features = dataset.item_features[:, columns]
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    features = np.asarray(features / np.where(lengths > 0, lengths, 1.0), np.float32)
    if contents:
        both = sparse.hstack([contents["TF-IDF"], sparse.csr_array(features)])
        contents["TF-IDF and features"] = sparse.csr_array(both)
    else:
        contents["features"] = features
    return contents, float(_derived(dataset).get("embed", {"seconds": 0.0})["seconds"])


def tries_features(dataset: Dataset) -> bool:
    """Return whether floors can read features beside texts."""
    return bool(dataset.n_words) and len(_feature_columns(dataset)) > 0


def _feature_columns(dataset: Dataset) -> Ids:
    """Return the columns of the dense features that LSA has not made of the texts."""
    if dataset.item_features is None:
        return np.empty(0, np.intp)
    width = dataset.item_features.shape[1]
    return np.delete(np.arange(width), lsa_columns(width, _derived(dataset)))


def _derived(dataset: Dataset) -> Mapping[str, Any]:
    facts: Mapping[str, Any] = dataset.manifest.get("derived_features", {})
    return facts
