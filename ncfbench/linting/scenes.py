"""Scenes: small batches of a graph's own links, in which every score can be set alone.

A scene's rows are links; its columns are the rows' own items and, behind them, the negatives drawn
for each row. Vectors are made from the scores, so a probe can change one score and nothing else::

    scene.scores[i, c]   score of row i's user with column c's item; c = i is the link itself
    users[i] = e_i       items[c] = (scores[:, c], sqrt(1 - |scores[:, c]|^2) e_(item of c))
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ncfbench.data.graph import BipartiteGraph

Float = NDArray[np.float64]
Ids = NDArray[Any]
Bool = NDArray[np.bool_]
Link: TypeAlias = tuple[int, int]
Relation: TypeAlias = Literal["", "same item", "same user", "linked", "drawn"]
RELATIONS: tuple[Relation, ...] = ("same item", "same user", "linked", "drawn")
WIDTH = 256
"""Least D of vectors."""
LOOKED_AT, TWINS = 2_000, 50
"""Links that are looked at for a scene, and for a twin."""


class Vectors(NamedTuple):
    """Vectors of a scene's users, float[b, D], and of its columns, float[columns, D]."""

    users: Float
    columns: Float


@dataclass(frozen=True)
class Scene:
    """A batch, and the scores of its users with its items.

    Attributes:
        user, item: int[b], the rows' links.
        negative: int[b, k], items drawn for each row.
        slot: int[b + b k], which of the scene's items a column has: two columns of one item share
            their vector.
        score: float[b, items].
    """

    graph: BipartiteGraph
    user: Ids
    item: Ids
    negative: Ids
    slot: Ids
    score: Float

    @property
    def b(self) -> int:
        """Rows."""
        return len(self.user)

    @property
    def scores(self) -> Float:
        """float[b, columns]."""
        return self.score[:, self.slot]

    @property
    def column_item(self) -> Ids:
        """int[columns], the item of each column."""
        return np.concatenate([self.item, self.negative.reshape(-1)])

    @property
    def linked(self) -> Bool:
        """bool[b, columns]: training links, the rows' own ones too."""
        columns = np.broadcast_to(self.column_item, (self.b, len(self.slot)))
        return self.graph.linked(np.repeat(self.user[:, None], columns.shape[1], 1), columns)

    @property
    def probability(self) -> Float:
        """float[columns]: share of the training links that are of each column's item."""
        degrees = self.graph.item_degrees / self.graph.n_links
        return np.asarray(degrees[self.column_item], np.float64)

    def with_score(self, row: Any, column: Any, change: Any) -> Scene:
        """Return the scene with one score changed, or some."""
        score = self.score.copy()
        score[row, self.slot[column]] += change
        return replace(self, score=score)

    def rows(self, kept: Any) -> Scene:
        """Return the scene of some rows, in that order."""
        kept = np.arange(self.b)[kept]
        of_rows = np.arange(self.negative.size).reshape(self.negative.shape)[kept].reshape(-1)
        columns = self.slot[np.concatenate([kept, self.b + of_rows])]
        names, slot = np.unique(columns, return_inverse=True)
        parts = self.user[kept], self.item[kept], self.negative[kept]
        return Scene(self.graph, *parts, slot, self.score[np.ix_(kept, names)])

    @property
    def owner(self) -> Ids:
        """int[columns], the row that each column belongs to."""
        return np.append(np.arange(self.b), np.repeat(np.arange(self.b), self.negative.shape[1]))

    @property
    def rest(self) -> Float:
        """float[items], length of each item's part outside the users' span."""
        return np.asarray(np.sqrt(np.maximum(1 - np.sum(self.score**2, axis=0), 0.05)))

    def vectors(self) -> Vectors:
        """Return vectors of unit length whose dot products are the scores."""
        b, n_items = self.score.shape
        # One shape, however many items are the same; and one D, on which a scale may depend.
        width = max(b + len(self.slot), WIDTH)
        users, items = np.eye(b, width), np.zeros((n_items, width))
        items[:, :b] = self.score.T
        items[np.arange(n_items), b + np.arange(n_items)] = self.rest
        return Vectors(users, items[self.slot])

    def along(self, gradient: Float) -> tuple[Float, Float]:
        """Return how much of some vectors' gradients, [n, D], lies along the users' vectors, [n,
        b], and along the items', [n, items].

        The latter has lengths in it, and what a loss compares items with.
        """
        b, n_items = self.score.shape
        along_items = gradient[:, b : b + n_items] / self.rest
        return gradient[:, :b] - along_items @ self.score.T, along_items


