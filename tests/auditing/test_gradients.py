"""Exact objective and mean gradients, beside the formulas and the code that trains; the estimate of
a known bias, and the verdict that follows.
"""

import functools
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from support.training import AUDITED, Trial

from ncfbench.auditing.audit import audit_samplers
from ncfbench.auditing.bias import POWER, Bias, estimate
from ncfbench.auditing.exact import ExactObjective
from ncfbench.auditing.gradients import Pullback, flat
from ncfbench.auditing.verdict import batches_needed, verdict
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
    gap, lambda_ = rows - positive[:, None], config.lambda_
    positive_loss, negative_losses = {
        "sg": lambda: (jnp.logaddexp(0, -positive), lambda_ * jnp.logaddexp(0, rows)),
        "mse": lambda: ((1 - positive) ** 2, lambda_ * rows**2),
        "log": lambda: (0, jnp.logaddexp(0, 10 * gap)),
        "hinge": lambda: (0, jnp.maximum(gap + 0.1, 0)),
        "softmax": lambda: (0, jnp.exp(10 * gap)),
    }[config.loss]()
    value = positive_loss + jnp.sum(mass * negative_losses, axis=1)
    value = jnp.log1p(value) if config.loss == "softmax" else value
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


@pytest.mark.long_cases(r"mse|log|hinge-0.5|(sg|softmax)-unigram")
@pytest.mark.parametrize(("noise", "mask"), [("unigram", True), ("0.5", False)])
@pytest.mark.parametrize("loss", ["sg", "mse", "log", "hinge", "softmax"])
def test_exact_objective_and_gradient(tiny, warm, monkeypatch, loss, noise, mask):
    """As by the definition, in several blocks, the last one not full."""
    config = complete(AUDITED | {"loss": loss, "sampler": "ns", "noise": noise, "mask": mask})
    monkeypatch.setattr("ncfbench.auditing.exact.BLOCK_TERMS", 20_000)
    trial = warm(loss)
    exact = ExactObjective(tiny.graph, config, trial.embedder)(trial.parameters)
    dense = jax.value_and_grad(lambda p: dense_objective(tiny, config, trial.trainer, p))
    value, gradient = jax.jit(dense)(trial.parameters)
    assert exact.value == pytest.approx(float(value), rel=1e-5)
    pulled = Pullback(trial.embedder, tiny.graph)(trial.parameters, exact.gradient)
    expected = flat(gradient)
    assert np.linalg.norm(pulled - expected) < 2e-5 * np.linalg.norm(expected)


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


# The bias estimate

EXACT = np.full(200, 0.5)
SCALE = np.linalg.norm(EXACT)
SPECTRA = {
    "even": np.ones(200),
    "one direction": np.r_[200.0, np.zeros(199)],
    "falling": 100 / np.arange(1, 201) ** 1.5,
}


def measure(rng, spectrum, bias, noise=0.2, verdicts=5):
    """32 blocks of noise; the mean is off by a share of the exact vector where noise is largest."""
    shift = np.zeros(200)
    shift[0] = bias * SCALE
    blocks = EXACT + shift + rng.normal(size=(32, 200)) * np.sqrt(spectrum) * noise
    return estimate(blocks, EXACT, 3200, verdicts)


@pytest.mark.long_cases("even|one")
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_noise_does_not_inflate_the_estimate(spectrum):
    rng = np.random.default_rng(0)
    for bias in (0.0, 0.3):
        squared = [measure(rng, SPECTRA[spectrum], bias).squared for _ in range(400)]
        assert np.mean(squared) == pytest.approx(bias**2, abs=4 * np.std(squared) / 20)


@pytest.mark.long_cases(r"0\.(05|1)-")
@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("bias", [0.0, 0.05, 0.1, 0.3])
def test_intervals_hold_the_truth(spectrum, bias):
    """Each bound may fail in 0.5 % of all cases; in the worst directions in four times that."""
    rng = np.random.default_rng(1)
    biases = [measure(rng, SPECTRA[spectrum], bias) for _ in range(300)]
    assert np.mean([estimated.lower > bias for estimated in biases]) <= 0.02
    assert np.mean([estimated.upper < bias for estimated in biases]) <= 0.03
    assert all(estimated.lower <= estimated.estimate <= estimated.upper for estimated in biases)


