"""Whole models: encoders and user towers together, on devices, in blocks, audited, resumed; and the
precision of their products, by the programs that XLA would get for an NVIDIA GPU.
"""

import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.processes import SMALL, check_devices
from support.tiny_bert import write_checkpoint
from support.training import CHECKPOINT_DIGEST, FROM_SCRATCH, Trial, figures, interrupt, train

from ncfbench.auditing.gradients import flat
from ncfbench.data.assets.checkpoint import kept_path
from ncfbench.models.dropout import Dropout, rates_of
from ncfbench.timing import environment
from ncfbench.training import evaluation
from ncfbench.training.probe import Probe

MODELS = {name: {} for name in ("cnn", "lstm", "mf", "gru", "transformer")} | {
    "bow": {"sampler": "neg", "loss": "hinge"},
    "mlp": {"user_tower": "history"},
    "bert": {"checkpoint": CHECKPOINT_DIGEST},
}
EVERY = pytest.mark.parametrize("encoder", MODELS)
OWN = {"gru_units": 4, "mlp_units": 5, "user_units": 4, "feed_forward": 8}
OWN |= {"history_of": "both", "own_vector": True}


def settings_of(encoder, **more):
    """Texts and dense features of items, where the encoder takes both."""
    return SMALL | OWN | {"sampler": "strat-ns", "encoder": encoder} | MODELS[encoder] | more


@pytest.fixture(autouse=True, scope="module")
def _kept_checkpoint(featured):
    write_checkpoint(kept_path(featured.folder, CHECKPOINT_DIGEST), words=featured.n_words + 1)


@pytest.mark.long_cases(r"(?!mlp)")
@EVERY
def test_two_devices_give_the_gradient_of_one(featured, encoder):
    check_devices(featured, settings_of(encoder, devices=2))


@pytest.mark.long_cases(r"(?!bow|mlp)")
@EVERY
def test_the_audit_has_the_gradient_of_the_step(featured, encoder):
    """The mean over batches, whose expectation is the objective's gradient by the weights alone."""
    trial = Trial(featured, settings_of(encoder))
    trial.add_noise(0.1)
    trial.check_audit()


@pytest.mark.long
@EVERY
def test_an_interrupted_run_ends_the_same(featured, featured_dir, tmp_path, encoder):
    settings = settings_of(encoder, epochs=1)
    whole = train(featured_dir, tmp_path / "whole", **settings)
    interrupt(featured_dir, tmp_path / "cut", 5, **settings)
    assert figures(train(featured_dir, tmp_path / "cut", **settings)) == figures(whole)


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
        trial = Trial(tiny, small | settings)
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
        trial = Trial(tiny, SMALL | more | {"item_block": block})
        traced = trial.trainer.trace(trial.state, next(trial.batches()), trial.content)
        compiled = traced.lower().compile()
        sizes.append(compiled.memory_analysis().temp_size_in_bytes)
    assert sizes[1] < sizes[0] / 2


# The precision of products

NAME = "JAX_DEFAULT_MATMUL_PRECISION"


def products(function, *arguments):
    """The lines with a matrix product or a convolution of a function's program for CUDA."""
    lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",))
    lines = re.findall(r"stablehlo\.(?:dot_general|convolution).*", lowered.as_text())
    assert lines
    return lines


def assert_full(lines):
    """No product computes in less than float32."""
    for line in lines:
        operands = re.search(r": \(tensor<\S*x(\w+)>, tensor<\S*x(\w+)>\)", line)
        assert operands is not None
        assert set(re.findall(r"\b(HIGHEST|HIGH|DEFAULT)\b", line)) == {"HIGHEST"}, line
        assert set(operands.groups()) == {"f32"}, line


def test_a_variable_of_jax_names_another_precision():
    """It is part of the environment, so that times of two precisions are never compared."""
    assert NAME in environment.VARIABLES
    assert jax.config.jax_default_matmul_precision == os.environ.get(NAME, "float32")
    words = "import ncfbench.models, jax; print(jax.config.jax_default_matmul_precision)"
    variables = os.environ | {NAME: "tensorfloat32"}
    printed = subprocess.check_output([sys.executable, "-c", words], env=variables)
    assert printed.decode().strip() == "tensorfloat32"


@pytest.mark.parametrize("encoder", FROM_SCRATCH)
def test_every_product_of_the_step_is_in_float32(tiny, encoder, monkeypatch):
    """Forward, in the gradient, and inside loops; JAX's own default for float32 there is TF32."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    trial = Trial(tiny, SMALL | {"sampler": "ns", "encoder": encoder})
    lines = products(trial.trainer.step, trial.state, next(trial.batches()), trial.content)
    # Scores forward and twice back; and what each encoder multiplies, likewise.
    least = {"mf": 3, "cnn": 9, "lstm": 9, "bow": 6, "gru": 18, "transformer": 24}
    assert len(lines) >= least[encoder]
    assert any("convolution" in line for line in lines) == (encoder == "cnn")
    assert_full(lines)


def test_probe_and_evaluation_are_full_float32(tiny):
    """JAX's own default there is TF32."""
    trial = Trial(tiny, SMALL | {"encoder": "bow", "loss": "hinge"})
    embedder, parameters = trial.embedder, trial.parameters
    probe = Probe(tiny.graph, trial.config, embedder)
    users, ids = embedder.users(parameters), tiny.graph.items_in_use[:64]
    items, nodes = (embedder.items(parameters, nodes) for nodes in (ids, probe.links.nodes))
    four = np.zeros(4, np.int32)
    for function, *arguments in (
        (embedder._items, parameters, ids, trial.content),
        (evaluation._scores, users.scored, items, four),
        (probe._block_sum, users, None, nodes, probe._blocks[0]),
    ):
        assert_full(products(function, *arguments))
