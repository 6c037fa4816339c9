"""The precision of products, by the programs that XLA would get for an NVIDIA GPU; none is
needed.
"""

import re
from typing import Any

import jax
import numpy as np
import pytest
from invoked import check, invoke
from texts import FROM_SCRATCH
from trial import Trial

from ncfbench.config import complete
from ncfbench.errors import UsageError
from ncfbench.models import precision
from ncfbench.training import evaluation
from ncfbench.training.probe import Probe

SMALL: dict[str, Any] = {"dataset": "tiny", "batch_size": 64, "layers": 1}
SMALL |= dict.fromkeys(("dimension", "filters", "word_dimension", "lstm_units", "gru_units"), 8)
SMALL |= {"width": 8, "feed_forward": 8}
BFLOAT16 = "lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32"


def products(function, *arguments):
    """The lines with a matrix product or a convolution of a function's program for CUDA."""
    lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",))
    lines = re.findall(r"stablehlo\.(?:dot_general|convolution).*", lowered.as_text())
    assert lines
    return lines


def assert_asked_for(lines, name):
    """A convolution takes no algorithm, and has JAX's default."""
    words = {"float32": "HIGHEST", "tensorfloat32": "HIGH", "BF16_BF16_F32": "DEFAULT"}
    for line in lines:
        operands = re.search(r": \(tensor<\S*x(\w+)>, tensor<\S*x(\w+)>\)", line)
        assert operands is not None
        if name == "BF16_BF16_F32" and not line.startswith("stablehlo.convolution"):
            assert BFLOAT16 in line
        else:
            assert set(re.findall(r"\b(HIGHEST|HIGH|DEFAULT)\b", line)) == {words[name]}, line
            assert set(operands.groups()) == {"f32"}, line


@pytest.mark.long_cases(r"(?!(mf|bow|lstm)-BF16|cnn-)")
@pytest.mark.parametrize("name", ["float32", "tensorfloat32", "BF16_BF16_F32"])
@pytest.mark.parametrize("encoder", FROM_SCRATCH)
def test_every_product_of_the_step_is_asked_for(tiny, encoder, name, monkeypatch):
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


def test_probe_and_evaluation_are_full_float32(tiny):
    """JAX's own default there is TF32."""
    trial = Trial(tiny, SMALL | {"encoder": "bow", "loss": "hinge"})
    embedder, parameters = trial.embedder, trial.parameters
    probe = Probe(tiny.graph, trial.config, embedder)
    users, ids = embedder.users(parameters), tiny.graph.items_in_use[:64]
    items, nodes = (embedder.items(parameters, some) for some in (ids, probe.links.nodes))
    four = np.zeros(4, np.int32)
    for function, *arguments in (
        (embedder._items, parameters, ids, trial.content),
        (evaluation._scores, users.scored, items, four),
        (probe._block_sum, users, None, nodes, probe._blocks[0]),
    ):
        assert_asked_for(products(function, *arguments), "float32")


def test_precisions_that_a_device_lacks_are_refused(data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "compute_capability", lambda: 0.0)
    for command in ("run", "profile"):
        words = command, "--dataset", "tiny", "--set", "precision=tensorfloat32"
        folders = "--data-dir", data_dir, "--runs-dir", tmp_path / "runs"
        check(invoke(*words, *folders), 2, "needs an NVIDIA GPU")
    assert not (tmp_path / "runs").exists()
    for capability in (0.0, 7.5, 8.0, 9.0):
        monkeypatch.setattr(precision, "compute_capability", lambda found=capability: found)
        precision.require("float32")
        for name in ("tensorfloat32", "BF16_BF16_F32"):
            if capability >= 8:
                precision.require(name)
            else:
                with pytest.raises(UsageError, match="Use --set precision=float32"):
                    precision.require(name)
    with pytest.raises(UsageError, match="did you mean 'tensorfloat32'"):
        complete({"precision": "tensorfloat"})


def test_the_compute_capability_is_an_nvidia_gpus(monkeypatch):
    class Device:
        compute_capability = ""

    for text, expected in (("9.0", 9.0), ("gfx942", 0), ("", 0)):
        Device.compute_capability = text
        monkeypatch.setattr(jax, "devices", lambda: [Device()])
        assert precision.compute_capability() == expected
