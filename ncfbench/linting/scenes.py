"""Scenes: small batches of a graph's own links, in which every score can be set alone.

A scene's rows are links; its columns are the rows' own items and, behind them, the negatives drawn
for each row. Vectors are made from the scores, so a probe can change one score and nothing else::

    scene.scores[i, c]   score of row i's user with column c's item; c = i is the link itself
    users[i] = e_i       items[c] = (scores[:, c], sqrt(1 - |scores[:, c]|^2) e_(item of c))
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import DataError

Float = NDArray[np.float64]
Ids = NDArray[Any]
Bool = NDArray[np.bool_]
Link: TypeAlias = tuple[int, int]
Relation: TypeAlias = Literal["", "same item", "same user", "linked"]
RELATIONS: tuple[Relation, ...] = ("same item", "same user", "linked")
WIDTH = 256
"""Least D of vectors."""
ATTEMPTS, LOOKED_AT = 8, 2_000
"""Times that a scene is begun, and links that are looked at each time."""


class Coordinates(NamedTuple):
    """Vectors of a scene, float[b, D], float[columns, D], and the basis in which they are."""

    users: Float
    columns: Float
    rest: Float
    """float[items]: length of each item's part outside the users' span."""


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
        degrees = np.maximum(self.graph.item_degrees, 1) / self.graph.n_links
        return np.asarray(degrees[self.column_item], np.float64)

    def with_score(self, row: int, column: int, change: float) -> Scene:
        """Return the scene with one score changed."""
        score = self.score.copy()
        score[row, self.slot[column]] += change
        return replace(self, score=score)

    def rows(self, kept: Any) -> Scene:
        """Return the scene of some rows, in that order."""
        kept = np.arange(self.b)[kept]
        of_rows = np.arange(self.negative.size).reshape(self.negative.shape)[kept].reshape(-1)
        columns = self.slot[np.concatenate([kept, self.b + of_rows])]
        names, slot = np.unique(columns, return_inverse=True)
        some = self.user[kept], self.item[kept], self.negative[kept]
        return Scene(self.graph, *some, slot, self.score[np.ix_(kept, names)])

    def coordinates(self) -> Coordinates:
        """Return vectors of unit length whose dot products are the scores."""
        b, n_items = self.score.shape
        # One shape, however many items are the same; and one D, on which a scale may depend.
        width = max(b + len(self.slot), WIDTH)
        rest = np.sqrt(np.maximum(1 - np.sum(self.score**2, axis=0), 0.05))
        users, items = np.eye(b, width), np.zeros((n_items, width))
        items[:, :b] = self.score.T
        items[np.arange(n_items), b + np.arange(n_items)] = rest
        return Coordinates(users, items[self.slot], rest)


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
        """Return a plain scene but for its last row, and its twin: the same vectors, and the ids of
        a last row that has nothing to do with row 0.

        Args:
            relation: of the last row to row 0: it has the same item (and vector), the same user, or
                an item that row 0's user has another link with.
        """
        rng = np.random.default_rng((seed, b, len(relation)))
        (*rows, last), other = self._rows(rng, b, relation)
        user, item = (np.array(ends, np.int32) for ends in zip(*rows, last, strict=True))
        scene = self._filled(rng, user, item)
        if relation == "same item":
            slot = scene.slot.copy()
            slot[b - 1] = slot[0]
            scene = replace(scene, slot=slot)
        ends = (np.append(part[:-1], end) for part, end in zip((user, item), other, strict=True))
        twin_user, twin_item = ends
        return scene, replace(scene, user=twin_user, item=twin_item)

    def relations(self) -> list[Relation]:
        """Return the relations that two links of the graph have: pairs of texts may have none."""
        return [relation for relation in RELATIONS if self._first_links(relation).size]

    def collision(self, seed: int, b: int) -> Scene:
        """Return a plain scene in which row 0's first negative is her own item."""
        scene = self.plain(seed, b)
        negative, slot = scene.negative.copy(), scene.slot.copy()
        negative[0, 0], slot[b] = scene.item[0], slot[0]
        return replace(scene, negative=negative, slot=slot)

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
        negative = np.zeros((len(user), self.k), np.int32)
        for _ in range(20):
            negative = self.drawn(rng, user)
            columns = np.concatenate([item, negative.reshape(-1)])
            if len(np.unique(negative)) == negative.size and not np.isin(negative, item).any():
                break
        slot = np.arange(len(columns) if self.k else len(user))
        limit = min(self.spread, 1.5 / np.sqrt(len(user)))
        score = rng.uniform(-limit, limit, (len(user), len(slot)))
        return Scene(self.graph, user, item, negative, slot, _shortened(score))

    def drawn(self, rng: Generator, user: Ids) -> Ids:
        """Return int[b, k]: items that are no links of the users."""
        if not self.k:
            return np.zeros((len(user), 0), np.int32)
        users = np.repeat(user.astype(np.int32)[:, None], self.k, axis=1)
        return _unlinked_items(self.graph, rng, users, by_popularity=self.by_popularity)

    def _rows(self, rng: Generator, b: int, relation: Relation) -> tuple[list[Link], Link]:
        """Return the rows of a scene, and an unrelated last one."""
        graph = self.graph
        ends = np.stack([graph.link_user, graph.link_item], axis=1)
        for _ in range(ATTEMPTS):
            rows: list[Link] = []
            drawn = rng.integers(len(ends), size=LOOKED_AT)
            if relation:
                drawn[0] = rng.choice(self._first_links(relation))
            for u, v in ends[drawn].tolist():
                if self._are_apart(rows, (u, v)):
                    rows.append((u, v))
                    if len(rows) == b:
                        break
            if len(rows) < b:
                continue
            if not relation:
                return rows, rows[-1]
            *others, twin = rows
            for u, v in ends[rng.permutation(self._related_links(relation, rows[0]))].tolist():
                if self._are_apart(others[1:], (u, v)) and self._is_related(
                    relation, rows[0], (u, v)
                ):
                    degree = graph.item_degrees[v]
                    alike = (tuple(link) for link in ends[drawn].tolist())
                    twins = (
                        link
                        for link in alike
                        if graph.item_degrees[link[1]] == degree
                        and self._are_apart([*others, (u, v)], link)
                    )
                    return [*others, (u, v)], next(twins, twin)
        raise DataError(
            f"No {b} links were found of which no user has another's item, so that a loss can be"
            " judged by them: the pairs are too few or too dense. Leave --pairs out, or give more."
        )

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
        graph = self.graph
        if relation == "same item":
            return np.flatnonzero(graph.link_item == first[1])
        mine = graph.link_user == first[0]
        if relation == "same user":
            return np.flatnonzero(mine)
        return np.flatnonzero(np.isin(graph.link_item, graph.link_item[mine]))

    def _is_related(self, relation: Relation, first: Link, link: Link) -> bool:
        same_user, same_item = link[0] == first[0], link[1] == first[1]
        if relation != "linked":
            return (same_user, same_item) == (relation == "same user", relation == "same item")
        if same_user or same_item:
            return False
        pairs = np.array([[first[0], link[0]], [link[1], first[1]]], np.int32)
        known = self.graph.linked(*pairs)
        return bool(known[0] and not known[1])

    def _are_apart(self, rows: list[Link], link: Link) -> bool:
        """Return whether a link shares no end with some rows, and no user has another's item."""
        if not rows:
            return True
        users, items = np.array(rows, np.int32).T
        u, v = (np.full_like(users, end) for end in link)
        shares = (users == u) | (items == v)
        return not (shares | self.graph.linked(users, v) | self.graph.linked(u, items)).any()


