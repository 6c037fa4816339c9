"""Whole models: encoders and user towers together, on devices, in blocks, audited, resumed."""

import jax.numpy as jnp
import numpy as np
import pytest
from support.processes import SMALL, on_devices
from support.tiny_bert import write_checkpoint
from support.training import CHECKPOINT_DIGEST, Trial, figures, interrupt, train

from ncfbench.advice.search import Search
from ncfbench.advice.space import Space
from ncfbench.auditing.gradients import flat
from ncfbench.config import complete
from ncfbench.data.assets.checkpoint import kept_path
from ncfbench.models.dropout import Dropout, rates_of

MODELS = {
    "bow": {"sampler": "neg", "loss": "hinge"},
    "cnn": {},
    "lstm": {},
    "mf": {},
    "gru": {},
    "transformer": {},
    "mlp": {"user_tower": "history"},
    "bert": {"checkpoint": CHECKPOINT_DIGEST},
}
EVERY = pytest.mark.parametrize("encoder", MODELS)
OWN = {"gru_units": 4, "mlp_units": 5, "user_units": 4, "feed_forward": 8}
OWN |= {"history_of": "both", "own_vector": True}


def settings_of(encoder, **more):
    """Texts and dense features of items, where the encoder takes both."""
    return SMALL | OWN | {"sampler": "strat-ns", "encoder": encoder} | MODELS[encoder] | more


def model(encoder, **more):
    return complete(settings_of(encoder, **more))


@pytest.fixture(autouse=True, scope="module")
def _kept_checkpoint(featured):
    write_checkpoint(kept_path(featured.folder, CHECKPOINT_DIGEST), words=featured.n_words + 1)


@pytest.mark.long_cases(r"(?!mlp)")
@EVERY
def test_two_devices_give_the_gradient_of_one(featured, encoder):
    """Dropout on."""
    expected, whole = on_devices(featured, model(encoder))
    value, gradient = on_devices(featured, model(encoder, devices=2))
    assert value == pytest.approx(expected, rel=1e-5)
    assert np.linalg.norm(gradient - whole) < 1e-5 * np.linalg.norm(whole)


@pytest.mark.long_cases(r"(?!bow|mlp)")
@EVERY
def test_the_audit_has_the_gradient_of_the_step(featured, encoder):
    """The mean over batches, whose expectation is the objective's gradient by the weights alone."""
    trial = Trial(featured, model(encoder))
    trial.add_noise(0.1)
    trial.check_audit()


@pytest.mark.long
@EVERY
def test_an_interrupted_run_ends_the_same(featured, featured_dir, tmp_path, encoder):
    settings = settings_of(encoder, epochs=1)
    whole = train(featured_dir, tmp_path / "whole", **settings)
    interrupt(featured_dir, tmp_path / "cut", 5, **settings)
    assert figures(train(featured_dir, tmp_path / "cut", **settings)) == figures(whole)


def test_bert_is_advised(featured):
    fixed = {"dataset": "tiny", "checkpoint": CHECKPOINT_DIGEST, "dimension": 8}
    tried = {"encoder": ("bert",), "sampler": ("ns", "strat-ns"), "batch_size": (16,)}
    field = Search(Space.of(featured, fixed, tried), tried).first_field()
    assert "bert softmax ns" in [arm.name for arm in field]


@pytest.mark.parametrize(
    "settings",
    [
        {"encoder": "mf", "sampler": "ns", "loss": "softmax"},
        pytest.param({"sampler": "neg", "coupling": "regularised"}, marks=pytest.mark.long),
        pytest.param({"encoder": "cnn", "convolution": "plain"}, marks=pytest.mark.long),
    ],
)
def test_the_gradient_in_blocks_is_that_of_the_whole_batch(tiny, settings):
    """Dropout on, and a last block that is not full: to 1e-6 of its length."""
    results = []
    for block in (0, 24):
        small = SMALL | {"encoder": "bow", "batch_size": 32, "item_block": block}
        trial = Trial(tiny, complete(small | settings))
        dropout = Dropout(jnp.uint32(0), jnp.uint32(2), rates_of(trial.config))
        value, gradient = trial.gradient(next(trial.batches()), dropout)
        results.append((value, flat(gradient)))
    (value, whole), (other, cut) = results
    assert other == pytest.approx(value, rel=1e-6)
    assert np.linalg.norm(cut - whole) <= 1e-6 * np.linalg.norm(whole)


@pytest.mark.long
def test_activations_of_one_block_are_in_memory(tiny):
    """By the compiler's own account of the step."""
    more, sizes = {"encoder": "cnn", "convolution": "plain", "filters": 64, "sampler": "ns"}, []
    for block in (0, 16):
        trial = Trial(tiny, complete(SMALL | more | {"item_block": block}))
        traced = trial.trainer.trace(trial.state, next(trial.batches()), trial.content)
        compiled = traced.lower().compile()
        sizes.append(compiled.memory_analysis().temp_size_in_bytes)
    assert sizes[1] < sizes[0] / 2
