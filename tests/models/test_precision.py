"""The precision of products, by the programs that XLA would get for an NVIDIA GPU; none is
needed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from invoked import check, invoke
from texts import FROM_SCRATCH
from trial import Trial

from ncfbench.config import complete
from ncfbench.data.store import Dataset
from ncfbench.errors import UsageError
from ncfbench.models import precision
from ncfbench.training import recall
from ncfbench.training.probe import Probe

SMALL: dict[str, Any] = {"dataset": "tiny", "batch_size": 64, "layers": 1}
SMALL |= dict.fromkeys(("dimension", "filters", "word_dimension", "lstm_units", "gru_units"), 8)
SMALL |= {"width": 8, "feed_forward": 8}
BFLOAT16 = "lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32"


def products(function: Any, *arguments: Any) -> list[str]:
    """The lines with a matrix product or a convolution of a function's program for CUDA."""
    lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",))
    lines = re.findall(r"stablehlo\.(?:dot_general|convolution).*", lowered.as_text())
    assert lines
    return lines


def assert_asked_for(lines: list[str], name: str) -> None:
    for line in lines:
        operands = re.search(r": \(tensor<\S*x(\w+)>, tensor<\S*x(\w+)>\)", line)
        assert operands is not None
        if name == "bfloat16" and line.startswith("stablehlo.convolution"):
            assert set(operands.groups()) == {"bf16"}, line
        elif name == "bfloat16":
            assert BFLOAT16 in line
        else:
            assert set(re.findall(r"\b(HIGHEST|HIGH|DEFAULT)\b", line)) == {
                "HIGHEST" if name == "float32" else "HIGH"
            }, line
            assert set(operands.groups()) == {"f32"}, line


@pytest.mark.long_cases(r"(?!(mf|bow|lstm)-bfloat16$|cnn-)")
@pytest.mark.parametrize("name", precision.JAX_NAMES)
@pytest.mark.parametrize("encoder", FROM_SCRATCH)
def test_every_product_of_the_step_is_asked_for(
    tiny: Dataset, encoder: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forward, in the gradient, and inside loops; JAX's own default for float32 there is TF32."""
    monkeypatch.setattr(precision, "compute_capability", lambda: 9.0)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    trial = Trial(tiny, SMALL | {"sampler": "ns", "encoder": encoder, "precision": name})
    lines = products(trial.trainer.step, trial.state, next(trial.batches()), trial.content)
    # Scores forward and twice back; and what each encoder multiplies, likewise.
    least = {"mf": 3, "cnn": 9, "lstm": 9, "bow": 6, "gru": 18, "transformer": 24}
    assert len(lines) >= least[encoder]
    assert any("convolution" in line for line in lines) == (encoder == "cnn")
    assert_asked_for(lines, name)


def test_parameters_and_gradients_stay_float32() -> None:
    """A convolution in bfloat16 gives float32 to what follows, and so do its gradients."""

    def value(words: jax.Array, kernel: jax.Array) -> jax.Array:
        return jnp.sum(jnp.square(precision.convolve(words, kernel)))

    rng = np.random.default_rng(2)
    words, kernel = (
        jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((2, 6, 3), (1, 3, 4))
    )
    convolved = precision.at("bfloat16", precision.convolve)(words, kernel)
    rounded = [
        np.asarray(array).astype(jnp.bfloat16).astype(np.float64) for array in (words, kernel[0])
    ]
    np.testing.assert_allclose(convolved, rounded[0] @ rounded[1], rtol=2**-7, atol=1e-6)
    assert not np.allclose(convolved, words @ kernel[0], rtol=1e-4), "the test could not fail"
    gradient = precision.at("bfloat16", jax.jit(jax.grad(value, argnums=(0, 1))))
    assert {convolved.dtype, *(leaf.dtype for leaf in gradient(words, kernel))} == {
        jnp.dtype(jnp.float32)
    }
    plain = precision.full(precision.convolve)(words, kernel)
    np.testing.assert_allclose(plain, words @ kernel[0], rtol=1e-5, atol=1e-6)


def test_probe_and_evaluation_are_full_float32(tiny: Dataset) -> None:
    """Whatever the run's precision, and whatever is set around them."""
    trial = Trial(tiny, SMALL | {"encoder": "bow", "loss": "hinge"})
    embedder, parameters = trial.embedder, trial.parameters
    probe = Probe(tiny.graph, trial.config, embedder)
    users, ids = embedder.users(parameters), tiny.graph.items_in_use[:64]
    items, nodes = (embedder.items(parameters, some) for some in (ids, probe.links.nodes))
    four = np.zeros(4, np.int32)
    with jax.default_matmul_precision("bfloat16"):
        for function, *arguments in (
            (embedder._items, parameters, ids, trial.content),
            (recall._scores, users.scored, items, four),
            (probe._block_sum, users, None, nodes, probe._blocks[0]),
        ):
            assert_asked_for(products(function, *arguments), "float32")


def test_precisions_that_a_device_lacks_are_refused(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "compute_capability", lambda: 0.0)
    for command in ("run", "profile"):
        words = command, "--dataset", "tiny", "--precision", "tf32", "--data-dir", data_dir
        check(invoke(*words, "--runs-dir", tmp_path / "runs"), 2, "needs an NVIDIA GPU")
    assert not (tmp_path / "runs").exists()
    for capability in (0.0, 7.5, 8.0, 9.0):
        monkeypatch.setattr(precision, "compute_capability", lambda found=capability: found)
        precision.require("float32")
        for name in ("tf32", "bfloat16"):
            if capability >= 8:
                precision.require(name)
            else:
                with pytest.raises(UsageError, match="Use --precision float32"):
                    precision.require(name)
    with pytest.raises(UsageError, match="did you mean 'bfloat16'"):
        complete({"precision": "bfloat"})


def test_the_compute_capability_is_an_nvidia_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    class Device:
        compute_capability = ""

    for text, expected in (("9.0", 9.0), ("gfx942", 0), ("", 0)):
        Device.compute_capability = text
        monkeypatch.setattr(jax, "devices", lambda: [Device()])
        assert precision.compute_capability() == expected