@pytest.mark.long_cases("even|falling")
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_power_is_what_is_stated(spectrum):
    """A bias of the stated size is found about as often as stated, where noise is largest too."""
    rng = np.random.default_rng(2)
    stated = float(np.median([measure(rng, SPECTRA[spectrum], 0.0).detectable for _ in range(100)]))
    is_shown = [measure(rng, SPECTRA[spectrum], stated).lower > 0 for _ in range(300)]
    assert np.mean(is_shown) >= POWER - 0.08


def test_variance_and_cosine():
    rng = np.random.default_rng(3)
    biases = [measure(rng, SPECTRA["even"], 0.4) for _ in range(200)]
    # 3,200 batches in 32 blocks: one batch has 100 times the variance of a block.
    assert np.mean([estimated.variance for estimated in biases]) == pytest.approx(
        100 * 200 * 0.04 / SCALE**2, rel=0.02
    )
    shift = np.r_[0.4 * SCALE, np.zeros(199)]
    cosine = (EXACT + shift) @ EXACT / np.linalg.norm(EXACT + shift) / SCALE
    assert np.mean([estimated.cosine for estimated in biases]) == pytest.approx(cosine, abs=0.005)


def test_more_batches_would_decide():
    """About as many as are named: twice as many decide, a quarter seldom does."""
    rng = np.random.default_rng(4)

    def words(times):
        """Of so many times 3,200 batches without a bias."""
        biases = [measure(rng, SPECTRA["even"], 0.0, times**-0.5) for _ in range(20)]
        return [verdict(bias, margin)[0] for bias in biases]

    first = [measure(rng, SPECTRA["even"], 0.0, 1.0) for _ in range(20)]
    margin = float(np.median([bias.upper for bias in first])) / 3
    needed = np.median([batches_needed(bias, margin) for bias in first]) / first[0].batches
    assert words(2 * needed).count("unbiased") >= 18, needed
    assert words(needed / 4).count("too few batches") >= 18, needed


# --- the verdict


def bias(lower, upper):
    return Bias((lower + upper) ** 2 / 4, lower, upper, 0.1, 1.0, 1.0, 100)


WITHIN, WIDE, SHOWN, LARGE = bias(0, 0.08), bias(0, 0.25), bias(0.01, 0.25), bias(0.15, 0.25)
SOFTMAX, DECLARED = {"is_listwise": True}, {"is_declared": True}
CASES = [
    # A mean of single links: by the interval alone.
    (WITHIN, {}, "unbiased", None),
    (WIDE, {}, "too few batches", None),
    (SHOWN, {}, "biased", "gradient"),
    (bias(0.01, 0.08), {}, "biased", "gradient"),
    # A softmax: whether the bias is within the margin.
    (WITHIN, SOFTMAX, "consistent", None),
    (bias(0.01, 0.08), SOFTMAX, "consistent", None),
    (SHOWN, SOFTMAX, "too few batches", None),
    (LARGE, SOFTMAX, "too few negatives", None),
    # Wrong weights: certain, however noisy the batches.
    (WITHIN, {"has_wrong_weights": True}, "biased", "weights"),
    (SHOWN, {"has_wrong_weights": True}, "biased", "gradient"),
    (LARGE, SOFTMAX | {"has_wrong_weights": True}, "biased", "weights"),
    # Biased on purpose.
    (SHOWN, DECLARED, "biased", "declared"),
    (WITHIN, DECLARED, "unbiased", None),
    (LARGE, SOFTMAX | DECLARED, "biased", "declared"),
    (WIDE, DECLARED, "too few batches", None),
    (WIDE, DECLARED | {"has_wrong_weights": True}, "biased", "weights"),
]


@pytest.mark.parametrize(("bias", "evidence", "word", "shown_by"), CASES)
def test_verdict_follows_from_the_evidence(bias, evidence, word, shown_by):
    assert verdict(bias, margin=0.1, **evidence) == (word, shown_by)


def test_an_interval_twice_the_margin_needs_four_times_the_batches():
    assert batches_needed(bias(0, 0.2), margin=0.1) == 400
