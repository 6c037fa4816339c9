"""Free item vectors that are pulled towards g: the penalty, and the vectors that score."""

from itertools import islice

import jax
import numpy as np
import pytest
from flax import nnx
from support.training import Trial

from ncfbench.config import complete, digest, unused_settings
from ncfbench.errors import UsageError

SMALL = {"dataset": "tiny", "batch_size": 64, "coupling": "regularised"}
SMALL |= {"dimension": 6, "word_dimension": 6, "encoder": "bow"}


@pytest.mark.parametrize(
    ("sampler", "loss"),
    [pytest.param("neg", "sg", marks=pytest.mark.long), ("strat-ns", "hinge")],
)
def test_the_penalty_is_a_mean_over_positive_links(tiny, sampler, loss):
    """Items of several links count for each; negatives and padding do not. Against NumPy."""
    chosen = {"sampler": sampler, "loss": loss}
    trials = [Trial(tiny, SMALL | chosen | {"coupling_weight": weight}) for weight in (0.0, 3.0)]
    batch = next(islice(trials[0].batches(), 1, None))
    (without, base), (value, gradient) = (trial.gradient(batch) for trial in trials)
    parameters, ids = trials[0].parameters, batch.items[batch.pos_item]
    towers = nnx.merge(trials[0].trainer.towers, parameters)
    g = np.asarray(jax.jit(towers.cold_items)(ids, trials[0].content), float)
    table = np.asarray(parameters["free_items"]["embedding"], float)
    lengths = np.linalg.norm(table, axis=1, keepdims=True) if loss == "hinge" else np.ones((1, 1))
    h = (table / lengths)[ids]
    assert value - without == pytest.approx(3 * np.mean(np.sum((h - g) ** 2, axis=1)), rel=1e-4)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(base["encoder"])), "W = 0"
    assert any(np.any(leaf) for leaf in jax.tree.leaves(gradient["encoder"]))
    # By a row of the table: 2 W / b for each link, along the surface of the ball if scaled to it.
    expected = np.zeros(table.shape)
    np.add.at(expected, ids, 3 * 2 / len(ids) * (h - g))
    if loss == "hinge":
        units = table / lengths
        expected = (expected - units * np.sum(units * expected, 1, keepdims=True)) / lengths
    pulled, free = (np.asarray(by["free_items"]["embedding"], float) for by in (gradient, base))
    np.testing.assert_allclose(pulled - free, expected, atol=1e-4 * np.abs(expected).max())


def test_g_scores_items_that_training_does_not_know(tiny):
    free, direct = (Trial(tiny, SMALL | {"coupling": kind}) for kind in ("regularised", "direct"))
    table, known = np.asarray(free.parameters["free_items"]["embedding"]), tiny.graph.items_in_use
    np.testing.assert_array_equal(free.embedder.items(free.parameters, known), table[known])
    cold = tiny.items_of("test")
    g = direct.embedder.items(direct.parameters, cold)
    np.testing.assert_array_equal(free.embedder.cold_items(free.parameters, cold), g)
    np.testing.assert_array_equal(free.ranks("test"), direct.ranks("test"))


def test_its_weight_counts_only_where_it_is_used():
    plain, weighted = complete({}), complete({"coupling_weight": 5.0})
    assert digest(plain) == digest(weighted)
    (warning,) = unused_settings(["coupling_weight"], weighted)
    assert "changes nothing with coupling direct; it is used by regularised." in warning
    regularised = [complete({"coupling": "regularised", "coupling_weight": w}) for w in (1.0, 5.0)]
    assert len({digest(config) for config in (plain, *regularised)}) == 3
    assert not unused_settings(["coupling_weight"], regularised[0])
    with pytest.raises(UsageError, match="free themselves. Use --encoder cnn, lstm, "):
        complete({"encoder": "mf", "coupling": "regularised"})
