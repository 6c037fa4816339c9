"""Optimisers against plain NumPy: rows of tables that a batch names, and rows that rest."""

import math
from dataclasses import replace
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.training import SMALL, Trial

from ncfbench.catalog import BUILT_IN
from ncfbench.config import complete
from ncfbench.config.run_config import digest
from ncfbench.errors import UsageError
from ncfbench.models.tables import kind_of, names_of
from ncfbench.sampling import plan_capacity
from ncfbench.training import optimizer as optimizers
from ncfbench.training import rows as blocks
from ncfbench.training.optimizer import Optimizer, still_to_move, tables_by_row
from ncfbench.training.state import TrainState
from ncfbench.training.step import state_shapes

ROWS, WIDTH, NAMED = 7, 3, 4
NAMES = ("user_tower", "vectors", "embedding")
RATE = 0.05


def config_of(**more):
    return complete(SMALL | {"learning_rate": RATE, "optimizer": "row-adam"} | more)


class Run:
    """Updates of one table by row, and of a bias, by gradients of named rows; compiled once."""

    def __init__(self, optimizer, decay):
        config = config_of(optimizer=optimizer, weight_decay=decay)
        self.own = Optimizer(config, {NAMES: "users"})
        self.scalars = jax.tree.map(jnp.asarray, self.own.scalars())
        self.table = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)
        self.advance = jax.jit(self._advance)
        self.settle = jax.jit(self.own.settle)

    def begin(self):
        tower = {"vectors": {"embedding": jnp.asarray(self.table)}, "bias": jnp.ones(WIDTH)}
        parameters = {"user_tower": tower}
        optimizer, touched = self.own.init(parameters)
        return TrainState(parameters, optimizer, jnp.uint32(0), touched)

    def _advance(self, state, ids, slopes):
        held = self.own.hold(state, {"users": ids}, self.scalars)
        rows = ids if held.rows.users is None else held.rows.users
        vectors = held.parameters["user_tower"]["vectors"]["embedding"]
        gradient = jnp.zeros_like(vectors).at[rows].add(slopes)
        tower = {"vectors": {"embedding": gradient}, "bias": jnp.sum(slopes, axis=0)}
        return self.own.update(held, {"user_tower": tower}, self.scalars)

    def whole(self, state):
        settled = self.settle(state, self.scalars)
        return np.asarray(settled.parameters["user_tower"]["vectors"]["embedding"])


def reference(optimizer, decay, table, gradients):
    """All rows, in float64, by the papers' formulas; optax's Adagrad begins with squares of 0.1."""
    x, m, v = table.astype(np.float64), np.zeros(table.shape), np.zeros(table.shape)
    squares = np.full(table.shape, 0.1)
    for t, g in enumerate(gradients, 1):
        if optimizer == "adagrad":
            squares += g**2
            step = g / np.sqrt(squares + 1e-7)
        else:
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            step = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        x = x - RATE * (step + decay * x)
    return x


IDS = st.lists(st.integers(0, ROWS - 1), min_size=NAMED, max_size=NAMED)
PATTERNS = st.lists(st.tuples(IDS, st.integers(0, 300)), min_size=1, max_size=12)
LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("way", "optimizer", "decay"),
    [
        ("named", "row-adam", 0.5),
        ("named", "adagrad", 0.0),
        ("blocks", "row-adam", 0.5),
        pytest.param("blocks", "adagrad", 0.5, marks=LONG),
        pytest.param("all", "row-adam", 0.0, marks=LONG),
    ],
)
def test_rows_follow_an_update_of_all_rows(way, optimizer, decay, monkeypatch):
    """Any rows, named twice or never, with up to 300 iterations between batches."""
    few = dict.fromkeys(optimizers.FEW, math.inf if way == "all" else 0)
    monkeypatch.setattr(optimizers, "FEW", few)
    if way == "blocks":
        monkeypatch.setattr(blocks, "BLOCK_ROWS", 2)
    run = Run(optimizer, decay)

    @settings(max_examples=15, deadline=None)
    @given(PATTERNS, st.integers(0, 9))
    def check(pattern, seed):
        rng, state, dense = np.random.default_rng(seed), run.begin(), []
        for ids, rest in pattern:
            # Iterations without this table: only their number counts.
            state = state._replace(iteration=state.iteration + np.uint32(rest))
            slopes = rng.normal(size=(NAMED, WIDTH)).astype(np.float32)
            state = run.advance(counted(state), jnp.array(ids, jnp.int32), slopes)
            dense += [np.zeros((ROWS, WIDTH))] * rest
            dense.append(np.zeros((ROWS, WIDTH)))
            np.add.at(dense[-1], ids, slopes)
        expected = reference(optimizer, decay, run.table, iter(dense))
        np.testing.assert_allclose(run.whole(state), expected, rtol=2e-4, atol=2e-5)

    check()


