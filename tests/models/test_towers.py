"""Towers that read dense features and histories: their vectors by definition, dropped features, and
the link that is left out of a history.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from support.processes import SMALL
from support.training import Trial

from ncfbench.auditing.exact import ExactObjective
from ncfbench.config import complete
from ncfbench.data.graph import BipartiteGraph
from ncfbench.data.store import prepare_dataset
from ncfbench.errors import UsageError
from ncfbench.models.dropout import FIRST_FEATURE, Dropout, Rate, rates_of
from ncfbench.models.histories import Histories
from ncfbench.models.losses import make_loss
from ncfbench.models.objective import link_loss
from ncfbench.sampling.batch import Listed, negative_ids
from ncfbench.training.probe import Probe
from ncfbench.training.step import Trainer


def layers(parameters, features):
    """Hidden layers and a dense one, in plain NumPy."""
    hidden = parameters.get("hidden", {})
    for place in range(len(hidden)):
        layer = hidden[place]
        features = np.maximum(features @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"]), 0)
    dense = parameters["dense"]
    return np.asarray(features @ np.asarray(dense["kernel"]) + np.asarray(dense["bias"]))


def test_features_by_definition(featured):
    """An MLP of features; beside a text a linear map."""
    nodes = np.arange(featured.n_items, dtype=np.int32)
    for more in ({"encoder": "mlp", "mlp_units": 5, "mlp_layers": 2}, {"encoder": "bow"}):
        trial = Trial(featured, SMALL | more)
        parameters = jax.tree.map(lambda leaf: np.asarray(leaf) + 0.1, trial.parameters)
        part = "layers" if "mlp_layers" in more else "layer"
        silent = jax.tree.map(np.copy, parameters)
        silent["encoder"][part] = jax.tree.map(np.zeros_like, parameters["encoder"][part])
        items, without = (trial.embedder.items(given, nodes) for given in (parameters, silent))
        expected = without + layers(parameters["encoder"][part], featured.item_features)
        np.testing.assert_allclose(items, expected, rtol=1e-4, atol=1e-5)
        assert np.any(without) == ("mlp_layers" not in more)


def test_dropped_features_are_zero_and_the_others_larger(featured):
    """Of an item, whatever stands beside it; the same by its texts' vectors and in evaluation."""
    items = np.array([5, 0, 3, 5], np.int32)
    features, rate = np.asarray(featured.item_features), 0.5
    for more in ({"encoder": "mlp", "mlp_layers": 0}, {"encoder": "bow", "word_dropout": 0.0}):
        trial = Trial(featured, SMALL | more | {"feature_dropout": rate, "item_dropout": 0.0})
        content, towers = trial.content, nnx.merge(trial.trainer.towers, trial.parameters)
        dropouts = [Dropout(np.uint32(0), np.uint32(n), rates_of(trial.config)) for n in range(8)]
        embed = jax.jit(partial(towers.items, items, content))
        part = "layers" if "mlp_layers" in more else "layer"
        kernel = np.asarray(trial.parameters["encoder"][part]["dense"]["kernel"])
        base, seen = np.asarray(embed(None)) - features[items] @ kernel, set()
        for dropout in dropouts:
            actual = np.asarray(embed(dropout))
            np.testing.assert_array_equal(actual[0], actual[3])
            size = features.shape[1]
            kept = dropout.keep(jnp.asarray(items), size, Rate.of(rate), FIRST_FEATURE)
            expected = base + (np.asarray(kept) * features[items] / (1 - rate)) @ kernel
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
            seen |= {row.tobytes() for row in np.asarray(kept)}
        assert len(seen) > 4, "other features in other iterations and items"


def test_missing_texts_are_refused(featured):
    silent = replace(featured, vocabulary=())
    with pytest.raises(UsageError, match="reads texts, and tiny has none"):
        Trainer.create(complete(SMALL | {"encoder": "cnn"}), silent)


# Histories of users

HISTORY = SMALL | {"user_tower": "history", "encoder": "mf", "history_items": 100}
CASES = {
    "ns-softmax": {"sampler": "ns", "loss": "softmax"},
    "iid-sg": {"sampler": "iid", "loss": "sg"},
    "neg-log": {"sampler": "neg", "loss": "log"},
}


class HistoryTrial(Trial):
    """Histories, and parameters that are no longer near zero."""

    def __init__(self, dataset, **more):
        super().__init__(dataset, HISTORY | more)
        self.add_noise(0.2)

    def user(self, user, without=None):
        """f of a user, in plain NumPy."""
        graph, tower = self.graph, jax.device_get(self.parameters["user_tower"])
        items = graph.link_item[graph.user_offsets[user] : graph.user_offsets[user + 1]]
        items = items[items != without]
        vector = np.zeros(self.config.dimension)
        if self.config.history_of != "content" and len(items):
            vector += tower["items"]["embedding"][items].mean(axis=0)
        if self.config.history_of != "ids":
            features = self.dataset.item_features
            mean = features[items].mean(axis=0) if len(items) else np.zeros(features.shape[1])
            vector += layers(tower["layers"], mean)
        if self.config.own_vector:
            vector += tower["vectors"]["embedding"][user]
        return vector

    def scored(self, vector):
        length = np.linalg.norm(vector)
        return vector / length if self.config.normalize and length > 0 else vector

    def batch_loss(self, batch):
        """The batch's objective by the scores of each link, one at a time."""
        config = self.config
        items = jax.device_get(self.parameters["encoder"]["vectors"]["embedding"])
        g = [self.scored(items[item]) for item in batch.items]
        users, links = batch.users[batch.pos_user], batch.items[batch.pos_item]
        raw = [self.user(u, without=v) for u, v in zip(users, links, strict=True)]
        without = [self.scored(vector) for vector in raw]
        pairs = zip(without, batch.pos_item, strict=True)
        positive = np.array([f @ g[slot] for f, slot in pairs])
        weight, negatives = batch.negatives.weight, batch.negatives
        ids, _ = negative_ids(batch)
        slots = np.arange(weight.shape[1])[None, :].repeat(len(weight), axis=0)
        if isinstance(negatives, Listed):
            slots = negatives.item
        full = {int(user): self.scored(self.user(int(user))) for user in np.unique(ids)}
        score = np.zeros(weight.shape)
        for row, column in np.argwhere(weight > 0):
            f = full[int(ids[row, column])] if config.family == "pointwise" else without[row]
            score[row, column] = f @ g[slots[row, column]]
        penalty = config.user_l2 * np.mean(np.sum(np.square(raw), axis=1))
        value = link_loss(positive, score, weight, make_loss(config), config.lambda_)
        return float(value) + penalty