def owner(scene: Scene) -> Any:
    """Return int[columns], the row that each column belongs to."""
    b = scene.b
    return np.concatenate([np.arange(b), np.repeat(np.arange(b), scene.negative.shape[1])])


def by_users(gradient: Float, scene: Scene, coordinates: Coordinates) -> Float:
    """Return float[b, columns]: how much of each column's gradient lies along each user's vector.

    The rest lies along items: lengths, and what a loss compares items with.
    """
    b, n_items = scene.score.shape
    along_items = gradient[:, b : b + n_items] / coordinates.rest
    return np.asarray(gradient[:, :b].T - scene.score @ along_items.T)


def _unlinked_items(
    graph: BipartiteGraph, rng: Generator, user: Ids, *, by_popularity: bool
) -> Ids:
    """Draw for each user an item that is no link of hers, uniformly or by the items' links."""
    if (count := int((graph.user_degrees == graph.n_items).sum())) > 0:
        raise DataError(
            f"{count:,} of {graph.n_users:,} users have links with all {graph.n_items:,} items, so"
            " that no negative can be drawn for them. Leave these users out of --pairs."
        )
    item = np.empty(user.shape, np.int32)
    is_open = np.ones(user.shape, bool)
    while is_open.any():
        drawn = rng.integers(graph.n_links if by_popularity else graph.n_items, size=is_open.sum())
        item[is_open] = graph.link_item[drawn] if by_popularity else drawn
        is_open = graph.linked(user, item)
    return item


def _shortened(score: Float) -> Float:
    """Return scores whose items fit into vectors of unit length."""
    length = np.linalg.norm(score, axis=0)
    return np.asarray(score * np.minimum(1, 0.85 / np.maximum(length, 1e-9)))