def counted(state):
    """Let optax count the iterations that were left out, too."""
    count = jnp.asarray(state.iteration, jnp.int32)
    first = state.optimizer[0]
    if "count" not in first._fields:
        return state
    return state._replace(optimizer=(first._replace(count=count), *state.optimizer[1:]))


@pytest.mark.usefixtures("by_row")
def test_a_row_without_gradient_rests():
    """Named or not, its bits stay: padding changes nothing, nor does settling twice."""
    run = Run("row-adam", 0.5)
    state = run.begin()
    ids, slopes = np.array([1, 1, 5, 0], np.int32), np.ones((NAMED, WIDTH), np.float32)
    for zero in range(3):
        slopes[-1] = 0
        state = run.advance(state, np.roll(ids, zero), np.roll(slopes, zero, axis=0))
    table = np.asarray(state.parameters["user_tower"]["vectors"]["embedding"])
    np.testing.assert_array_equal(table[[0, 2, 3, 4, 6]], run.table[[0, 2, 3, 4, 6]])
    assert (table[[1, 5]] != run.table[[1, 5]]).all()
    assert np.asarray(state.touched["users"]).tolist() == [0, 3, 0, 0, 0, 3, 0]
    once = run.settle(state._replace(iteration=np.uint32(40)), run.scalars)
    jax.tree.map(np.testing.assert_array_equal, once, run.settle(once, run.scalars))


@pytest.mark.parametrize("kept", [1.0, 0.97])
def test_the_way_that_is_left_is_the_sum_of_updates(kept):
    """By adding up what Adam does with a gradient of zero for 4,000 iterations."""
    for t in (1, 10, 1000, 20000):
        m, v, moved = 1.0, 1.0, 0.0
        for j in range(1, 4000):
            m, v = 0.9 * m, 0.999 * v
            moved += m / (1 - 0.9 ** (t + j)) / math.sqrt(v / (1 - 0.999 ** (t + j))) / kept**j
        distance = still_to_move(kept)[min(t, optimizers.LAST_BIASED)]
        assert distance == pytest.approx(moved, rel=1e-5)


def trained(dataset, count, **more):
    trial = Trial(dataset, config_of(**more))
    trainer, state, layout = trial.trainer, trial.state, trial.trainer.layout
    content, slots = layout.replicate(trial.content), plan_capacity(dataset.graph, trial.config)
    for batch in islice(trial.sampler.batches(0, slots), count):
        state, _ = trainer.step(state, layout.put(batch), content)
    return trainer, layout.to_host(trainer.settle(state))


HISTORY = {"encoder": "mf", "user_tower": "history"}


