"""Training links and vectors for the audit of frameworks: a small graph as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ncfbench.auditing.estimator_tests import MAX_LINK_TABLE
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]


class Vectors(NamedTuple):
    """The vectors that scores are made of; the score of a pair is their dot product.

    The last coordinate is 1 for users and 0 for items. The gradient by an item's last coordinate is
    then the derivative of the loss by a shift of all the item's scores: what the loss does to it.
    """

    users: Float32
    """float32[U, D + 1]."""
    items: Float32
    """float32[V, D + 1]."""


@dataclass(frozen=True)
class Links:
    """The training links of a graph; items are numbered among those in use."""

    user: Int32
    """int32[L]."""
    item: Int32
    """int32[L]."""
    n_users: int
    n_items: int

    @classmethod
    def of(cls, graph: BipartiteGraph) -> Links:
        """Return the links of a graph.

        Raises:
            UsageError: it has too many pairs of a user and an item.
        """
        n_items = len(graph.items_in_use)
        if graph.n_users * n_items > MAX_LINK_TABLE:
            raise UsageError(
                f"The audit of frameworks keeps a table of all pairs, and {graph.n_users:,} users x"
                f" {n_items:,} items are too many. Leave --dataset out, or use a smaller one."
            )
        return cls(graph.link_user, graph.index_in_use[graph.link_item], graph.n_users, n_items)

    @cached_property
    def table(self) -> NDArray[np.bool_]:
        """bool[U, V]: which pairs are linked."""
        table = np.zeros((self.n_users, self.n_items), bool)
        table[self.user, self.item] = True
        return table

    @cached_property
    def degree(self) -> NDArray[np.int64]:
        """int64[V]: links of each item."""
        return np.bincount(self.item, minlength=self.n_items)

    @cached_property
    def share(self) -> Float64:
        """float64[V]: each item's share of the links, the probability that a drawn link has it."""
        return self.degree / len(self.item)

    @cached_property
    def popular(self) -> NDArray[np.bool_]:
        """bool[V]: the fewest items that hold half of the links."""
        order = np.argsort(-self.degree, kind="stable")
        count = int(np.searchsorted(np.cumsum(self.degree[order]), len(self.item) / 2)) + 1
        popular = np.zeros(self.n_items, bool)
        popular[order[:count]] = True
        return popular

    @cached_property
    def unlinked(self) -> NDArray[np.int64]:
        """int64[U]: items without a link of each user."""
        linked: NDArray[np.int64] = self.table.sum(axis=1)
        return self.n_items - linked

    def require_unlinked_items(self) -> None:
        """Refuse a graph in which a user has links with all items.

        Raises:
            UsageError: there is one, so that no negative can be drawn for her.
        """
        if not self.unlinked.all():
            count = int((self.unlinked == 0).sum())
            raise UsageError(
                f"{count:,} of {self.n_users:,} users have links with all {self.n_items:,} items,"
                " so that an item without a link cannot be drawn for them. Use another --dataset,"
                " or leave out the frameworks that draw such items."
            )

    def unlinked_item(
        self, rng: np.random.Generator, user: Int32, *, by_popularity: bool = False
    ) -> Int32:
        """Draw for each user an item that is no link of hers, of the shape of ``user``.

        Args:
            by_popularity: in proportion to the items' links instead of uniformly.

        Raises:
            UsageError: some user has all items.
        """
        self.require_unlinked_items()
        item = np.empty(user.shape, np.int32)
        open_ = np.ones(user.shape, bool)
        while open_.any():
            count = int(open_.sum())
            item[open_] = (
                self.item[rng.integers(len(self.item), size=count)]
                if by_popularity
                else rng.integers(self.n_items, size=count)
            )
            open_ = self.table[user, item]
        return item

    def unlinked_pairs(self, rng: np.random.Generator, count: int) -> tuple[Int32, Int32]:
        """Draw ``count`` different pairs that are not linked, uniformly.

        Raises:
            UsageError: there are fewer.
        """
        free = int(self.unlinked.sum())
        if count > free:
            raise UsageError(
                f"A batch needs {count:,} different pairs without a link, and there are {free:,}."
                " Use a smaller --batch-size, or another --dataset."
            )
        found = np.zeros(0, np.int64)
        while len(found) < count:
            codes = rng.integers(self.n_users * self.n_items, size=count + 16)
            codes = codes[~self.table.reshape(-1)[codes]]
            every, first = np.unique(np.concatenate([found, codes]), return_index=True)
            found = every[np.argsort(first)]
        user, item = np.divmod(found[:count], self.n_items)
        return user.astype(np.int32), item.astype(np.int32)