LONG = pytest.mark.long


@pytest.mark.parametrize(
    "history_of", ["both", *(pytest.param(of, marks=LONG) for of in ("ids", "content"))]
)
def test_histories_by_definition(tiny_options, tmp_path, history_of):
    """Some users have no training link; with a link left out, some have no other."""
    sizes = vars(tiny_options) | {"item_features": 6, "links": 300}
    sparse = prepare_dataset("synthetic", data_dir=tmp_path, say=lambda text: None, **sizes)
    more = {"own_vector": history_of == "both", "user_units": 5}
    trial = HistoryTrial(sparse, history_of=history_of, **more)
    graph = trial.graph
    assert (graph.user_degrees == 0).any()
    users = trial.embedder.users(trial.parameters).raw
    expected = [trial.user(user) for user in range(graph.n_users)]
    np.testing.assert_allclose(users, expected, rtol=1e-4, atol=1e-5)
    links = trial.embedder.link_users(trial.parameters, graph.link_user, graph.link_item)
    left = [trial.user(u, v) for u, v in zip(graph.link_user, graph.link_item, strict=True)]
    np.testing.assert_allclose(links.raw, left, rtol=1e-4, atol=1e-5)


@pytest.mark.long_cases("iid-sg")
@pytest.mark.parametrize("case", CASES)
def test_a_batch_leaves_its_own_links_out(featured, case):
    """Of the positive links; of their negatives too where the loss compares both."""
    trial = HistoryTrial(featured, **CASES[case])
    batch = next(trial.batches(1))
    assert trial.gradient(batch)[0] == pytest.approx(trial.batch_loss(batch), rel=1e-5)


@pytest.mark.parametrize("case", ["ns-softmax", pytest.param("neg-log", marks=LONG)])
def test_the_audit_has_the_objective_and_the_gradient(featured, case):
    """The probe is the exact objective here; batches by slots, by scores and by the step agree."""
    trial = HistoryTrial(featured, **CASES[case])
    graph, parameters, embedder = trial.graph, trial.parameters, trial.embedder
    exact = ExactObjective(graph, trial.config, embedder)(parameters)
    assert Probe(graph, trial.config, embedder)(parameters) == pytest.approx(exact.value, rel=1e-5)
    trial.check_audit()


def test_of_long_histories_a_sample_counts():
    """The same in every run; features are the mean of all items."""
    rng = np.random.default_rng(0)
    users, items = np.nonzero(rng.random((6, 40)) < 0.4)
    graph = BipartiteGraph.from_links(users, items, 7, 40)
    features = rng.normal(size=(40, 3)).astype(np.float32)
    histories = Histories.of_graph(graph, features)
    left_out = np.array([items[users == user][0] for user in range(6)] + [0], np.int32)
    everyone = np.arange(7, dtype=np.int32)
    sample = jax.jit(lambda: histories.of(everyone, 4, features, left_out))
    few, whole = jax.device_get((sample(), jax.jit(lambda: histories.of(everyone, 40))()))
    for user in range(7):
        history = graph.link_item[graph.user_offsets[user] : graph.user_offsets[user + 1]]
        assert sorted(whole.items[user][whole.present[user]].tolist()) == history.tolist()
        sampled = few.items[user][few.present[user]].tolist()
        rest = [item for item in history if item != left_out[user]]
        assert set(sampled) <= set(rest)
        assert len(sampled) >= min(len(history), 4) - 1
        expected = features[rest].mean(axis=0) if rest else np.zeros(3)
        np.testing.assert_allclose(few.features[user], expected, rtol=1e-5, atol=1e-6)
    again = Histories.of_graph(graph, features)
    assert (np.asarray(again.items) == np.asarray(histories.items)).all()
    taken = np.asarray(histories.items)[graph.user_offsets[:6]]
    assert (taken != [items[users == user][0] for user in range(6)]).any()


def test_blocks_of_users_change_nothing(featured, monkeypatch):
    trial = HistoryTrial(featured, history_of="both", own_vector=True)
    towers = nnx.merge(trial.trainer.towers, trial.parameters)
    whole = jax.jit(towers.users)(trial.content)
    monkeypatch.setattr("ncfbench.models.towers.BLOCK_NUMBERS", 50 * 100 * 8)
    blocks = jax.jit(towers.users)(trial.content)
    np.testing.assert_allclose(blocks.raw, whole.raw, rtol=1e-5, atol=1e-5)
