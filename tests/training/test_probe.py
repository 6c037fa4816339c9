"""The probe against L written out, and its independence of the run."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.training import Trial

from ncfbench.config import complete
from ncfbench.training.probe import Probe, ProbeLinks

LOSS = {
    "sg": (lambda p: math.log1p(math.exp(-p)), lambda n: math.log1p(math.exp(n))),
    "mse": (lambda p: (1 - p) ** 2, lambda n: n**2),
    "log": lambda p, n: math.log1p(math.exp(10 * (n - p))),
    "hinge": lambda p, n: max(n - p + 0.1, 0),
}


def exact(dataset, config, f, g, raw):
    graph = dataset.graph
    degrees = graph.item_degrees
    noise = np.where(degrees > 0, np.maximum(degrees, 1.0) ** config.noise_exponent, 0)
    noise /= noise.sum()
    links = set(zip(graph.link_user.tolist(), graph.link_item.tolist(), strict=True))
    scores, used, share = (f @ g.T).tolist(), np.flatnonzero(noise).tolist(), noise.tolist()
    total = 0.0
    for user, item in links:
        own, row = scores[user][item], scores[user]
        others = [v for v in used if not config.mask or (user, v) not in links]
        total += config.user_l2 * float(raw[user] @ raw[user])
        if config.family == "listwise":
            total += math.log1p(math.fsum(math.exp(10 * (row[v] - own)) for v in others))
        elif config.family == "pairwise":
            total += math.fsum(share[v] * LOSS[config.loss](own, row[v]) for v in others)
        else:
            positive, negative = LOSS[config.loss]
            total += positive(own)
            total += config.lambda_ * math.fsum(share[v] * negative(row[v]) for v in others)
    return total / len(links)


SMALL = {"dimension": 5, "word_dimension": 6, "encoder": "bow"}


@pytest.mark.parametrize(
    ("loss", "noise", "mask"),
    [
        ("sg", "unigram", True),
        ("mse", "0.5", False),
        ("log", "unigram", True),
        ("hinge", "0.5", False),
        ("softmax", "unigram", True),
        pytest.param("softmax", "0.5", False, marks=pytest.mark.long),
    ],
)
def test_exact_probe_is_the_objective(tiny, loss, noise, mask):
    settings = {"loss": loss, "noise": noise, "mask": mask, "user_l2": 0.01}
    trial = Trial(tiny, SMALL | settings)
    config, embedder, parameters = trial.config, trial.embedder, trial.parameters
    probe = Probe(tiny.graph, config, embedder)
    assert len(probe.links.user) == tiny.graph.n_links
    f, raw = (np.asarray(vectors, float) for vectors in embedder.users(parameters))
    g = np.asarray(embedder.items(parameters, np.arange(tiny.n_items, dtype=np.int32)), float)
    assert probe(parameters) == pytest.approx(exact(tiny, config, f, g, raw), rel=1e-5)


@pytest.mark.parametrize("loss", ["sg", "softmax"])
def test_sampled_probe_is_unbiased(tiny, monkeypatch, loss):
    """The mean over twelve draws is within four standard errors of the exact sum."""
    trial = Trial(tiny, SMALL | {"loss": loss, "probe_links": 300, "probe_negatives": 20})
    config, embedder, parameters = trial.config, trial.embedder, trial.parameters
    # Larger vectors, so that the links' losses differ and a wrong weight would show.
    parameters["user_tower"] = jax.tree.map(lambda leaf: 30 * leaf, parameters["user_tower"])
    exactly = Probe(tiny.graph, config, embedder)(parameters)
    monkeypatch.setattr("ncfbench.training.probe.EXACT_TERMS", 0)
    values = []
    for seed in range(12):
        monkeypatch.setattr("ncfbench.training.probe.PROBE_SEED", seed)
        sampled = Probe(tiny.graph, config, embedder)
        columns = 20 if loss == "sg" else len(sampled.links.nodes)
        assert sampled.links.weight.shape == (300, columns)
        values.append(sampled(parameters))
    error = np.std(values, ddof=1) / len(values) ** 0.5
    assert abs(np.mean(values) - exactly) < 4 * error
    assert 0 < error < 0.05 * exactly


def test_the_probe_ignores_sampler_and_seed(tiny, monkeypatch):
    monkeypatch.setattr("ncfbench.training.probe.EXACT_TERMS", 0)
    one = ProbeLinks.choose(tiny.graph, complete({"sampler": "iid", "seed": 0}))
    two = ProbeLinks.choose(tiny.graph, complete({"sampler": "strat-ns", "seed": 9}))
    for left, right in zip(one, two, strict=True):
        np.testing.assert_array_equal(left, right)
    assert jnp.isfinite(one.weight).all()
