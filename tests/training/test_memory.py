"""The memory of item vectors: what a batch meets, what the step remembers, and how stale it is."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trial import Trial

from ncfbench.config import RunConfig, complete
from ncfbench.data.store import Dataset
from ncfbench.models.dropout import Dropout
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.training.state import copy_state


def configure(**more: Any) -> RunConfig:
    small = {"sampler": "xbm", "encoder": "bow", "dimension": 6, "word_dimension": 6}
    return complete(small | {"batch_size": 32, "memory": 80, "item_dropout": 0.0} | more)


@pytest.mark.parametrize("mask", [True, False])
def test_weights_by_definition(tiny: Dataset, mask: bool) -> None:
    """The items of the 80 links before the batch's, the oldest first; fewer in the beginning."""
    graph, config = tiny.graph, configure(mask=mask, noise="0.5")
    made = make_sampler(graph, config, Streams(3), weight_dtype=np.float64)
    draws = made.draw(0, 6)
    links = np.concatenate([draw.links for draw in draws])
    noise = graph.item_degrees**0.5 / np.sum(graph.item_degrees**0.5)
    pairs = set(zip(graph.link_user.tolist(), graph.link_item.tolist(), strict=True))
    for number, draw in enumerate(draws):
        batch = made.assemble(draw, 200)
        before = links[max(32 * number - 80, 0) : 32 * number]
        met = 31 + len(before)
        items = graph.link_item[before]
        assert batch.items[80 - len(before) : 80].tolist() == items.tolist()
        weight = batch.negatives.weight
        assert not weight[:, : 80 - len(before)].any()
        for row, link in enumerate(draw.links.tolist()):
            user = int(graph.link_user[link])
            for slot, item in enumerate(items.tolist(), 80 - len(before)):
                able = not mask or (user, item) not in pairs
                rho = noise[item] / (graph.item_degrees[item] / graph.n_links)
                assert weight[row, slot] == pytest.approx(able * rho / (32 * met), abs=1e-12)
        plain = make_sampler(
            graph,
            complete({"sampler": "ns", "batch_size": 32, "mask": mask, "noise": "0.5"}),
            Streams(3),
            weight_dtype=np.float64,
        ).assemble(draw._replace(items=np.zeros((32, 0), np.int32)), 120)
        np.testing.assert_allclose(weight[:, 80:], plain.negatives.weight * 31 / met, rtol=1e-12)
        assert batch.items[80:].tolist() == plain.items.tolist()
        assert (batch.pos_item - 80).tolist() == plain.pos_item.tolist()


def test_nothing_is_known_in_a_warm_start(tiny: Dataset) -> None:
    """Four batches are those of ``ns``; then it is full, with what the steps left there."""
    made = make_sampler(tiny.graph, configure(warm_start=4), Streams(3))
    other = make_sampler(tiny.graph, configure(), Streams(3))
    plain = make_sampler(tiny.graph, complete({"sampler": "ns", "batch_size": 32}), Streams(3))
    draws = [*made.draw(0, 3), *made.draw(3, 4)]
    for number, draw in enumerate(draws):
        found, source = made.assemble(draw, 200), plain if number < 4 else other
        slots = 120 if number < 4 else 200
        expected = source.assemble(source.draw(number, 1)[0], slots)
        assert type(found.negatives) is type(expected.negatives)
        for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(one, two)
    trial = Trial(tiny, configure(warm_start=4, word_dropout=0.0))
    state, items, vectors = trial.state, [], []
    for number in range(4):
        batch = trial.batch(number, 200)
        own = tiny.graph.link_item[trial.sampler.draw(number, 1)[0].links]
        vectors.append(np.asarray(trial.embedder.items(copy_state(state).parameters, own)))
        items += own.tolist()
        state, _ = trial.trainer.step(state, batch, trial.content)
    np.testing.assert_allclose(state.carry, np.concatenate(vectors)[-80:], rtol=1e-5, atol=1e-6)
    assert trial.batch(4, 200).items[:80].tolist() == items[-80:]


def test_the_step_remembers_the_vectors_of_the_last_links(tiny: Dataset) -> None:
    """Those of the parameters before each update, in the order of the links; and its gradient is
    that of the batch with these vectors as constants.
    """
    trial = Trial(tiny, configure(word_dropout=0.0))
    trainer, state, content = trial.trainer, trial.state, trial.content
    expected = np.zeros((80, 6), np.float32)
    gradient = jax.jit(trainer._gradient)
    for draw in trial.sampler.draw(0, 4):
        batch = trial.sampler.assemble(draw, 200)
        parameters = copy_state(state).parameters
        dropout = Dropout(jnp.uint32(0), jnp.uint32(1))
        # The memory holds vectors of older parameters, so that its part differs from a fresh one.
        *_, found = gradient(parameters, batch, content, dropout, expected)
        assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(found))
        own = np.asarray(trial.embedder.items(parameters, tiny.graph.link_item[draw.links]))
        expected = np.concatenate([expected, own])[-80:]
        state, _ = trainer.step(state, batch, content)
        np.testing.assert_allclose(state.carry, expected, rtol=1e-5, atol=1e-6)


def test_a_fresh_memory_has_the_audits_gradient(tiny: Dataset) -> None:
    """With the vectors of the present parameters the step's gradient is that which audits take."""
    trial = Trial(tiny, configure(word_dropout=0.0))
    batch = trial.batch(3, 200)
    vectors = trial.embedder.items(trial.parameters, batch.items[:80])
    given = trial.parameters, batch, trial.content, None, vectors
    value, _, gradient = jax.jit(trial.trainer._gradient)(*given)
    other, audited = trial.gradient(batch)
    assert float(value) == pytest.approx(other, rel=1e-6)
    for one, two in zip(jax.tree.leaves(gradient), jax.tree.leaves(audited), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-7)


def test_staleness_by_hand(tiny: Dataset) -> None:
    """Without dropout the newest differ by one update, the oldest by three."""
    trial = Trial(tiny, configure(word_dropout=0.0, memory=96))
    trainer, state, embedder = trial.trainer, trial.state, trial.embedder
    assert trainer.carry.observe(state, embedder) is None
    kept = []
    for draw in trial.sampler.draw(0, 5):
        items = tiny.graph.link_item[draw.links]
        kept.append((items, np.asarray(embedder.items(state.parameters, items))))
        state, _ = trainer.step(state, trial.sampler.assemble(draw, 200), trial.content)
    found = trainer.carry.observe(state, embedder)
    assert found is not None
    columns, text = found
    expected = []
    for items, vectors in (kept[4], kept[2]):
        present = np.asarray(embedder.items(state.parameters, items))
        lengths = np.linalg.norm(present, axis=1)
        expected.append(np.mean(np.linalg.norm(vectors - present, axis=1) / lengths))
    assert tuple(columns.values()) == pytest.approx((*expected, 3), rel=1e-4)
    assert expected[0] < expected[1]
    assert "3 updates old" in text
