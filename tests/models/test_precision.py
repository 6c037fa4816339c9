"""The precision of products, by the programs that XLA would get for an NVIDIA GPU; none is
needed.
"""

import os
import re
import subprocess
import sys

import jax
import numpy as np
import pytest
from support.processes import SMALL
from support.training import FROM_SCRATCH, Trial

from ncfbench.timing import environment
from ncfbench.training import evaluation
from ncfbench.training.probe import Probe

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
