"""The peer's model: both towers and the objective in PyTorch, as an expert would write them, and
the way to and from ours.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from peer_encoders import Texts, make_encoder, turned
from peer_torch import functional, nn, torch

from ncfbench.catalog import LossFamily, find_encoder
from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.sampling.batch import Batch
from ncfbench.torch import TensorBatch, as_tensors, dot_scores, make_loss, objective


class Tensors(NamedTuple):
    """A batch of ours as tensors on the device, and the lengths of its texts."""

    links: TensorBatch
    lengths: torch.Tensor
    """int64[V]: words of each item's text, 1 at least, on the CPU, where packing wants them; made
    ahead of time.
    """
    longest: int
    """Words of the longest text."""

    @classmethod
    def of(cls, batch: Batch, family: LossFamily, dataset: Dataset, device: str = "cpu") -> Tensors:
        """Copy a batch from the host or from JAX's device."""
        lengths = np.maximum(dataset.lengths[np.asarray(batch.items)], 1).astype(np.int64)
        links = as_tensors(batch, family).to(device)
        return cls(links, torch.from_numpy(lengths), int(lengths.max()))


def set_precision(precision: str) -> None:
    """Let PyTorch's float32 products be TF32 on a GPU, or not.

    The older settings are used: Inductor still reads them, and refuses a mix with the newer ones.
    """
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


class Peer(nn.Module):
    """Both towers and the objective of a batch. For bfloat16 its products are autocast, as ours are
    rounded.
    """

    def __init__(self, config: RunConfig, dataset: Dataset) -> None:
        super().__init__()
        self.config, self.loss = config, make_loss(config)
        counts = find_encoder(config.encoder).reads("word_dropout")
        self.drops_words = counts and config.word_dropout > 0
        self.register_buffer(
            "tokens", torch.from_numpy(dataset.tokens_IxL.astype(np.int64)), persistent=False
        )
        self.register_buffer(
            "lengths", torch.from_numpy(dataset.lengths.astype(np.int64)), persistent=False
        )
        self.users = nn.Embedding(dataset.n_users, config.dimension)
        self.encoder = make_encoder(config, dataset)

    def named(self) -> dict[str, tuple[nn.Parameter, str]]:
        """Parameters by our names; see :data:`peer_encoders.Named`."""
        found = {"user_tower.vectors.embedding": (self.users.weight, "same")}
        return found | {f"encoder.{name}": each for name, each in self.encoder.named().items()}

    def load(self, parameters: Any) -> None:
        """Our parameters."""
        with torch.no_grad():
            for name, (parameter, how) in self.named().items():
                node = parameters
                for key in name.split("."):
                    node = next(value for own, value in node.items() if str(own) == key)
                parameter.copy_(turned(torch.from_numpy(np.array(node[...])), how))

    def gradient(self) -> dict[str, np.ndarray]:
        """The gradients that are there, in our layout, by our names."""
        found = {}
        for name, (parameter, how) in self.named().items():
            assert parameter.grad is not None
            found[name] = turned(parameter.grad, how).cpu().numpy()
        return found

    def embed_items(self, batch: Tensors) -> torch.Tensor:
        """g of a batch's items, float32; dropout in training mode only."""
        items, lengths = batch.links.items, self.lengths[batch.links.items]
        tokens = self.tokens[items, : batch.longest]
        present = tokens > 0
        if self.training and self.drops_words:
            present = present & (
                torch.rand(tokens.shape, device=tokens.device) >= self.config.word_dropout
            )
        texts = Texts(items, tokens, present, lengths, batch.lengths)
        vectors = self.encoder(texts).float()
        if self.training and self.config.item_dropout > 0:
            vectors = functional.dropout(vectors, self.config.item_dropout)
        return functional.normalize(vectors, dim=1) if self.config.normalize else vectors

    def forward(self, batch: Tensors) -> torch.Tensor:
        """The objective of a batch, float32."""
        rounded = self.config.precision == "bfloat16"
        with torch.autocast(batch.links.users.device.type, dtype=torch.bfloat16, enabled=rounded):
            return self.objective(batch)

    def objective(self, batch: Tensors) -> torch.Tensor:
        """The sum of the links' losses and the users' penalty."""
        raw = self.users(batch.links.users)
        users = functional.normalize(raw, dim=1) if self.config.normalize else raw
        positive, negative = dot_scores(users, self.embed_items(batch), batch.links)
        value = objective(positive, negative, batch.links, self.loss)
        penalty = raw[batch.links.pos_user].square().sum(dim=1).mean()
        return value + self.config.user_l2 * penalty
