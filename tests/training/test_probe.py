"""The probe beside the exact objective of audits, and its independence of the run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.training import Trial

from ncfbench.auditing.exact import ExactObjective
from ncfbench.config import complete
from ncfbench.training.probe import Probe, ProbeLinks

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
    """Audits compare theirs with L written out."""
    settings = {"loss": loss, "noise": noise, "mask": mask, "user_l2": 0.01}
    trial = Trial(tiny, SMALL | settings)
    probe = Probe(tiny.graph, trial.config, trial.embedder)
    assert len(probe.links.user) == tiny.graph.n_links
    exact = ExactObjective(tiny.graph, trial.config, trial.embedder)(trial.parameters)
    assert probe(trial.parameters) == pytest.approx(exact.value, rel=1e-5)


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
