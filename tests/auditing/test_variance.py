"""Parts of a gradient's variance, with a gradient that needs no towers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ncfbench.auditing.blocks import Block
from ncfbench.auditing.variance import measure_parts, meeting_all_users
from ncfbench.auditing.verdict import AUDIT_SEED, BLOCKS
from ncfbench.config import complete
from ncfbench.data.store import Dataset
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.sampling.batch import negative_ids, negative_weights

SMALL = {"batch_size": 32, "negatives": 3, "stratum_size": 4}


class Sums:
    """Stands for an anchor: vectors of links, summed by their weights."""

    def __init__(self, dataset: Dataset) -> None:
        rng = np.random.default_rng(0)
        self.users, self.items = (
            rng.normal(size=(count, 4)) for count in (dataset.n_users, dataset.n_items)
        )
        self.gradient = np.ones(16)

    def mean(self, block: Block) -> np.ndarray:
        return np.mean([self._of(batch) for batch in block.batches], axis=0)

    def _of(self, batch: Any) -> np.ndarray:
        users, items = negative_ids(batch)
        found = np.einsum(
            "nm,nmi,nmj->ij", negative_weights(batch), self.users[users], self.items[items]
        )
        own = self.users[batch.users[batch.pos_user]].T @ self.items[batch.items[batch.pos_item]]
        return (found - own / len(batch.pos_user)).reshape(-1)


@pytest.mark.parametrize("sampler", ["neg", "strat", "strat-ns", "strat-all"])
def test_parts_add_up_and_all_users_have_none(tiny: Dataset, sampler: str) -> None:
    config = complete(SMALL | {"sampler": sampler})
    anchor: Any = Sums(tiny)
    (found,) = measure_parts(tiny.graph, config, [anchor], 3 * BLOCKS)
    made = make_sampler(tiny.graph, config, Streams(AUDIT_SEED), replacement=True)
    batches = [made.assemble(draw) for draw in made.draw(0, 3 * BLOCKS)]
    means = np.stack([anchor.mean(Block(tiny.graph, config, [batch])) for batch in batches])
    means = means.reshape(BLOCKS, 3, -1).mean(axis=1)
    spread = np.sum((means - means.mean(axis=0)) ** 2) / (BLOCKS - 1) * 3 / 16
    assert sum(found) == pytest.approx(spread, rel=1e-6)
    assert found.items > -0.01 * spread
    assert found.positive_links > 0
    if sampler == "strat-all":
        assert found.users == pytest.approx(0, abs=1e-9)
    else:
        assert found.users > 0


@pytest.mark.parametrize("sampler", ["neg", "ns"])
def test_a_batch_that_meets_all_users_keeps_its_links(tiny: Dataset, sampler: str) -> None:
    config = complete(SMALL | {"sampler": sampler, "mask": False})
    made = make_sampler(tiny.graph, config, Streams(0))
    batch = made.assemble(made.draw(0, 1)[0])
    meeting = meeting_all_users(tiny.graph, batch, mask=True)
    for name in ("user", "item"):
        ids = {"user": "users", "item": "items"}[name]
        slots = [(getattr(some, ids), getattr(some, f"pos_{name}")) for some in (batch, meeting)]
        before, after = (nodes[positive] for nodes, positive in slots)
        assert np.array_equal(before, after)
    users, items = negative_ids(meeting)
    assert not negative_weights(meeting)[tiny.graph.linked(users, items)].any()
