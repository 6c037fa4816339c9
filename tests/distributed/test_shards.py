"""Batches in shards: identifiable ids through every layout."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from ncfbench.catalog import SAMPLERS, find_sampler
from ncfbench.config import RunConfig, complete
from ncfbench.data.store import Dataset
from ncfbench.distributed.shards import ShardedSampler, cut
from ncfbench.errors import CheckFailedError
from ncfbench.rng import Streams
from ncfbench.sampling import Draw, make_sampler, plan_capacity
from ncfbench.sampling.batch import Batch, Listed, Shared
from ncfbench.sampling.shared import StratifiedSharingSampler

SAMPLERS = {name: SAMPLERS[name] for name in SAMPLERS if not find_sampler(name).keeps_vectors}


def settings(sampler: str, **more: Any) -> RunConfig:
    return complete(
        {"sampler": sampler, "batch_size": 64, "negatives": 3, "dataset": "tiny"} | more
    )


def links_of(batch: Batch, parts: int) -> list[dict[tuple[int, int, int], float]]:
    """Row by row: the positive link, and each negative link's weight by ids, without zeros."""
    rows = []
    per, users = len(batch.pos_user) // parts, len(batch.users) // parts
    for row in range(len(batch.pos_user)):
        part = row // per
        own_users = batch.users[part * users : (part + 1) * users]
        user, item = own_users[batch.pos_user[row]], batch.items[batch.pos_item[row]]
        found: dict[tuple[int, int, int], float] = {(-1, int(user), int(item)): 1.0}
        negatives = batch.negatives
        if isinstance(negatives, Listed):
            terms = zip(
                own_users[negatives.user[row]],
                batch.items[negatives.item[row]],
                negatives.weight[row],
                strict=True,
            )
        else:
            terms = zip([user] * len(batch.items), batch.items, negatives.weight[row], strict=True)
        for column, (u, v, weight) in enumerate(terms):
            if weight:
                key = (column if isinstance(negatives, Listed) else 0, int(u), int(v))
                found[key] = found.get(key, 0.0) + float(weight)
        rows.append(found)
    return rows


def assert_together(halves: list[Batch], whole: Batch) -> None:
    """Two processes' nodes and links are those of one, in their order."""
    for name in ("users", "items", "pos_user", "pos_item"):
        both = np.concatenate([getattr(half, name) for half in halves])
        assert both.tolist() == getattr(whole, name).tolist()
    if isinstance(whole.negatives, Shared):
        weight = np.concatenate([half.negatives.weight for half in halves])
        np.testing.assert_array_equal(weight, whole.negatives.weight)


def test_the_docstrings_example() -> None:
    both = np.array([0, 1], np.int32)
    weight = np.array([[0, 0.5], [0.5, 0]])
    nodes = np.array([7, 9], np.int32), np.array([30, 31], np.int32)
    parts = cut(Batch(*nodes, both, both, Shared(weight), np.int32(2)), 2)
    assert parts.users.tolist() == [7, 9]
    assert parts.pos_user.tolist() == [0, 0]
    assert parts.pos_item.tolist() == [0, 1]
    assert parts.negatives.weight.tolist() == weight.tolist()


@pytest.mark.parametrize(
    ("sampler", "strata"),
    [*((name, "item") for name in SAMPLERS), ("strat", "user"), ("strat-ns", "user")],
)
def test_a_shard_has_the_links_of_its_rows(tiny: Dataset, sampler: str, strata: str) -> None:
    """Every link by its ids, for all processes together and for each of two; shapes do not depend
    on the batch.
    """
    config = settings(sampler, strata=strata)
    made = make_sampler(tiny.graph, config, Streams(0))
    both = [ShardedSampler(made, 8, own) for own in (range(4), range(4, 8))]
    shapes = set()
    for draw, room in zip(made.draw(3, 4), (230, 8) * 2, strict=True):
        whole, parts = made.assemble(draw, room), ShardedSampler(made, 8).assemble(draw, room)
        assert len(parts.items) % 8 == 0
        assert links_of(parts, 8) == links_of(whole, 1)
        assert parts.n_items == whole.n_items
        assert_together([sampler.assemble(draw, room) for sampler in both], parts)
        shapes.add(tuple(len(array) for array in (parts.users, parts.pos_user)))
        capacities = {sampler.batch_capacity(sampler.assemble(draw, room)) for sampler in both}
        assert capacities == {len(parts.items)}
    assert len(shapes) == 1


class Doubled(StratifiedSharingSampler):
    """A sampler of one's own that shares negatives, written as the documented signature says."""

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        batch = super().assemble(draw, capacity)
        return batch._replace(negatives=Shared(2 * batch.negatives.weight))


class Quartered(Doubled):
    """The same, assembling some rows by itself: those of the whole, a quarter of them."""

    def assemble_rows(self, draw: Draw, capacity: int, rows: slice) -> Batch:
        batch = self.assemble(draw, capacity)
        return batch._replace(negatives=Shared(batch.negatives.weight[rows] / 8))


def test_an_overridden_assemble_is_spread(tiny: Dataset) -> None:
    """Rows that an inherited ``assemble_rows`` makes would be those of another sampler."""
    draw, weights = None, {}
    for kind in (StratifiedSharingSampler, Doubled, Quartered):
        made = kind(tiny.graph, settings("strat-ns", devices=2), Streams(0))
        draw = made.draw(0, 1)[0] if draw is None else draw
        spread = ShardedSampler(made, 2, range(1, 2)).assemble(draw, 64)
        weights[kind] = spread.negatives.weight
    assert weights[StratifiedSharingSampler].any()
    assert (weights[Doubled] == 2 * weights[StratifiedSharingSampler]).all()
    assert (weights[Quartered] == weights[StratifiedSharingSampler] / 4).all()


def test_rows_that_name_too_many_users_are_refused() -> None:
    listed = Listed(
        np.array([[0], [1]], np.int32), np.zeros((2, 1), np.int32), np.ones((2, 1), np.float32)
    )
    both = np.array([0, 1], np.int32)
    with pytest.raises(CheckFailedError, match="Use --devices 1"):
        cut(Batch(both, both, both[::-1].copy(), both, listed, np.int32(2)), 2)


def test_the_plan_is_a_multiple_of_the_devices(tiny: Dataset) -> None:
    for sampler, devices in (("ns", 1), ("ns", 8), ("iid", 16), ("strat-ns", 8)):
        config = settings(sampler, devices=devices)
        alone = plan_capacity(tiny.graph, dataclasses.replace(config, devices=1))
        assert plan_capacity(tiny.graph, config) == -(-alone // devices) * devices
