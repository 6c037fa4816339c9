"""The probe against L written out, and its independence of the run."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncfbench.config import complete
from ncfbench.data.store import Dataset
from ncfbench.models.towers import Content
from ncfbench.training.inference import Embedder
from ncfbench.training.probe import Probe, ProbeLinks
from ncfbench.training.step import Trainer

LOSS = {
    "sg": (lambda p: math.log1p(math.exp(-p)), lambda n: math.log1p(math.exp(n))),
    "mse": (lambda p: (1 - p) ** 2, lambda n: n**2),
    "log": lambda p, n: math.log1p(math.exp(10 * (n - p))),
    "hinge": lambda p, n: max(n - p + 0.1, 0),
}


def exact(dataset: Dataset, config: object, f: np.ndarray, g: np.ndarray, raw: np.ndarray) -> float:
    graph = dataset.graph
    degrees = graph.item_degrees
    noise = np.where(degrees > 0, np.maximum(degrees, 1.0) ** config.noise_exponent, 0)
    noise /= noise.sum()
    links = set(zip(graph.link_user.tolist(), graph.link_item.tolist(), strict=True))
    total = 0.0
    for user, item in links:
        p = float(f[user] @ g[item])
        if config.family == "listwise":
            others = [
                v for v in np.flatnonzero(noise) if (user, int(v)) not in links or not config.mask
            ]
            total += math.log1p(
                math.fsum(math.exp(10 * (float(f[user] @ g[v]) - p)) for v in others)
            )
            total += config.user_l2 * float(raw[user] @ raw[user])
            continue
        for other in np.flatnonzero(noise):
            if (user, int(other)) not in links or not config.mask:
                n = float(f[user] @ g[other])
                if config.family == "pairwise":
                    total += noise[other] * LOSS[config.loss](p, n)
                else:
                    total += config.lambda_ * noise[other] * LOSS[config.loss][1](n)
        if config.family == "pointwise":
            total += LOSS[config.loss][0](p)
        total += config.user_l2 * float(raw[user] @ raw[user])
    return total / len(links)


@pytest.mark.parametrize("loss", ["sg", "mse", "log", "hinge", "softmax"])
@pytest.mark.parametrize(("noise", "mask"), [("unigram", True), ("0.5", False)])
def test_exact_probe_is_the_objective(tiny: Dataset, loss: str, noise: str, mask: bool) -> None:
    config = complete({"loss": loss, "noise": noise, "mask": mask, "dimension": 5, "user_l2": 0.01})
    trainer, state = Trainer.create(config, tiny)
    embedder = Embedder(trainer.towers, Content.of(tiny))
    probe = Probe(tiny.graph, config, embedder)
    assert probe.links.exact
    f, raw = (np.asarray(vectors, float) for vectors in embedder.users(state.parameters))
    g = np.asarray(embedder.items(state.parameters, np.arange(tiny.n_items, dtype=np.int32)), float)
    assert probe(state.parameters) == pytest.approx(exact(tiny, config, f, g, raw), rel=1e-5)


@pytest.mark.parametrize("loss", ["sg", "softmax"])
def test_sampled_probe_is_unbiased(
    tiny: Dataset, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    """The mean over twelve choices of links and draws lies within four standard errors of the exact
    sum.
    """
    config = complete({"loss": loss, "probe_links": 300, "probe_negatives": 20})
    trainer, state = Trainer.create(config, tiny)
    # Larger vectors, so that the links' losses differ and a wrong weight would show.
    parameters = state.parameters
    parameters["user_tower"] = jax.tree.map(lambda leaf: 30 * leaf, parameters["user_tower"])
    embedder = Embedder(trainer.towers, Content.of(tiny))
    exactly = Probe(tiny.graph, config, embedder)(parameters)
    monkeypatch.setattr("ncfbench.training.probe.EXACT_TERMS", 0)
    values = []
    for seed in range(12):
        monkeypatch.setattr("ncfbench.training.probe.PROBE_SEED", seed)
        sampled = Probe(tiny.graph, config, embedder)
        assert not sampled.links.exact
        assert sampled.links.negative.shape == (
            300,
            20 if loss == "sg" else len(sampled.links.nodes),
        )
        values.append(sampled(parameters))
    error = np.std(values, ddof=1) / len(values) ** 0.5
    assert abs(np.mean(values) - exactly) < 4 * error
    assert 0 < error < 0.05 * exactly


def test_the_probe_ignores_sampler_and_seed(tiny: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncfbench.training.probe.EXACT_TERMS", 0)
    one = ProbeLinks.choose(tiny.graph, complete({"sampler": "iid", "seed": 0}))
    two = ProbeLinks.choose(tiny.graph, complete({"sampler": "strat-ns", "seed": 9}))
    for left, right in zip(vars(one).values(), vars(two).values(), strict=True):
        np.testing.assert_array_equal(left, right)
    assert jnp.isfinite(one.weight).all()
