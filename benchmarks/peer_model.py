"""The peer's model: both towers and the objective in PyTorch, as an expert would write them, and
the way to and from ours.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import UsageError
from ncfbench.sampling.batch import Batch, Listed

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError:  # pragma: no cover - the extra is not installed
    raise SystemExit(
        "This benchmark needs PyTorch. Install it with: pip install '.[bench]'"
    ) from None


class Tensors(NamedTuple):
    """A batch of ours as tensors on the device; ids and slots are int64."""

    users: torch.Tensor
    items: torch.Tensor
    pos_user: torch.Tensor
    pos_item: torch.Tensor
    negatives: Any
    """:class:`ncfbench.sampling.batch.Listed` or ``Shared``, of tensors."""
    lengths: torch.Tensor
    """int64[V]: words of each item's text, 1 at least, on the CPU, where packing wants them; made
    ahead of time.
    """

    @classmethod
    def of(cls, batch: Batch, dataset: Dataset, device: str = "cpu") -> Tensors:
        """Copy a batch from the host or from JAX's device."""

        def tensor(array: Any) -> torch.Tensor:
            array = np.array(array)
            return torch.from_numpy(
                array.astype(np.int64) if array.dtype == np.int32 else array
            ).to(device)

        negatives = type(batch.negatives)(*map(tensor, batch.negatives))
        lengths = np.maximum(dataset.lengths[np.asarray(batch.items)], 1).astype(np.int64)
        nodes = (
            tensor(getattr(batch, name)) for name in ("users", "items", "pos_user", "pos_item")
        )
        return cls(*nodes, negatives, torch.from_numpy(lengths))


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
        self.config = config
        self.register_buffer(
            "tokens", torch.from_numpy(dataset.tokens_IxL.astype(np.int64)), persistent=False
        )
        self.register_buffer(
            "lengths", torch.from_numpy(dataset.lengths.astype(np.int64)), persistent=False
        )
        width = config.word_dimension
        self.users = nn.Embedding(dataset.n_users, config.dimension)
        if config.encoder == "mf":
            self.vectors = nn.Embedding(dataset.n_items, config.dimension)
            return
        self.words = nn.Embedding(dataset.n_words + 1, width)
        if config.encoder == "cnn":
            self.convolution = nn.Conv1d(width, config.filters, config.filter_width, padding="same")
            self.dense = nn.Linear(config.filters, config.dimension)
        elif config.encoder == "lstm":
            self.lstm = nn.LSTM(width, config.lstm_units, batch_first=True)
            # Ours has one bias, and a forget gate that starts open by a constant.
            self.lstm.bias_hh_l0.requires_grad_(False)
            self.dense = nn.Linear(config.lstm_units, config.dimension)
        else:
            raise UsageError(f"The peer has no encoder {config.encoder!r}: mf, cnn or lstm.")

    def load(self, parameters: Any) -> None:
        """Our parameters."""

        def tensor(value: Any) -> torch.Tensor:
            return torch.from_numpy(np.array(value[...]))

        encoder = parameters["encoder"]
        with torch.no_grad():
            self.users.weight.copy_(tensor(parameters["user_tower"]["vectors"]["embedding"]))
            if self.config.encoder == "mf":
                self.vectors.weight.copy_(tensor(encoder["vectors"]["embedding"]))
                return
            self.words.weight.copy_(tensor(encoder["words"]["embedding"]))
            self.dense.weight.copy_(tensor(encoder["dense"]["kernel"]).T)
            self.dense.bias.copy_(tensor(encoder["dense"]["bias"]))
            if self.config.encoder == "cnn":
                self.convolution.weight.copy_(
                    tensor(encoder["convolution"]["kernel"]).permute(2, 1, 0)
                )
                self.convolution.bias.copy_(tensor(encoder["convolution"]["bias"]))
            else:
                units = self.config.lstm_units
                self.lstm.weight_ih_l0.copy_(tensor(encoder["input_gates"]["kernel"]).T)
                self.lstm.bias_ih_l0.copy_(tensor(encoder["input_gates"]["bias"]))
                self.lstm.weight_hh_l0.copy_(tensor(encoder["recurrent_gates"]["kernel"]).T)
                self.lstm.bias_hh_l0.zero_()
                self.lstm.bias_hh_l0[units : 2 * units] = 1.0

    def gradient(self) -> dict[str, np.ndarray]:
        """The gradients that are there, in our layout, by our names."""

        def array(parameter: torch.Tensor) -> np.ndarray:
            assert parameter.grad is not None
            return parameter.grad.cpu().numpy()

        found = {"user_tower.vectors.embedding": array(self.users.weight)}
        if self.config.encoder == "mf":
            return found | {"encoder.vectors.embedding": array(self.vectors.weight)}
        found |= {
            "encoder.words.embedding": array(self.words.weight),
            "encoder.dense.kernel": array(self.dense.weight).T,
            "encoder.dense.bias": array(self.dense.bias),
        }
        if self.config.encoder == "cnn":
            found["encoder.convolution.kernel"] = array(self.convolution.weight).transpose(2, 1, 0)
            found["encoder.convolution.bias"] = array(self.convolution.bias)
        else:
            found["encoder.input_gates.kernel"] = array(self.lstm.weight_ih_l0).T
            found["encoder.input_gates.bias"] = array(self.lstm.bias_ih_l0)
            found["encoder.recurrent_gates.kernel"] = array(self.lstm.weight_hh_l0).T
        return found

    def embed_items(self, items: torch.Tensor, host_lengths: torch.Tensor) -> torch.Tensor:
        """g of item ids, float32; dropout in training mode only."""
        if self.config.encoder == "mf":
            vectors = self.vectors(items)
        else:
            tokens, lengths = self.tokens[items], self.lengths[items]
            present = tokens > 0
            if self.training and self.config.word_dropout > 0:
                present = present & (
                    torch.rand(tokens.shape, device=tokens.device) >= self.config.word_dropout
                )
            words = self.words(tokens) * present.unsqueeze(-1)
            if self.config.encoder == "cnn":
                activity = functional.relu(self.convolution(words.transpose(1, 2)))
                in_text = torch.arange(tokens.shape[1], device=tokens.device) < lengths.unsqueeze(1)
                pooled = (activity * in_text.unsqueeze(1)).amax(dim=2)
            else:
                packed = nn.utils.rnn.pack_padded_sequence(
                    words, host_lengths, batch_first=True, enforce_sorted=False
                )
                _, (last, _) = self.lstm(packed)
                pooled = last[0] * (lengths > 0).unsqueeze(1)
            vectors = self.dense(pooled).float()
        if self.training and self.config.item_dropout > 0:
            vectors = functional.dropout(vectors, self.config.item_dropout)
        return functional.normalize(vectors, dim=1) if self.config.normalize else vectors

    def forward(self, batch: Tensors) -> torch.Tensor:
        """The objective of a batch, float32."""
        rounded = self.config.precision == "bfloat16"
        with torch.autocast(batch.users.device.type, dtype=torch.bfloat16, enabled=rounded):
            return self.objective(batch)

    def objective(self, batch: Tensors) -> torch.Tensor:
        """The sum of the links' losses and the users' penalty."""
        config = self.config
        raw = self.users(batch.users)
        users = functional.normalize(raw, dim=1) if config.normalize else raw
        items = self.embed_items(batch.items, batch.lengths)
        own = users[batch.pos_user]
        positive = (own * items[batch.pos_item]).sum(dim=1)
        weight = batch.negatives.weight
        if isinstance(batch.negatives, Listed):
            negative = (users[batch.negatives.user] * items[batch.negatives.item]).sum(dim=2)
        else:
            negative = (own @ items.T).float()
        if config.loss == "sg":
            value = (
                functional.softplus(-positive).mean()
                + config.lambda_ * (weight * functional.softplus(negative)).sum()
            )
        elif config.loss == "mse":
            value = (1 - positive).square().mean() + config.lambda_ * (
                weight * negative.square()
            ).sum()
        elif config.loss == "log":
            value = (
                weight * functional.softplus(config.gamma * (negative - positive.unsqueeze(1)))
            ).sum()
        elif config.loss == "hinge":
            value = (
                weight * functional.relu(negative - positive.unsqueeze(1) + config.gamma)
            ).sum()
        else:
            raise UsageError(f"The peer has no loss {config.loss!r}: sg, mse, log or hinge.")
        return value + config.user_l2 * raw[batch.pos_user].square().sum(dim=1).mean()
