"""Models of dense features: the numbers by definition, what they teach, and what is refused."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from support.processes import SMALL
from support.training import Trial

from ncfbench.config import complete
from ncfbench.errors import UsageError
from ncfbench.models.dropout import FIRST_FEATURE, Dropout, Rate, rates_of
from ncfbench.training.step import Trainer


def layers(parameters, features):
    """Hidden layers and a dense one, in plain NumPy."""
    hidden = parameters.get("hidden", {})
    for place in range(len(hidden)):
        layer = hidden[place]
        features = np.maximum(features @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"]), 0)
    dense = parameters["dense"]
    return np.asarray(features @ np.asarray(dense["kernel"]) + np.asarray(dense["bias"]))


def test_vectors_by_definition(featured):
    """An MLP of features; beside a text a linear map."""
    nodes = np.arange(featured.n_items, dtype=np.int32)
    for more in ({"encoder": "mlp", "mlp_units": 5, "mlp_layers": 2}, {"encoder": "bow"}):
        trial = Trial(featured, SMALL | more)
        parameters = jax.tree.map(lambda leaf: np.asarray(leaf) + 0.1, trial.parameters)
        config, embedder = trial.config, trial.embedder
        items, of_items = embedder.items(parameters, nodes), parameters["encoder"]
        if config.encoder == "mlp":
            expected = layers(of_items["layers"], featured.item_features)
        else:
            silent = jax.tree.map(np.copy, parameters)
            silent["encoder"]["layer"] = jax.tree.map(np.zeros_like, of_items["layer"])
            without = embedder.items(silent, nodes)
            expected = without + layers(of_items["layer"], featured.item_features)
        np.testing.assert_allclose(items, expected, rtol=1e-4, atol=1e-5)


def test_dropped_features_are_zero_and_the_others_larger(featured):
    """Of an item, whatever stands beside it; the same by its texts' vectors and in evaluation."""
    items = np.array([5, 0, 3, 5], np.int32)
    features, rate = np.asarray(featured.item_features), 0.5
    for more in ({"encoder": "mlp", "mlp_layers": 0}, {"encoder": "bow", "word_dropout": 0.0}):
        trial = Trial(featured, SMALL | more | {"feature_dropout": rate, "item_dropout": 0.0})
        rates = rates_of(trial.config)
        content, towers = trial.content, nnx.merge(trial.trainer.towers, trial.parameters)

        @jax.jit
        def embed(iteration, content=content, towers=towers, rates=rates):
            return towers.items(items, content, Dropout(np.uint32(0), iteration, rates))

        without = np.asarray(jax.jit(towers.items)(items, content))
        layer = trial.parameters["encoder"]["layers" if "mlp_layers" in more else "layer"]["dense"]
        kernel = np.asarray(layer["kernel"])
        base = without - features[items] @ kernel
        seen = set()
        for iteration in range(8):
            actual = np.asarray(embed(np.uint32(iteration)))
            np.testing.assert_array_equal(actual[0], actual[3])
            kept = Dropout(np.uint32(0), np.uint32(iteration)).keep(
                jnp.asarray(items), features.shape[1], Rate.of(rate), FIRST_FEATURE
            )
            expected = base + (np.asarray(kept) * features[items] / (1 - rate)) @ kernel
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
            seen |= {row.tobytes() for row in np.asarray(kept)}
        assert len(seen) > 4, "other features in other iterations and items"


def test_missing_texts_are_refused(featured):
    silent = replace(featured, vocabulary=())
    with pytest.raises(UsageError, match="reads texts, and tiny has none"):
        Trainer.create(complete(SMALL | {"encoder": "cnn"}), silent)
