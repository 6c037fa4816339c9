"""The stream of positive links: which links a batch trains on, in which order.

Positions 0, 1, 2, ... of the stream fall into epochs of N; batch n holds positions n b .. (n+1) b -
1, so what does not fill an epoch's last batch opens the next epoch. Every order depends on (seed,
epoch) only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ncfbench.data.graph import BipartiteGraph, grouped
from ncfbench.rng import Streams

Int32 = NDArray[np.int32]


class PositiveStream:
    """Links by position. Keeps one epoch's order in memory: O(N).

    Args:
        stratum_size: s, the links of a stratum; 1 for samplers without strata.
        strata: ``item`` or ``user``: what the links of a stratum share.
        replacement: draw instead of shuffling (the paper's textbook algorithms): links uniformly,
            or for strata an item from P_d and then s of its users (a user and s items), all with
            replacement.
    """

    def __init__(
        self,
        graph: BipartiteGraph,
        streams: Streams,
        stratum_size: int,
        *,
        strata: str = "item",
        replacement: bool = False,
    ) -> None:
        self.graph, self.streams = graph, streams
        self.stratum_size, self.strata, self.replacement = stratum_size, strata, replacement
        # With replacement an epoch is only a unit of drawing; whole strata make it end where a
        # stratum ends.
        self.epoch_length = (
            max(graph.n_links // stratum_size, 1) * stratum_size if replacement else graph.n_links
        )
        self._epoch = -1
        self._order = np.zeros(0, np.int32)

    def take(self, start: int, count: int) -> Int32:
        """Return int32[count]: the links at positions ``start`` .. ``start + count - 1``."""
        spans = self.spans(start, count)
        if len(spans) == 1:
            ((epoch, low, high),) = spans
            return self._epoch_order(epoch)[low:high]
        # Copies, for a view would keep the order of the epoch before in memory while the next is
        # made.
        return np.concatenate(
            [self._epoch_order(epoch)[low:high].copy() for epoch, low, high in spans]
        )

    def spans(self, start: int, count: int) -> list[tuple[int, int, int]]:
        """Return the positions by epoch: (epoch, first position in it, one past the last)."""
        result, stop = [], start + count
        while start < stop:
            epoch, low = divmod(start, self.epoch_length)
            high = min(low + stop - start, self.epoch_length)
            result.append((epoch, low, high))
            start += high - low
        return result

    def _epoch_order(self, epoch: int) -> Int32:
        if epoch != self._epoch:
            rng = self.streams.generator("positives", epoch)
            make: Callable[[np.random.Generator, int], Int32] = {
                (False, False): self._shuffled_links,
                (False, True): self._shuffled_strata,
                (True, False): self._drawn_links,
                (True, True): self._drawn_strata,
            }[self.replacement, self.stratum_size > 1]
            self._order, self._epoch = np.zeros(0, np.int32), -1
            self._order, self._epoch = make(rng, epoch), epoch
        return self._order

    def _shuffled_links(self, rng: np.random.Generator, epoch: int) -> Int32:
        links = np.arange(self.graph.n_links, dtype=np.int32)
        rng.shuffle(links)
        return links

    def _drawn_links(self, rng: np.random.Generator, epoch: int) -> Int32:
        return rng.integers(self.graph.n_links, size=self.epoch_length, dtype=np.int32)

    def _shuffled_strata(self, rng: np.random.Generator, epoch: int) -> Int32:
        """Return an epoch's links in strata: the links of items (or users) in random order, cut
        into segments of exactly s, and the segments shuffled.

        Strata lie at multiples of s of the whole stream. Where N is not such a multiple, an epoch's
        first links complete the stratum that the epoch before left open, and its last ones open one
        for the next.
        """
        n, s = self.graph.n_links, self.stratum_size
        links = self._shuffled_links(rng, epoch)
        nodes, offsets = self._nodes
        n_nodes = len(offsets) - 1
        rank = rng.permutation(n_nodes).astype(np.int32)
        links, _ = grouped(links, rank[nodes[links]], n_nodes)
        head = min(-epoch * n % s, n)
        body = slice(head, head + (n - head) // s * s)
        segment = np.arange((n - head) // s, dtype=np.int32)
        rng.shuffle(segment)
        result = np.empty_like(links)
        result[:head], result[body.stop :] = links[:head], links[body.stop :]
        # In any other mode NumPy would fill a copy of the result.
        segments = result[body].reshape(-1, s)
        np.take(links[body].reshape(-1, s), segment, axis=0, out=segments, mode="clip")
        return result

    def _drawn_strata(self, rng: np.random.Generator, epoch: int) -> Int32:
        """Return strata with replacement: the node of a random link, then s of its links."""
        graph, s, (nodes, offsets) = self.graph, self.stratum_size, self._nodes
        chosen = nodes[rng.integers(graph.n_links, size=self.epoch_length // s)]
        degree = (offsets[chosen + 1] - offsets[chosen])[:, None]
        within = np.minimum((rng.random((len(chosen), s)) * degree).astype(np.int64), degree - 1)
        position = (within + offsets[chosen][:, None]).reshape(-1)
        links: Int32 = (
            position.astype(np.int32) if self.strata == "user" else graph.links_by_item[position]
        )
        return links

    @property
    def _nodes(self) -> tuple[Int32, NDArray[np.integer]]:
        """Return the node of each link that a stratum shares, and the offsets of nodes' links."""
        graph = self.graph
        if self.strata == "user":
            return graph.link_user, graph.user_offsets
        return graph.link_item, graph.item_offsets
