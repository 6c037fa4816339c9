"""Exact objective and mean gradients, beside the formulas and the code that trains."""

import functools
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from support.training import AUDITED, Trial

from ncfbench.auditing.audit import audit_samplers
from ncfbench.auditing.exact import ExactObjective
from ncfbench.auditing.gradients import Pullback, flat
from ncfbench.catalog import SAMPLERS
from ncfbench.config import complete
from ncfbench.errors import UsageError
from ncfbench.models.towers import DeviceContent


def dense_objective(dataset, config, trainer, parameters):
    """L by its definition, from the table of all scores."""
    graph, content = dataset.graph, DeviceContent.of(dataset)
    towers = nnx.merge(trainer.towers, parameters)
    (f, raw), g = towers.users(content), towers.items(jnp.arange(graph.n_items), content)
    scores = f @ g.T
    degree = graph.item_degrees
    noise = np.where(degree > 0, np.maximum(degree, 1.0) ** config.noise_exponent, 0)
    noise = noise / noise.sum()
    allowed = np.ones(scores.shape)
    if config.mask:
        allowed[graph.link_user, graph.link_item] = 0
    mass = allowed * (noise if config.family != "listwise" else 1.0 * (degree > 0))[None, :]
    positive = scores[graph.link_user, graph.link_item]
    rows, mass = scores[graph.link_user], mass[graph.link_user]
    if config.loss == "sg":
        value = jnp.logaddexp(0, -positive) + config.lambda_ * jnp.sum(
            mass * jnp.logaddexp(0, rows), axis=1
        )
    elif config.loss == "mse":
        value = (1 - positive) ** 2 + config.lambda_ * jnp.sum(mass * rows**2, axis=1)
    elif config.loss == "log":
        value = jnp.sum(mass * jnp.logaddexp(0, 10 * (rows - positive[:, None])), axis=1)
    elif config.loss == "hinge":
        value = jnp.sum(mass * jnp.maximum(rows - positive[:, None] + 0.1, 0), axis=1)
    else:
        value = jnp.log1p(jnp.sum(mass * jnp.exp(10 * (rows - positive[:, None])), axis=1))
    return jnp.mean(value + config.user_l2 * jnp.sum(raw[graph.link_user] ** 2, axis=1))


@pytest.fixture(scope="module")
def warm(tiny):
    """Texts for one loss; the others are audited on free vectors, which compile sooner."""

    @functools.cache
    def trial_of(loss):
        encoder = "cnn" if loss == "sg" else "mf"
        trial = Trial(tiny, AUDITED | {"loss": loss, "sampler": "ns", "encoder": encoder})
        trial.add_noise(0.2)
        return trial

    return trial_of


def assert_exact(dataset, config, trial):
    """The exact objective and its gradient are those of the definition; return the objective."""
    exact = ExactObjective(dataset.graph, config, trial.embedder)(trial.parameters)
    dense = jax.jit(
        jax.value_and_grad(lambda p: dense_objective(dataset, config, trial.trainer, p))
    )
    value, gradient = dense(trial.parameters)
    assert exact.value == pytest.approx(float(value), rel=1e-5)
    pullback = Pullback(trial.embedder, dataset.graph)
    pulled, expected = pullback(trial.parameters, exact.gradient), flat(gradient)
    assert np.linalg.norm(pulled - expected) < 2e-5 * np.linalg.norm(expected)
    return exact.value


@pytest.mark.long_cases(r"mse|log|hinge-0.5|(sg|softmax)-unigram")
@pytest.mark.parametrize(("noise", "mask"), [("unigram", True), ("0.5", False)])
@pytest.mark.parametrize("loss", ["sg", "mse", "log", "hinge", "softmax"])
def test_exact_objective_and_gradient(tiny, warm, monkeypatch, loss, noise, mask):
    """Several blocks, the last one not full."""
    config = complete(AUDITED | {"loss": loss, "sampler": "ns", "noise": noise, "mask": mask})
    monkeypatch.setattr("ncfbench.auditing.exact.BLOCK_TERMS", 20_000)
    assert_exact(tiny, config, warm(loss))


def test_too_many_pairs_are_refused(tiny, data_dir, monkeypatch):
    """Before anything is audited; the suite alone has no sum over pairs."""
    monkeypatch.setattr("ncfbench.auditing.audit.MAX_TERMS", 1000)
    monkeypatch.setattr("ncfbench.auditing.audit.conformance.conformance", pytest.fail)
    with pytest.raises(UsageError, match=f"{tiny.graph.n_links:,} x .* pairs: too many"):
        audit_samplers(dataset="tiny", data_dir=data_dir, say=print)


@pytest.mark.long_cases(r"(?!ns-sg|strat-ns-softmax)")
@pytest.mark.parametrize(
    ("sampler", "loss"),
    [
        pair
        for pair in product(SAMPLERS, ("sg", "hinge", "softmax"))
        if pair[1] == "sg" or pair[0] != "iid"
    ],
)
def test_mean_gradient(tiny, warm, sampler, loss):
    strata = "user" if sampler == "strat" and loss != "sg" else "item"
    settings = {"loss": loss, "sampler": sampler, "strata": strata}
    warm(loss).check_audit(complete(AUDITED | settings))
