"""Batches without duplicates: no user and no item twice among a batch's positive links.

An epoch's batches are the colours of an edge colouring of the graph: links of one colour share no
node. The G = N // b batches of exactly b links exist if no user and no item has more than G links
(Koenig 1916), and two colours can be made equally large by exchanging them along one path. Each
batch takes the first links of a random order that fit; the few that fit nowhere at the end are
inserted along such paths.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncfbench.catalog import find_sampler
from ncfbench.config import RunConfig
from ncfbench.config.checks import batch_unit
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError
from ncfbench.rng import Streams
from ncfbench.sampling.base import Draw, Float64, Int32
from ncfbench.sampling.batch import Batch, Shared
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

    def __init__(
        self, graph: BipartiteGraph, config: RunConfig, streams: Streams, **options: Any
    ) -> None:
        _require_batches(graph, config)
        super().__init__(graph, config, streams, **options)

    def make_positives(self, *, replacement: bool) -> PositiveStream:
        """See :meth:`Sampler.make_positives`."""
        return DistinctStream(
            self.graph, self.streams, self.config.batch_size, replacement=replacement
        )

    def claims(self) -> Claims:
        """See :meth:`Sampler.claims`. Shuffled, the bias is of second order in the share of links
        that share a node with another.
        """
        found = (
            super()
            .claims()
            ._replace(
                draws_links_uniformly=False,
                shuffled_bias=float(np.mean((1 - self.free_share) ** 2)),
                weighs_biased=True,
            )
        )
        return found.with_bias(
            "links of popular users and items are rejected more often from batches that are drawn"
            " one by one; a training epoch holds every link once"
        )

    @cached_property
    def free_share(self) -> Float64:
        """float64[N]: 1 - k / N, the share of all links that have no node in common with each."""
        graph = self.graph
        nodes = graph.user_degrees[graph.link_user] + graph.item_degrees[graph.link_item] - 1
        free: Float64 = 1 - nodes / graph.n_links
        return free

    def _share(self, draw: Draw, capacity: int, rows: slice) -> Batch:
        batch = super()._share(draw, capacity, rows)
        assert isinstance(batch.negatives, Shared)
        weight, free = batch.negatives.weight, self.free_share[draw.links]
        of_slot = np.zeros(weight.shape[1])
        of_slot[batch.pos_item] = free / self.free_share.mean()
        weight *= free[rows, None].astype(weight.dtype)
        weight *= of_slot.astype(weight.dtype)
        return batch


class DistinctStream(PositiveStream):
    """Links by position, in batches of b without a common node.

    Args:
        batch_size: b; no node has more than N // b links.
        replacement: draw each batch by itself, link by link, with rejection. Visits all links for
            each batch: for audits.
    """

    def __init__(
        self, graph: BipartiteGraph, streams: Streams, batch_size: int, *, replacement: bool = False
    ) -> None:
        super().__init__(graph, streams, 1, replacement=replacement)
        self.batch_size = batch_size
        self.n_batches = graph.n_links // batch_size
        self.epoch_length = self.n_batches * batch_size
        self._fitting = FirstFitting(graph)

    def _shuffled_links(self, rng: np.random.Generator, epoch: int) -> Int32:
        links = super()._shuffled_links(rng, epoch)[: self.epoch_length]
        group = self._fill(links)
        left = np.flatnonzero(group < 0)
        if len(left):
            graph = self.graph
            colouring = _Colouring(
                graph.link_user[links], graph.link_item[links], group, self.n_batches
            )
            for link in left:
                colouring.insert(int(link))
            colouring.balance(self.batch_size)
        order = np.argsort(group, kind="stable").reshape(self.n_batches, self.batch_size)
        # The last batches to be filled hold what fitted into no earlier one.
        order = order[rng.permutation(self.n_batches)]
        return links[order.reshape(-1)]

    def _drawn_links(self, rng: np.random.Generator, epoch: int) -> Int32:
        return np.concatenate([self._drawn_batch(rng) for _ in range(self.n_batches)])

    def _drawn_batch(self, rng: np.random.Generator) -> Int32:
        """Return the links of a batch. To go through a random order is to draw with rejection: a
        link that comes again shares its nodes with itself.
        """
        while True:
            links = rng.permutation(self.graph.n_links).astype(np.int32)
            fitting = links[self._fitting(links)][: self.batch_size]
            # Where no other link fits, the batch is begun again; one of b links exists.
            if len(fitting) == self.batch_size:
                return fitting

    def _fill(self, links: Int32) -> Int64:
        """Return int64[n]: the batch of each link, -1 for those that fit into none any more.

        Each batch takes the first b links that fit, from those that waited and those that follow.
        """
        b, group = self.batch_size, np.full(len(links), -1)
        waiting, following = np.zeros(0, np.int64), 0
        for number in range(self.n_batches):
            chosen = np.zeros(0, np.int64)
            more = b
            while True:
                stop = min(following + more, len(links))
                waiting = np.concatenate([waiting, np.arange(following, stop)])
                following = stop
                chosen = np.flatnonzero(self._fitting(links[waiting]))[:b]
                if len(chosen) == b or following == len(links):
                    break
                more = max(b // 4, 1)
            group[waiting[chosen]] = number
            waiting = np.delete(waiting, chosen)
        return group


class FirstFitting:
    """Finds which links of a sequence share no node with one that was found before them."""

    def __init__(self, graph: BipartiteGraph) -> None:
        self.graph = graph
        self._first = [np.zeros(size, np.int64) for size in (graph.n_users, graph.n_items)]
        self._taken = [np.zeros(size, bool) for size in (graph.n_users, graph.n_items)]

    def __call__(self, links: Int32) -> NDArray[np.bool_]:
        """Return bool[n], in O(n) times the longest chain of links that wait for each other."""
        ends = self.graph.link_user[links], self.graph.link_item[links]
        found, left = np.zeros(len(links), bool), np.arange(len(links))
        while len(left):
            # A link fits if it is the first that is left of both its nodes.
            is_first, is_taken = np.ones(len(left), bool), np.zeros(len(left), bool)
            for first, nodes in zip(self._first, ends, strict=True):
                first[nodes[left][::-1]] = left[::-1]
                is_first &= first[nodes[left]] == left
            found[left[is_first]] = True
            for taken, nodes in zip(self._taken, ends, strict=True):
                taken[nodes[left[is_first]]] = True
                is_taken |= taken[nodes[left]]
            left = left[~is_taken]
        for taken, nodes in zip(self._taken, ends, strict=True):
            taken[nodes[found]] = False
        return found


class _Colouring:
    """A partial edge colouring, into which links are inserted by exchanges of two colours.

    Args:
        user, item: the ends of each link.
        colour: of each link, -1 for none; it is changed.
    """

    def __init__(self, user: Int32, item: Int32, colour: Int64, n_colours: int) -> None:
        self.ends, self.colour = (user, item), colour
        self.sizes = np.bincount(colour[colour >= 0], minlength=n_colours)
        self._order = [np.argsort(nodes, kind="stable") for nodes in self.ends]
        self._sorted = [nodes[order] for nodes, order in zip(self.ends, self._order, strict=True)]

    def insert(self, link: int) -> None:
        """Colour a link."""
        free = [self._free(side, self.ends[side][link]) for side in (0, 1)]
        both = np.flatnonzero(free[0] & free[1])
        if len(both):
            chosen = int(both[np.argmin(self.sizes[both])])
        else:
            # The item's links of the user's free colour get its own free one, and so on along the
            # path. It does not come back to the user, who has no link of the first colour.
            chosen, other = (int(np.argmax(each)) for each in free)
            self._exchange(list(self._path(1, self.ends[1][link], chosen, other)), chosen, other)
        self.colour[link] = chosen
        self.sizes[chosen] += 1

    def balance(self, size: int) -> None:
        """Make all colours equally large: ``size`` links each."""
        while self.sizes.max() > size:
            large, small = int(np.argmax(self.sizes)), int(np.argmin(self.sizes))
            users = self.ends[0][self.colour == large]
            without = users[~np.isin(users, self.ends[0][self.colour == small])]
            # Of the paths that both colours make, some have one more link of the larger one; they
            # begin and end with it, at a user and at an item.
            for user in without:
                path = list(self._path(0, user, large, small))
                if len(path) % 2:
                    self._exchange(path, large, small)
                    break

    def _links_of(self, side: int, node: int) -> Int64:
        begin, end = np.searchsorted(self._sorted[side], [node, node + 1])
        found: Int64 = self._order[side][begin:end]
        return found

    def _free(self, side: int, node: int) -> NDArray[np.bool_]:
        free = np.ones(len(self.sizes) + 1, bool)
        free[self.colour[self._links_of(side, node)]] = False
        return free[:-1]

    def _path(self, side: int, node: int, colour: int, other: int) -> Iterator[int]:
        """Yield the links of alternating colours from a node on, the first of ``colour``."""
        while True:
            links = self._links_of(side, node)
            links = links[self.colour[links] == colour]
            if not len(links):
                return
            link = int(links[0])
            yield link
            side = 1 - side
            node, colour, other = self.ends[side][link], other, colour

    def _exchange(self, links: list[int], colour: int, other: int) -> None:
        self.colour[links] = colour + other - self.colour[links]
        self.sizes[[colour, other]] = [(self.colour == each).sum() for each in (colour, other)]


def _require_batches(graph: BipartiteGraph, config: RunConfig) -> None:
    """Refuse batches that some node has too many links for.

    Raises:
        UsageError: it says how large a batch can be.
    """
    degrees = {"user": graph.user_degrees, "item": graph.item_degrees}
    kind = max(degrees, key=lambda each: int(degrees[each].max()))
    node, most = int(np.argmax(degrees[kind])), int(degrees[kind].max())
    b = config.batch_size
    batches = graph.n_links // b
    unit, least = batch_unit(config.to_dict(), find_sampler(config.sampler))
    if most > batches:
        able = graph.n_links // most // unit * unit
        use = f"--batch-size {able} or less" if able >= least else "--sampler ns"
        raise UsageError(
            f"batch_size = {b} leaves {batches:,} batches an epoch, and {graph.name(kind, node)}"
            f" has {most:,} links, which without duplicates need a batch each. Use {use}."
        )
