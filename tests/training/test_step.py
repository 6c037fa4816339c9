"""The training step: Adam on the sampled objective, for every sampler, loss and encoder."""

from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.processes import SMALL
from support.training import FROM_SCRATCH, Trial

from ncfbench.catalog import SAMPLERS, find_sampler, losses_for
from ncfbench.config import complete
from ncfbench.models.dropout import Dropout, rates_of
from ncfbench.training.probe import Probe
from ncfbench.training.state import copy_state
from ncfbench.training.step import Program, Trainer


def settings(**more):
    return complete(SMALL | more)


def assert_alike(left, right, tolerance):
    norm = np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(left)))
    for a, b in zip(*map(jax.tree.leaves, (left, right)), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance * norm)


def test_the_step_is_adam_on_the_gradient(tiny):
    """With bias correction the first update is lr g / (|g| + eps)."""
    config = settings(sampler="ns", encoder="bow", word_dropout=0.0, item_dropout=0.0)
    trial = Trial(tiny, config)
    batch = next(trial.batches())
    _, gradient = trial.gradient(batch)
    after, _ = trial.trainer.step(copy_state(trial.state), batch, trial.content)
    leaves = map(jax.tree.leaves, (trial.parameters, gradient, after.parameters))
    for before, g, actual in zip(*leaves, strict=True):
        expected = np.asarray(before) - config.learning_rate * g / (np.abs(g) + 1e-8)
        np.testing.assert_allclose(actual, expected, atol=2e-6)


def test_padding_slots_change_nothing(tiny):
    """More capacity: the same loss and gradient, dropout included."""
    trial = Trial(tiny, settings(sampler="strat-ns", encoder="bow"))
    dropout = Dropout(jnp.uint32(0), jnp.uint32(3), rates_of(trial.config))
    value, gradient = trial.gradient(trial.batch(0), dropout)
    more, same = trial.gradient(trial.batch(0, 150), dropout)
    assert value == pytest.approx(more, rel=1e-6)
    assert_alike(gradient, same, 1e-6)


COMBINATIONS = [(s, loss, "mf") for s in SAMPLERS for loss in losses_for(find_sampler(s))]
COMBINATIONS += [("ns", "sg", encoder) for encoder in FROM_SCRATCH if encoder != "mf"]


@pytest.mark.long_cases(r"(?!strat-ns-(hinge|mse|softmax)-mf|neg-sg-mf|ns-sg-bow)")
@pytest.mark.parametrize(("sampler", "loss", "encoder"), COMBINATIONS)
def test_every_combination_lowers_the_probe(tiny, sampler, loss, encoder):
    """The paper's learning rates, dropout on, one compilation; the probe is exact."""
    trial = Trial(tiny, settings(sampler=sampler, loss=loss, encoder=encoder))
    trainer, state = trial.trainer, trial.state
    probe = Probe(tiny.graph, trial.config, trial.embedder)
    assert len(probe.links.user) == tiny.graph.n_links, "exact"
    before = probe(state.parameters)
    # Free vectors, which begin near zero, leave it slowest with these losses.
    is_slow = encoder == "mf" and loss in ("mse", "softmax", "softmax-logq")
    count = (120 if loss == "mse" else 40) * (5 if is_slow else 1)
    for batch in islice(trial.batches(), count):
        state, _ = trainer.step(state, batch, trial.content)
    assert trainer.traces == 1
    assert int(state.iteration) == count
    assert probe(state.parameters) < 0.97 * before


@pytest.mark.parametrize(
    "more",
    [
        {"encoder": "bow"},
        {"encoder": "bow", "optimizer": "row-adam"},
        {"encoder": "bow", "optimizer": "adagrad", "user_tower": "history"},
    ],
    ids=lambda more: "-".join(more.values()),
)
def test_runs_that_differ_in_numbers_share_a_program(tiny, more):
    """It trains each as a program of its own does, to the last bit; others have another one."""
    small = {"sampler": "ns", "loss": "softmax", "batch_size": 48} | more
    first = Trial(tiny, settings(**small, weight_decay=0.1, word_dropout=0.4))
    first.trainer.step(copy_state(first.state), first.batch(0, 150), first.content)
    numbers = {"learning_rate": 0.03, "weight_decay": 0.5, "word_dropout": 0.2, "seed": 3}
    other = Trial(tiny, settings(**small, **numbers, item_dropout=0.3))
    assert other.trainer.towers == first.trainer.towers
    own = Program(other.trainer)
    for number in range(3):
        batch, before = other.batch(number, 150), copy_state(other.state)
        expected, loss = own.step(before, batch, other.content, other.trainer.scalars)
        other.state, same = other.trainer.step(other.state, batch, other.content)
        assert same == loss
        for one, two in zip(*map(jax.tree.leaves, (expected, other.state)), strict=True):
            np.testing.assert_array_equal(one, two)
    assert other.trainer.traces == first.trainer.traces == 1
    for more in ({"item_dropout": 0.0}, {"gamma": 3.0}, {"dimension": 5}, {"batch_size": 40}):
        different = Trial(tiny, settings(**(small | numbers | more)))
        assert different.trainer.traces == 0, more


def test_a_state_is_copied_by_one_program(tiny, caplog):
    """Not by one for each shape: a short run would mostly compile."""
    _, state = Trainer.create(complete({"encoder": "cnn", "dimension": 7, "filters": 9}), tiny)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        copied = copy_state(state)
    assert sum(text.startswith("Finished XLA compilation") for text in caplog.messages) == 1
    for one, other in zip(jax.tree.leaves(copied), jax.tree.leaves(state), strict=True):
        assert one is not other
        assert np.array_equal(one, other)