@dataclass(frozen=True)
class Scenes:
    """Makes scenes from a graph, all from one seed.

    Attributes:
        k: negatives drawn for each row; 0 for a loss that takes none.
        by_popularity: draw them in proportion to items' links, not uniformly.
    """

    graph: BipartiteGraph
    k: int
    by_popularity: bool = False
    spread: float = 0.25

    def plain(self, seed: int, b: int) -> Scene:
        """Return different users and items, no two of which are linked but the rows themselves."""
        return self.related(seed, b, "")[0]

    def related(self, seed: int, b: int, relation: Relation) -> tuple[Scene, Scene]:
        """Return a plain scene with one related pair, and its twin: the same vectors, and ids by
        which the pair has nothing to do with each other.

        Args:
            relation: of the last row to row 0: it has the same item (and vector), the same user, or
                an item that row 0's user has another link with; or of row 0's first negative, which
                is her own item where it is drawn.
        """
        if relation == "drawn":
            plain = self.plain(seed, b)
            slot, negative = plain.slot.copy(), plain.negative.copy()
            slot[b], negative[0, 0] = slot[0], plain.item[0]
            twin = replace(plain, slot=slot)
            return replace(twin, negative=negative), twin
        rng = np.random.default_rng((seed, b, len(relation)))
        rows, other = self._rows(rng, b, relation)
        user, item = np.array(rows, np.int32).T
        scene = self._filled(rng, user, item)
        if relation == "same item":
            slot = scene.slot.copy()
            slot[b - 1] = slot[0]
            scene = replace(scene, slot=slot)
        twin_user, twin_item = np.array([*rows[:-1], other], np.int32).T
        return scene, replace(scene, user=twin_user, item=twin_item)

    def relations(self) -> list[Relation]:
        """Return the relations that a scene can have: ``drawn`` needs drawn negatives."""
        return [*RELATIONS] if self.k else [*RELATIONS[:-1]]

    def distinct(self, seed: int, b: int) -> Scene:
        """Return different users and items, linked or not, of at most ``b`` rows."""
        rng = np.random.default_rng((seed, b, 99))
        links = rng.permutation(self.graph.n_links)
        for ends in (self.graph.link_user, self.graph.link_item):
            links = links[np.sort(np.unique(ends[links], return_index=True)[1])]
        links = links[:b]
        return self._filled(rng, self.graph.link_user[links], self.graph.link_item[links])

    def batch(self, rng: Generator, b: int) -> Scene:
        """Return a batch as training has it: links drawn with replacement."""
        links = rng.integers(self.graph.n_links, size=b)
        user, item = self.graph.link_user[links], self.graph.link_item[links]
        negative = self.drawn(rng, user)
        columns = np.concatenate([item, negative.reshape(-1)])
        names, slot = np.unique(columns, return_inverse=True)
        score = rng.normal(0, min(0.1, 0.9 / np.sqrt(len(user))), (len(user), len(names)))
        return Scene(self.graph, user, item, negative, slot, _shortened(score))

    def _filled(self, rng: Generator, user: Ids, item: Ids) -> Scene:
        for _ in range(20):
            negative = self.drawn(rng, user)
            columns = np.concatenate([item, negative.reshape(-1)])
            if len(np.unique(negative)) == negative.size and not np.isin(negative, item).any():
                break
        slot = np.arange(len(columns))
        limit = min(self.spread, 1.5 / np.sqrt(len(user)))
        score = rng.uniform(-limit, limit, (len(user), len(slot)))
        return Scene(self.graph, user, item, negative, slot, _shortened(score))

    def drawn(self, rng: Generator, user: Ids) -> Ids:
        """Return int[b, k]: items that are no links of the users."""
        graph = self.graph
        users = np.repeat(user.astype(np.int32)[:, None], self.k, axis=1)
        item, is_open = np.empty(users.shape, np.int32), np.ones(users.shape, bool)
        while is_open.any():
            most = graph.n_links if self.by_popularity else graph.n_items
            drawn = rng.integers(most, size=is_open.sum())
            item[is_open] = graph.link_item[drawn] if self.by_popularity else drawn
            is_open = graph.linked(users, item)
        return item

    def _rows(self, rng: Generator, b: int, relation: Relation) -> tuple[list[Link], Link]:
        """Return the rows of a scene, and a link in place of the last that is not related."""
        degrees = self.graph.item_degrees
        ends = np.stack([self.graph.link_user, self.graph.link_item], axis=1)
        while True:
            rows: list[Link] = []
            if relation:
                first = ends[rng.choice(self._first_links(relation))]
                related = ends[rng.permutation(self._related_links(relation, first))]
                rows = [(u, v) for u, v in (first, *related[:1])]
            drawn = ends[rng.integers(len(ends), size=LOOKED_AT)]
            apart = ((u, v) for u, v in drawn if self._are_apart(rows, (u, v)))
            for link in islice(apart, b - len(rows)):
                rows.append(link)
            if not relation and len(rows) == b:
                return rows, rows[-1]
            # Of an item of about as many links, so that its probability tells them apart least.
            likeness = [
                (abs(degrees[v] - degrees[rows[1][1]]), (u, v)) for u, v in islice(apart, TWINS)
            ]
            if relation and related.size and likeness:
                return [rows[0], *rows[2:], rows[1]], min(likeness)[1]

    def _first_links(self, relation: Relation) -> Ids:
        """Return the links that have a relation to another."""
        graph = self.graph
        is_popular = graph.item_degrees[graph.link_item] > 1
        is_active = graph.user_degrees[graph.link_user] > 1
        popular = np.bincount(graph.link_user, is_popular, graph.n_users)[graph.link_user]
        has = {
            "same item": is_popular,
            "same user": is_active,
            "linked": popular > is_popular,  # another link of the user, with an item of others
        }
        return np.flatnonzero(has[relation])

    def _related_links(self, relation: Relation, first: Link) -> Ids:
        """Return the links that have a relation to one."""
        user, item = self.graph.link_user, self.graph.link_item
        same_user, same_item = user == first[0], item == first[1]
        is_related = {
            "same item": same_item & ~same_user,
            "same user": same_user & ~same_item,
            "linked": np.isin(item, item[same_user]) & ~np.isin(user, user[same_item]) & ~same_item,
        }
        return np.flatnonzero(is_related[relation])

    def _are_apart(self, rows: list[Link], link: Link) -> bool:
        """Return whether a link shares no end with some rows, and no user has another's item."""
        if not rows:
            return True
        users, items = np.array(rows, np.int32).T
        u, v = (np.full_like(users, end) for end in link)
        shares = (users == u) | (items == v)
        return not (shares | self.graph.linked(users, v) | self.graph.linked(u, items)).any()


def _shortened(score: Float) -> Float:
    """Return scores whose items fit into vectors of unit length."""
    length = np.linalg.norm(score, axis=0)
    return np.asarray(score * np.minimum(1, 0.85 / np.maximum(length, 1e-9)))
