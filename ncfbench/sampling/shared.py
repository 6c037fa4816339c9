"""Samplers whose negatives are the batch's other items: Negative Sharing, with strata, with uniform
items mixed in, or with a memory of earlier batches.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ncfbench.catalog import find_loss, find_sampler
from ncfbench.errors import UsageError
from ncfbench.sampling.base import Draw, Float64, Int32, Sampler, WarmDraw
from ncfbench.sampling.batch import Batch, Remembered, Shared, padded
from ncfbench.sampling.claims import Claims, below

Int64 = NDArray[np.int64]
MISSING = -1
"""Stands for an item of a memory before there are any."""


class SharingSampler(Sampler):
    """Base of the samplers in which every positive link meets every item outside its own stratum.

    With c_j the batch's positive links and lone items on item j, and c_ij those positive links of
    them in row i's own stratum, ``weight_ij = importance_j m_ij (c_j - c_ij)``: an item that came
    with four links counts four times. Under ``hardest`` the model lets only the K items of the
    highest scores in each row count (:func:`ncfbench.models.objective.hard_weights`).
    """

    required_capacity = Sampler._count_items

    def _check(self) -> None:
        config = self.config
        draws_more = find_sampler(config.sampler).reads("uniform_items")
        most = config.batch_size - self.stratum_size + draws_more * config.uniform_items
        most += config.sampler_settings.get("memory", 0)
        if config.sampler_settings.get("hardest", 0) >= most:
            fewer = f"for example --hardest {most // 4 or 1}, or " if most > 1 else ""
            raise UsageError(
                f"hardest = {config.hardest}: a positive link of a batch of {config.batch_size}"
                f" meets {most} items, so there is nothing to choose. Use {fewer}--hardest all."
            )

    def _pair_importance(self, items: Int32) -> Float64:
        """Return the weight of one pair of a link and each of some items, the normaliser included.

        Here the items are those of the positive links of other strata, or of other links.
        """
        b = self.config.batch_size
        return self.rho[items] / (b * b - b * self.stratum_size)

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """See :meth:`Sampler.assemble`."""
        return self._share(draw, capacity)

    def claims(self) -> Claims:
        """See :meth:`Sampler.claims`. Shuffled, two links of a batch are never the same, two strata
        seldom alike: a bias of 1/(N-1), or of order s/N.
        """
        n, s = self.graph.n_links, self.stratum_size
        claims = super().claims()._replace(shuffled_bias=s / n if s > 1 else 1 / max(n - 1, 1))
        if not self.config.sampler_settings.get("hardest", 0):
            return claims
        return claims.with_bias(
            f"only the {self.config.hardest} negatives of the highest scores count"
            f"{below(self.config)}, so what is estimated is a part of the negative term, and not"
            " the objective"
        )

    def _share(self, draw: Draw, capacity: int) -> Batch:
        s, b = self.stratum_size, len(draw.links)
        pos_user = self.graph.link_user[draw.links]
        items, slot = self._merged(self._slot_items(draw))
        pos_slot, n_items = slot[: len(draw.links)], len(items)
        size = max(capacity, n_items)

        count = np.bincount(slot, minlength=n_items)
        of_item = self._pair_importance(items).astype(self.weight_dtype)
        weight = np.empty((b, size), dtype=self.weight_dtype)
        weight[:, n_items:] = 0
        real = weight[:, :n_items]
        real[:] = count.astype(self.weight_dtype) * of_item
        # Within its own stratum a link meets an item only as often as other strata brought it.
        # Counts are whole numbers until they meet the importance, so that an item of one stratum
        # only gets exactly zero.
        slot_TxS = pos_slot.reshape(-1, s)
        own_TxS = (slot_TxS[:, :, None] == slot_TxS[:, None, :]).sum(axis=2)
        left_TxS = (count[slot_TxS] - own_TxS).astype(self.weight_dtype) * of_item[slot_TxS]
        real[np.arange(b).reshape(-1, s, 1), slot_TxS[:, None, :]] = left_TxS[:, None, :]
        if self.config.mask:
            real[self._linked_slots(pos_user, items, repeat=False)] = 0
        if find_loss(self.config.loss).includes_positive:
            real[np.arange(b), pos_slot] += of_item[pos_slot]
        return Batch(
            users=pos_user,
            items=padded(items, size),
            pos_user=np.arange(len(draw.links), dtype=np.int32),
            pos_item=pos_slot,
            negatives=Shared(weight),
            n_items=np.int32(n_items),
        )

    def _linked_slots(self, users: Int32, items: Int32, *, repeat: bool) -> tuple[Int64, Int64]:
        """Return the rows and the slots of the linked pairs of some users and item slots.

        Args:
            repeat: items may repeat; otherwise they are distinct and ascending.
        """
        if not repeat:
            return self.graph.linked_block(users, items, self.tables)
        distinct, position = self.tables.items.distinct(items)
        row, column = self.graph.linked_block(users, distinct, self.tables)
        by_item, counts = np.argsort(position, kind="stable"), np.bincount(position)
        repeats = counts[column]
        # Pair after pair, the slots of its item: they follow each other in ``by_item``.
        begin = (np.cumsum(counts) - counts)[column] - (np.cumsum(repeats) - repeats)
        slot = by_item[np.repeat(begin, repeats) + np.arange(repeats.sum())]
        return np.repeat(row, repeats), slot


class StratifiedSharingSampler(SharingSampler):
    """Stratified Sampling with Negative Sharing (KDD 2017, algorithm 5): s links of an item, no
    negative drawn.

    Strata as in Stratified Sampling, by items or by users. Every positive link meets the items of
    all other strata. With n_t the size of stratum t and c as for :class:`SharingSampler`::

        weight_ij = rho_j m_ij (c_j - c_ij) / (b^2 - sum_t n_t^2)

    With replacement, two strata are independent, so each of the b^2 - sum n_t^2 pairs of a link and
    an item of another stratum is a draw from P_d(u, v) x P_d(v'): unbiased. Linked pairs get weight
    0 under ``mask``. b user slots; about b/s item slots, by users b. Cost per link: O(V + degree).
    """

    # The paper prints b(b-1)/s negative links; these are without those of a link's own stratum.
    stratified = True


class NegativeSharingSampler(SharingSampler):
    """Negative Sharing (KDD 2017, algorithm 4): b positive links, each one's negatives the items of
    the others.

    The case in which every stratum is one link: weight_ij = rho_j m_ij (c_j - c_ij) / (b^2 - b).
    Positive links shuffled (or uniform with replacement). b user slots; at most b item slots, as
    equal items are merged.
    """


class MixedSharingSampler(SharingSampler):
    """Mixed Negative Sampling (Yang et al., WWW 2020 companion): Negative Sharing and k' items
    drawn uniformly.

    The k' items are drawn with replacement from all items in use and met by every positive link. A
    row's negatives are then b - 1 draws from P_d and k' uniform ones, weighted by the balance
    heuristic for a fixed number of each (Veach and Guibas, SIGGRAPH 1995)::

        weight_ij = P_n(j) m_ij (c_j - c_ij) / (b ((b - 1) P_d(j) + k' uniform(j)))

    Unbiased with replacement. Linked pairs get weight 0 under ``mask``. b user slots, at most
    b + k' item slots, as equal items are merged. Cost per link: O(V + degree).
    """

    def draw(self, start: int, count: int) -> list[Draw]:
        """See :meth:`Sampler.draw`; each batch has a stream of its own for its uniform items."""
        in_use, size = self.graph.items_in_use, (1, self.config.uniform_items)
        draws = []
        for number, draw in enumerate(super().draw(start, count), start):
            rng = self.streams.generator("uniform-items", number)
            draws.append(draw._replace(items=in_use[rng.integers(len(in_use), size=size)]))
        return draws

    def claims(self) -> Claims:
        """See :meth:`Sampler.claims`."""
        return super().claims()._replace(drawn_items=self._uniform)

    @property
    def _uniform(self) -> Float64:
        return (self.graph.item_degrees > 0) / len(self.graph.items_in_use)

    @cached_property
    def rho(self) -> Float64:
        """See :attr:`Sampler.rho`; here over the sum of a row's distributions."""
        b, extra = self.config.batch_size, self.config.uniform_items
        return self.importance((b - 1) * self.noise.data + extra * self._uniform)

    def _pair_importance(self, items: Int32) -> Float64:
        return self.rho[items] / self.config.batch_size


class MemorySharingSampler(SharingSampler):
    """Negative Sharing with a memory of the last M positive links' item vectors (Wang et al. 2020).

    With M_n items of earlier links known so far, and item j brought by c_j others of the batch, or
    by one slot of the memory::

        weight_ij = rho_j m_ij c_j / (b (b - 1 + M_n))

    With replacement and present vectors each of the b - 1 + M_n items is a draw from P_d: the value
    is unbiased. A remembered vector is a constant of earlier parameters: the gradient is biased.

    Before the end of a warm start batches are those of Negative Sharing, while the memory fills.

    The layout is :class:`ncfbench.sampling.batch.Remembered`: M slots of remembered items, the
    oldest first, then the batch's own. Cost per link: O(V + M + degree).
    """

    def _check(self) -> None:
        super()._check()
        b, n, size = self.config.batch_size, self.graph.n_links, self.config.memory
        if size > n - b:
            use = f"--memory {(n - b) // 4 or 1} or less"
            if n == b:
                use = f"--batch-size {n // 2} --memory {n // 2}" if n > 3 else "--sampler ns"
            raise UsageError(
                f"memory = {size}: beside a batch of {b} an epoch has {n - b:,} links to"
                f" remember. Use {use}."
            )

    def draw(self, start: int, count: int) -> list[Draw]:
        """See :meth:`Sampler.draw`; ``items`` are those of the memory, the oldest first."""
        draws, warm = self._draws(start, count), max(self.config.first_hard - start, 0)
        plain = [WarmDraw(draw.links, draw.users, draw.users) for draw in draws[:warm]]
        return [*plain, *draws[warm:]]

    @cached_property
    def warm(self) -> NegativeSharingSampler:
        """The sampler of the warm start, which remembers nothing."""
        return self._before(NegativeSharingSampler, sampler="ns")

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """See :meth:`Sampler.assemble`."""
        if isinstance(draw, WarmDraw):
            return self.warm.assemble(Draw(*draw), max(capacity - int(self.config.memory), 0))
        return super().assemble(draw, capacity)

    def _draws(self, start: int, count: int) -> list[Draw]:
        b, size = self.config.batch_size, self.config.memory
        none = np.zeros((b, 0), np.int32)
        if self.positives.replacement:
            # Batches that are independent of each other have memories of their own, always full.
            drawn = self.positives.take(start * (size + b), count * (size + b))
            return [
                Draw(links[size:], none, self.graph.link_item[links[None, :size]])
                for links in drawn.reshape(count, size + b)
            ]
        low = max(start * b - size, 0)
        links = self.positives.take(low, (start + count) * b - low)
        missing = np.full(size - (start * b - low), MISSING, np.int32)
        items = np.concatenate([missing, self.graph.link_item[links]])
        return [
            Draw(own, none, items[None, number * b : number * b + size])
            for number, own in enumerate(links[start * b - low :].reshape(count, b))
        ]

    def _pair_importance(self, items: Int32) -> Float64:
        """Return the weight of a pair, but for the number of items that a link meets."""
        return self.rho[items] / self.config.batch_size

    def claims(self) -> Claims:
        """See :meth:`Sampler.claims`; an item stays in the memory for several batches."""
        reach = -(-self.config.memory // self.config.batch_size)
        claims = super().claims()._replace(drawn_items=None, reach=reach)
        return claims.with_bias(
            "remembered vectors are constants, of earlier parameters: items get a part of their"
            " gradient as negatives"
        )

    def required_capacity(self, draw: Draw) -> int:
        """See :meth:`Sampler.required_capacity`."""
        own = self._count_items(draw._replace(items=draw.users))
        return own + int(self.config.memory)

    @property
    def most_item_slots(self) -> int:
        """See :attr:`Sampler.most_item_slots`: items of the memory come beside the batch's own."""
        return int(self.config.memory) + super().most_item_slots

    def _share(self, draw: Draw, capacity: int) -> Batch:
        size, known = draw.items.size, draw.items[0] != MISSING
        own = super()._share(draw._replace(items=draw.users), max(capacity - size, 0))
        items, users = np.where(known, draw.items[0], np.int32(0)), own.users
        met = len(draw.links) - 1 + int(known.sum())
        weight = np.empty((len(users), size + len(own.items)), self.weight_dtype)
        np.divide(own.negatives.weight, met, out=weight[:, size:])
        weight[:, :size] = self._pair_importance(items) * known / met
        if self.config.mask:
            weight[self._linked_slots(users, items, repeat=True)] = 0
        return own._replace(
            items=np.concatenate([items, own.items]),
            pos_item=own.pos_item + np.int32(size),
            negatives=Remembered(weight),
            n_items=np.int32(size + own.n_items),
        )
