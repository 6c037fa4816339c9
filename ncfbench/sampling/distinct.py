"""Batches without duplicates: no user and no item twice among a batch's positive links.

An epoch's batches are the colours of an edge colouring of the graph: links of one colour share no
node. The G = N // b batches of exactly b links exist if no user and no item has more than G links
(Koenig 1916), and two colours can be made equally large by exchanging them along one path. Each
batch takes the first links of a random order that fit; the few that fit nowhere at the end are
inserted along such paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ncfbench.catalog import find_sampler
from ncfbench.config.checks import batch_unit
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError
from ncfbench.rng import Streams
from ncfbench.sampling.base import Draw, Float64, Int32
from ncfbench.sampling.batch import Batch, negative_weights
from ncfbench.sampling.claims import Claims
from ncfbench.sampling.positives import PositiveStream
from ncfbench.sampling.shared import SharingSampler

Int64 = NDArray[np.int64]


class DistinctSharingSampler(SharingSampler):
    """Negative Sharing on batches in which no user and no item comes twice.

    In training, an epoch holds G = N // b batches and each link at most once: N - G b random ones
    are left out. With replacement (in audits), a batch is drawn link by link, and a link that
    shares a node with an earlier one is rejected.

    Links that share a node are linked pairs, which the mask leaves out anyway, but the pairs that
    are left come up more often. With k_i links that share a node with link i (itself included), and
    C the sum of N - k_i over all links::

        weight_ij = rho_j m_ij (1 - k_i / N) (1 - k_j / N) / (C / N^2) / (b^2 - b)

    In a training epoch a pair that fits has probability a_i a_j with a_i / a_j = (1 - k_j / N) /
    (1 - k_i / N) to first order: these weights leave a bias of second order in k / N. With
    replacement, links of popular nodes are rejected more often, and the positive term is biased by
    the order of b k / (2 N), which no weight of a negative can mend.

    b user slots, b item slots. Cost per link: O(V + degree), and its share of the epoch's order.
    """

    merges_items = True

    def _check(self) -> None:
        graph, b = self.graph, self.config.batch_size
        degrees = {"user": graph.user_degrees, "item": graph.item_degrees}
        kind = max(degrees, key=lambda kind: int(degrees[kind].max()))
        node, most = int(np.argmax(degrees[kind])), int(degrees[kind].max())
        if most > graph.n_links // b:
            unit, least = batch_unit(self.config.to_dict(), find_sampler(self.config.sampler))
            able = graph.n_links // most // unit * unit
            use = f"--batch-size {able} or less" if able >= least else "--sampler ns"
            raise UsageError(
                f"batch_size = {b} leaves {graph.n_links // b:,} batches an epoch, and"
                f" {graph.name(kind, node)} has {most:,} links, which without duplicates need a"
                f" batch each. Use {use}."
            )
        super()._check()

    def _make_positives(self, replacement: bool) -> PositiveStream:
        b = self.config.batch_size
        return DistinctStream(self.graph, self.streams, b, replacement=replacement)

    def claims(self) -> Claims:
        """See :meth:`Sampler.claims`. Shuffled, the bias is of second order in the share of links
        that share a node with another.
        """
        second_order = float(np.mean((1 - self._free_share) ** 2))
        claims = super().claims()._replace(shuffled_bias=second_order)
        return claims._replace(draws_links_uniformly=False, weighs_biased=True).with_bias(
            "links of popular users and items are rejected more often from batches that are drawn"
            " one by one; a training epoch holds every link once"
        )

    @cached_property
    def _free_share(self) -> Float64:
        """float64[N]: 1 - k / N, the share of all links that have no node in common with each."""
        graph = self.graph
        nodes = graph.user_degrees[graph.link_user] + graph.item_degrees[graph.link_item] - 1
        free: Float64 = 1 - nodes / graph.n_links
        return free

    def _share(self, draw: Draw, capacity: int, rows: slice) -> Batch:
        batch = super()._share(draw, capacity, rows)
        weight, free = negative_weights(batch), self._free_share[draw.links]
        of_slot = np.zeros(weight.shape[1])
        of_slot[batch.pos_item] = free / self._free_share.mean()
        weight *= free[rows, None].astype(weight.dtype)
        weight *= of_slot.astype(weight.dtype)
        return batch


class DistinctStream(PositiveStream):
    """Links by position, in batches of b without a common node.

    Args:
        batch_size: b; no node has more than N // b links.
        replacement: draw each batch by itself, link by link, with rejection. Orders all links for
            each batch: for audits.
    """

    def __init__(
        self, graph: BipartiteGraph, streams: Streams, batch_size: int, *, replacement: bool = False
    ) -> None:
        super().__init__(graph, streams, 1, replacement=replacement)
        self.batch_size = batch_size
        self.n_batches = graph.n_links // batch_size
        self.epoch_length = self.n_batches * batch_size

    def _shuffled_links(self, rng: np.random.Generator, epoch: int) -> Int32:
        links = super()._shuffled_links(rng, epoch)[: self.epoch_length]
        batch = self._fill(links)
        if (batch < 0).any():
            colouring = _Colouring(self.graph, links, batch, self.n_batches)
            for link in np.flatnonzero(batch < 0).tolist():
                colouring.insert(link)
            colouring.balance(self.batch_size)
        order = np.argsort(batch, kind="stable").reshape(self.n_batches, self.batch_size)
        # The last batches to be filled hold what fitted into no earlier one.
        order = order[rng.permutation(self.n_batches)]
        return links[order.reshape(-1)]

    def _drawn_links(self, rng: np.random.Generator, epoch: int) -> Int32:
        """Go through a random order for each batch, which is to draw with rejection: a link that
        comes again shares its nodes with itself.
        """
        ends = self.graph.link_user.data, self.graph.link_item.data
        batches = list[list[int]]()
        while len(batches) < self.n_batches:
            links = rng.permutation(self.graph.n_links)
            fitting, _ = first_fitting(links.data, *ends, self.batch_size)
            # Where no other link fits, the batch is begun again; one of b links exists.
            if len(fitting) == self.batch_size:
                batches.append(fitting)
        return np.array(batches, np.int32).reshape(-1)

    def _fill(self, links: Int32) -> Int64:
        """Return int64[n]: the batch of each link, -1 for those that fit into none any more.

        Each batch takes the first b links that fit, from those that waited and those that follow.
        """
        ends = self.graph.link_user[links].data, self.graph.link_item[links].data
        batch, waiting, following = np.full(len(links), -1), list[int](), iter(range(len(links)))
        for number in range(self.n_batches):
            waited = iter(waiting)
            fitting, passed = first_fitting(chain(waited, following), *ends, self.batch_size)
            batch[fitting] = number
            waiting = [*passed, *waited]
        return batch


def first_fitting(
    links: Iterable[int], users: Sequence[int], items: Sequence[int], count: int
) -> tuple[list[int], list[int]]:
    """Take the first links that share no node with one taken before, ``count`` at most.

    Args:
        links: positions in ``users`` and ``items``. An iterator is left after the last one taken.

    Returns:
        The links that were taken, and those that were passed over.
    """
    taken, passed = [], []
    met_users, met_items = set(), set()
    for link in links:
        user, item = users[link], items[link]
        if user in met_users or item in met_items:
            passed.append(link)
            continue
        met_users.add(user)
        met_items.add(item)
        taken.append(link)
        if len(taken) == count:
            break
    return taken, passed


class _Colouring:
    """A partial edge colouring, into which links are inserted by exchanges of two colours.

    Users and items are numbered together, the items after the users.

    Args:
        colour: of each of ``links``, -1 for none; it is changed.
    """

    def __init__(self, graph: BipartiteGraph, links: Int32, colour: Int64, n_colours: int) -> None:
        self.user, self.item = graph.link_user[links], graph.link_item[links] + graph.n_users
        self.colour, self.sizes = colour, np.bincount(colour[colour >= 0], minlength=n_colours)
        nodes = np.concatenate([self.user, self.item])
        self._order = np.argsort(nodes, kind="stable") % len(links)
        self._first = np.concatenate([[0], np.cumsum(np.bincount(nodes))])

    def insert(self, link: int) -> None:
        """Colour a link."""
        user, item = self.user[link], self.item[link]
        free_user, free_item = self._free(user), self._free(item)
        both = np.flatnonzero(free_user & free_item)
        if len(both):
            chosen = int(both[np.argmin(self.sizes[both])])
        else:
            # The item's links of the user's free colour get its own free one, and so on along the
            # path. It does not come back to the user, who has no link of the first colour.
            chosen, other = int(np.argmax(free_user)), int(np.argmax(free_item))
            self._exchange(self._path(item, chosen, other), chosen, other)
        self.colour[link] = chosen
        self.sizes[chosen] += 1

    def balance(self, size: int) -> None:
        """Make all colours equally large: ``size`` links each."""
        while self.sizes.max() > size:
            large, small = int(np.argmax(self.sizes)), int(np.argmin(self.sizes))
            users = self.user[self.colour == large]
            # Of the paths that both colours make, some have one more link of the larger one; they
            # begin and end with it, at a user and at an item.
            for user in users[~np.isin(users, self.user[self.colour == small])]:
                path = self._path(user, large, small)
                if len(path) % 2:
                    self._exchange(path, large, small)
                    break

    def _links_of(self, node: int) -> Int64:
        return self._order[self._first[node] : self._first[node + 1]]

    def _free(self, node: int) -> NDArray[np.bool_]:
        free = np.ones(len(self.sizes) + 1, bool)
        free[self.colour[self._links_of(node)]] = False
        return free[:-1]

    def _path(self, node: int, colour: int, other: int) -> list[int]:
        """Return the links of alternating colours from a node on, the first of ``colour``."""
        path: list[int] = []
        while True:
            links = self._links_of(node)
            links = links[self.colour[links] == colour]
            if not len(links):
                return path
            path.append(int(links[0]))
            node = self.user[path[-1]] + self.item[path[-1]] - node
            colour, other = other, colour

    def _exchange(self, path: list[int], colour: int, other: int) -> None:
        self.colour[path] = colour + other - self.colour[path]
        self.sizes[[colour, other]] = [(self.colour == both).sum() for both in (colour, other)]