@pytest.mark.parametrize(
    ("more", "tables"),
    [
        (HISTORY | {"own_vector": True, "sampler": "neg"}, 3),
        ({"sampler": "ns", "coupling": "regularised", "item_block": 8}, 3),
        pytest.param({"sampler": "strat-ns", "word_dropout": 0.2}, 2, marks=LONG),
        pytest.param({"word_dimension": 100, "sampler": "iid"}, 2, marks=LONG),
        pytest.param({"encoder": "gru", "sampler": "strat-ns", "gru_units": 8}, 2, marks=LONG),
        pytest.param(HISTORY | {"sampler": "ns", "devices": 2}, 2, marks=LONG),
    ],
)
@pytest.mark.usefixtures("by_row")
def test_training_by_row_is_training_by_adam(tiny, more, tables, monkeypatch):
    """Users, histories, items, free items and words; eps, which a rest leaves out, is tiny."""
    monkeypatch.setattr(optimizers, "EPSILON", 1e-12)
    more = more | {"learning_rate": 0.01}
    trainer, state = trained(tiny, 12, **more)
    assert len(trainer.optimizer.tables) == tables
    _, expected = trained(tiny, 12, **more, optimizer="adam")
    parameters = state.parameters, expected.parameters
    for one, other in zip(*map(jax.tree.leaves, parameters), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-3)
        assert np.mean(np.abs(np.asarray(one) - np.asarray(other))) < 2e-5


def test_nothing_of_a_tables_size_is_made(tiny):
    """By XLA's account: a number a row is too much, where Adam needs four tables."""
    rows = 80_000
    wide = replace(tiny, n_users=rows, vocabulary=("",) * rows)
    more, needed = {"batch_size": 16, "sampler": "ns", "dimension": 4}, {}
    for name in ("row-adam", "adam"):
        trial = Trial(wide, config_of(**more, optimizer=name))
        batch = next(trial.batches())
        needed[name] = trial.trainer.step_bytes(trial.state, batch, trial.content)
    assert needed["row-adam"] < 4 * rows
    assert needed["adam"] > 4 * 4 * rows


def test_auto_is_adam_where_tables_are_small(tiny, monkeypatch):
    """And by row from a size on, which is no part of the identity, for all samplers alike."""
    auto = config_of(optimizer="auto", encoder="mf", sampler="ns")
    unset = {"learning_rate": RATE, "encoder": "mf", "sampler": "ns"}
    assert digest(auto) == digest(complete(SMALL | unset))
    state = state_shapes(auto, tiny)
    assert not state.touched
    adam = jax.eval_shape(optax.adam(0.1).init, state.parameters)
    assert jax.tree.structure(state.optimizer) == jax.tree.structure(adam)
    monkeypatch.setattr(optimizers, "LARGE", tiny.n_users + 1)
    assert {*tables_by_row(auto, state.parameters).values()} == {"items"}
    # A table of longer rows is large with fewer of them, and of wide ones always.
    cases = ((1.3, 60, False), (1.3, 70, True), (9, 99, False), (9, 100, True))
    for times, dimension, is_large in cases:
        monkeypatch.setattr(optimizers, "LARGE", times * tiny.n_items)
        wide = replace(auto, dimension=dimension)
        shapes = state_shapes(wide, tiny).parameters
        assert ("items" in tables_by_row(wide, shapes).values()) == is_large


def test_every_table_by_id_is_declared(featured):
    """Of all that are built in: words, items, and the users and histories of user towers."""
    sizes = {(rows,) for rows in (featured.n_users, featured.n_items, featured.n_words + 1)}
    encoders = [{"encoder": name} for name in BUILT_IN["encoder"] if name != "bert"]
    towers = [{"user_tower": name} for name in BUILT_IN["user_tower"]]
    for more in (*encoders, *towers):
        config = config_of(**{"encoder": "mf", "sampler": "ns"} | more)
        shapes = state_shapes(config, featured).parameters
        kinds = [
            kind_of(config, path)
            for path, leaf in jax.tree_util.tree_leaves_with_path(shapes)
            if leaf.shape[:1] in sizes and names_of(path)[-1] == "embedding"
        ]
        assert kinds, more
        assert None not in kinds, more


def test_a_decay_of_all_weights_is_refused():
    with pytest.raises(UsageError, match="Use a weight_decay of 0.1 or less"):
        config_of(weight_decay=0.9, learning_rate=0.1)
