"""Precision of products: rounded where it should be, in gradients and loops too, and nowhere
else.
"""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from ncfbench.audit.exact import flat
from ncfbench.cli import app
from ncfbench.config import Locations, complete
from ncfbench.data.store import Dataset
from ncfbench.errors import UsageError
from ncfbench.models import device, precision
from ncfbench.models.interaction import DotProduct
from ncfbench.models.towers import Content
from ncfbench.registry import ENCODERS
from ncfbench.report.comparison import group
from ncfbench.rng import Streams
from ncfbench.sampling import batches
from ncfbench.training import run as training
from ncfbench.training.inference import Embedder
from ncfbench.training.probe import Probe
from ncfbench.training.recall import RecallEvaluator
from ncfbench.training.step import Trainer

SMALL: dict[str, Any] = {
    "dataset": "tiny",
    "batch_size": 64,
    "dimension": 8,
    "filters": 8,
    "word_dimension": 8,
    "lstm_units": 8,
}


def to_bfloat16(array: Any) -> Any:
    """NumPy float32, rounded by ml_dtypes rather than by XLA."""
    return np.asarray(array).astype(jnp.bfloat16).astype(np.float32)


def test_a_matrix_product_and_its_gradient_round_their_operands_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=shape).astype(np.float32) for shape in ((5, 7), (7, 3), (5, 3)))

    def value(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.sum(c * (a @ b))

    for run in (lambda f: f, jax.jit):
        total, (by_a, by_b) = run(
            precision.at("bfloat16", jax.value_and_grad(value, argnums=(0, 1)))
        )(a, b)
        small_a, small_b, small_c = map(to_bfloat16, (a, b, c))
        assert total == pytest.approx(float(np.sum(c * (small_a @ small_b))), rel=1e-5)
        np.testing.assert_allclose(by_a, small_c @ small_b.T, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(by_b, small_a.T @ small_c, rtol=1e-5, atol=1e-6)
        assert by_a.dtype == by_b.dtype == jnp.float32
    assert not np.allclose(to_bfloat16(c) @ to_bfloat16(b).T, c @ b.T, rtol=1e-5, atol=1e-6), (
        "the test could not fail"
    )


def test_products_are_found_in_loops_branches_and_functions_with_their_own_gradient() -> None:
    rng = np.random.default_rng(1)
    a, x = rng.normal(size=(4, 4)).astype(np.float32), rng.normal(size=(3, 4)).astype(np.float32)

    @jax.custom_vjp
    def product(x: jax.Array, a: jax.Array) -> jax.Array:
        return x @ a

    product.defvjp(lambda x, a: (x @ a, (x, a)), lambda held, y: (y @ held[1].T, held[0].T @ y))

    def repeated(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, _: (jnp.tanh(x @ a), None), x, None, length=3)[0]

    expected = x
    for _ in range(3):
        expected = np.tanh(to_bfloat16(expected) @ to_bfloat16(a))
    np.testing.assert_allclose(precision.at("bfloat16", repeated)(x), expected, atol=3e-4)
    assert np.abs(repeated(x) - expected).max() > 1e-3
    once = to_bfloat16(x) @ to_bfloat16(a)
    for function in (
        lambda x: jax.lax.cond(x[0, 0] < 100, lambda x: x @ a, lambda x: x, x),
        lambda x: jax.lax.while_loop(lambda s: s[0] < 1, lambda s: (s[0] + 1, s[1] @ a), (0, x))[1],
        lambda x: jax.jit(lambda x: x @ a)(x),
        lambda x: jax.checkpoint(lambda x: x @ a)(x),
        lambda x: product(x, a),
    ):
        np.testing.assert_allclose(
            precision.at("bfloat16", function)(x), once, rtol=1e-5, atol=1e-6
        )
    by_x = precision.at("bfloat16", jax.grad(lambda x: jnp.sum(product(x, a))))(x)
    np.testing.assert_allclose(
        by_x, np.ones((3, 4), np.float32) @ to_bfloat16(a).T, rtol=1e-5, atol=1e-6
    )


def test_a_convolution_rounds_operands_and_result() -> None:
    rng = np.random.default_rng(2)
    words, kernel = (
        rng.normal(size=(2, 6, 3)).astype(np.float32),
        rng.normal(size=(1, 3, 4)).astype(np.float32),
    )

    def convolve(words: jax.Array, kernel: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            words, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
        )

    found = precision.at("bfloat16", convolve)(words, kernel)
    exact = to_bfloat16(words) @ to_bfloat16(kernel[0])
    np.testing.assert_allclose(found, exact, rtol=2**-8, atol=1e-6)
    np.testing.assert_array_equal(found, to_bfloat16(found))


@pytest.mark.parametrize("encoder", ["mf", "cnn", pytest.param("lstm", marks=pytest.mark.long)])
def test_the_steps_gradient_is_near_and_all_state_stays_float32(
    tiny: Dataset, encoder: str
) -> None:
    content, gradients = Content.of(tiny), []
    for name in ("float32", "bfloat16"):
        config = complete(SMALL | {"sampler": "ns", "encoder": encoder, "precision": name})
        trainer, state = Trainer.create(config, tiny)
        batch = next(batches(tiny.graph, config, Streams(0)))
        gradient = jax.jit(lambda parameters: trainer.gradient(parameters, batch, content, None)[1])  # noqa: B023
        gradients.append(flat(gradient(state.parameters)))
        kinds = jax.tree.map(lambda leaf: leaf.dtype, state)
        after, loss = trainer.step(state, batch, content)
        assert jax.tree.map(lambda leaf: leaf.dtype, after) == kinds
        assert loss.dtype == jnp.float32
    off = np.linalg.norm(gradients[0] - gradients[1]) / np.linalg.norm(gradients[0])
    # bfloat16 is exact to 2^-9 = 0.002 in each operand.
    assert 2e-4 < off < 0.02


def test_training_reaches_much_the_same_loss(tiny: Dataset) -> None:
    reached = {}
    for name in ("float32", "bfloat16"):
        config = complete(SMALL | {"sampler": "strat-ns", "encoder": "cnn", "precision": name})
        trainer, state = Trainer.create(config, tiny)
        content = Content.of(tiny)
        probe = Probe(tiny.graph, config, Embedder(trainer.towers, content))
        before = probe(state.parameters)
        for batch in islice(batches(tiny.graph, config, Streams(0)), 30):
            state, _ = trainer.step(state, batch, content)
        reached[name] = probe(state.parameters)
        assert reached[name] < 0.97 * before
    assert reached["bfloat16"] == pytest.approx(reached["float32"], rel=0.02)


def lowered_for_cuda(function: Any, *arguments: Any) -> str:
    """The program that XLA would get for an NVIDIA GPU; needs none."""
    text: str = jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
    return text


PRODUCT = r"stablehlo\.(?:dot_general|convolution).*"


@pytest.mark.parametrize(
    ("name", "sign"), [("float32", "HIGHEST"), ("tf32", "HIGH"), ("bfloat16", "DEFAULT")]
)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_what_an_nvidia_gpu_would_be_asked_for(
    tiny: Dataset, encoder: str, name: str, sign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JAX's own default there is TF32 for float32: every product of the step must say what it
    wants.
    """
    monkeypatch.setattr(device, "compute_capability", lambda: 9.0)
    monkeypatch.setattr(precision, "compute_capability", lambda: 9.0)
    monkeypatch.setattr(precision.jax, "default_backend", lambda: "gpu")
    config = complete(SMALL | {"sampler": "ns", "encoder": encoder, "precision": name})
    trainer, state = Trainer.create(config, tiny)
    batch = next(batches(tiny.graph, config, Streams(0)))
    lines = re.findall(PRODUCT, lowered_for_cuda(trainer._step, state, batch, Content.of(tiny)))
    assert len(lines) >= 3
    for line in lines:
        assert set(re.findall(r"\b(HIGHEST|HIGH|DEFAULT)\b", line)) == {sign}, line
        operands = re.search(r": \(tensor<\S*x(\w+)>, tensor<\S*x(\w+)>\)", line)
        assert operands is not None
        assert set(operands.groups()) == {"bf16" if name == "bfloat16" else "f32"}, line


def test_probe_and_evaluation_are_in_full_float32_whatever_the_run(tiny: Dataset) -> None:
    config = complete(SMALL | {"encoder": "cnn", "loss": "hinge", "precision": "bfloat16"})
    trainer, state = Trainer.create(config, tiny)
    content = Content.of(tiny)
    embedder = Embedder(trainer.towers, content)
    probe, evaluator = (
        Probe(tiny.graph, config, embedder),
        RecallEvaluator(tiny, "test", embedder, DotProduct()),
    )
    users, ids = embedder.users(state.parameters), tiny.graph.items_in_use[:64]
    items, nodes = (embedder.items(state.parameters, some) for some in (ids, probe.links.nodes))
    with jax.default_matmul_precision("bfloat16"):
        texts = [
            lowered_for_cuda(embedder._items, state.parameters, ids, content),
            lowered_for_cuda(
                evaluator._ranks, users.scored, items, np.zeros(4, np.int32), np.zeros(4, np.int32)
            ),
            lowered_for_cuda(probe._block_sum, users, nodes, probe._blocks[0]),
        ]
    for text in texts:
        lines = re.findall(PRODUCT, text)
        assert lines
        assert all(
            set(re.findall(r"\b(HIGHEST|HIGH|DEFAULT)\b", line)) == {"HIGHEST"} for line in lines
        )


def test_tf32_is_refused_where_there_is_none(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: Dataset
) -> None:
    if device.compute_capability() is None:
        with pytest.raises(
            UsageError, match="needs an NVIDIA GPU.*Use --precision float32 or bfloat16"
        ):
            training.run(
                complete(SMALL | {"precision": "tf32"}), Locations(data_dir, tmp_path / "runs")
            )
        assert not (tmp_path / "runs").exists()
        for command in ("run", "profile"):
            arguments = [
                command,
                "--dataset",
                "tiny",
                "--data-dir",
                str(data_dir),
                "--runs-dir",
                str(tmp_path / "runs"),
            ]
            done = CliRunner().invoke(app, [*arguments, "--precision", "tf32"])
            assert done.exit_code == 2
    for capability, refused in ((7.5, True), (8.0, False), (9.0, False), (None, True)):
        monkeypatch.setattr(
            precision, "compute_capability", lambda capability=capability: capability
        )
        if refused:
            with pytest.raises(UsageError):
                precision.require("tf32")
        else:
            precision.require("tf32")
        precision.require("bfloat16")
    with pytest.raises(UsageError, match="did you mean 'bfloat16'"):
        complete({"precision": "bfloat"})


def test_the_compute_capability_is_an_nvidia_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    class Device:
        compute_capability = ""

    for text, expected in (("9.0", 9.0), ("gfx942", None), ("", None)):
        Device.compute_capability = text
        monkeypatch.setattr(jax, "devices", lambda: [Device()])
        assert device.compute_capability() == expected


def test_runs_of_different_precision_are_not_compared(data_dir: Path, tmp_path: Path) -> None:
    settings = SMALL | {"encoder": "mf", "epochs": 1}
    records = [
        training.run(
            complete(settings | {"sampler": sampler, "precision": name}),
            Locations(data_dir, tmp_path),
        )
        for sampler, name in (("iid", "float32"), ("strat-ns", "bfloat16"))
    ]
    assert [record.config.precision for record in records] == ["float32", "bfloat16"]
    comparisons = group(records)
    assert len(comparisons) == 2
    assert sorted("precision=bfloat16" in comparison.title() for comparison in comparisons) == [
        False,
        True,
    ]
    done = CliRunner().invoke(app, ["report", "--runs-dir", str(tmp_path)], env={"COLUMNS": "400"})
    assert done.exit_code == 0
    assert "--precision bfloat16" in done.stdout
