"""The peer's encoders: PyTorch's own layers, as an expert would put them together.

Modules are named as ours are, so that parameters can be copied and gradients compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.data.assets.architecture import Architecture
from ncfbench.data.assets.kept import CHECKPOINT
from ncfbench.errors import UsageError
from ncfbench.models.encoders.transformer import POSITIONS

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError:  # pragma: no cover - the extra is not installed
    raise SystemExit(
        "This benchmark needs PyTorch. Install it with: pip install '.[bench]'"
    ) from None


class EncoderInput(NamedTuple):
    """The items of a batch, as the peer's encoders see them."""

    tokens: torch.Tensor
    """int64[V, L], cut to the longest text of the batch."""
    present: torch.Tensor
    """bool[V, L]: where a word is that was not removed."""
    lengths: torch.Tensor
    """int64[V]."""


class Convolution(nn.Module):
    """Convolution, maximum over time."""

    def __init__(self, config: RunConfig, dataset: Dataset) -> None:
        super().__init__()
        self.words = nn.Embedding(dataset.n_words + 1, config.word_dimension)
        self.convolution = nn.Conv1d(
            config.word_dimension, config.filters, config.filter_width, padding="same"
        )
        self.dense = nn.Linear(config.filters, config.dimension)

    def forward(self, texts: EncoderInput) -> torch.Tensor:
        words = self.words(texts.tokens) * texts.present.unsqueeze(-1)
        activity = functional.relu(self.convolution(words.transpose(1, 2)))
        length = texts.tokens.shape[1]
        in_text = torch.arange(length, device=activity.device) < texts.lengths.unsqueeze(1)
        return self.dense((activity * in_text.unsqueeze(1)).amax(dim=2))


class Lstm(nn.Module):
    """LSTM, its last output, over packed sequences of the words that are left."""

    def __init__(self, config: RunConfig, dataset: Dataset) -> None:
        super().__init__()
        units = config.lstm_units
        self.words = nn.Embedding(dataset.n_words + 1, config.word_dimension)
        self.lstm = nn.LSTM(config.word_dimension, units, batch_first=True)
        self.dense = nn.Linear(units, config.dimension)
        # Ours has one bias, and a forget gate that starts open by a constant.
        with torch.no_grad():
            self.lstm.bias_hh_l0.zero_()
            self.lstm.bias_hh_l0[units : 2 * units] = 1.0
        self.lstm.bias_hh_l0.requires_grad_(False)

    def forward(self, texts: EncoderInput) -> torch.Tensor:
        to_front = (~texts.present).int().argsort(dim=1, stable=True)
        lengths = texts.present.sum(dim=1)
        packed = nn.utils.rnn.pack_padded_sequence(
            self.words(texts.tokens.gather(1, to_front)),
            lengths.clamp(min=1).cpu(),
            batch_first=True,
            enforce_sorted=False,
        )
        _, (last, _) = self.lstm(packed)
        return self.dense(last[0] * (lengths > 0).unsqueeze(1))


def mean_of_words(words: torch.Tensor, texts: EncoderInput) -> torch.Tensor:
    """Return the mean over the words that are present."""
    total = (words * texts.present.unsqueeze(-1)).sum(dim=1)
    return total / texts.present.sum(dim=1, keepdim=True).clamp(min=1)


def attend(layers: nn.ModuleList, words: torch.Tensor, texts: EncoderInput) -> torch.Tensor:
    """Pass words through layers; attention sees none that is absent."""
    hidden = ~texts.present
    hidden[:, 0] &= texts.present.any(dim=1)  # a text without words sees its padding
    for layer in layers:
        words = layer(words, src_key_padding_mask=hidden)
    return words


def make_layers(count: int, *sizes: int, **options: Any) -> nn.ModuleList:
    """Return layers of PyTorch's own, without dropout.

    Args:
        sizes: width, heads, and units of the hidden layer.
    """
    options |= {"dropout": 0.0, "batch_first": True}
    return nn.ModuleList(nn.TransformerEncoderLayer(*sizes, **options) for _ in range(count))


def tanh_gelu(values: torch.Tensor) -> torch.Tensor:
    """Return GELU by a hyperbolic tangent."""
    return functional.gelu(values, approximate="tanh")


class Transformer(nn.Module):
    """Positions, blocks that normalise first, a last normalisation, mean over the words."""

    def __init__(self, config: RunConfig, dataset: Dataset) -> None:
        super().__init__()
        width, sizes = config.width, (config.width, config.heads, config.feed_forward)
        options = {"norm_first": True, "activation": tanh_gelu, "layer_norm_eps": 1e-6}
        self.words = nn.Embedding(dataset.n_words + 1, width)
        self.stack = nn.ModuleDict(
            {
                "positions": nn.Embedding(POSITIONS, width),
                "blocks": make_layers(config.layers, *sizes, **options),
                "last_norm": nn.LayerNorm(width, eps=1e-6),
            }
        )
        self.dense = nn.Linear(width, config.dimension)

    def forward(self, texts: EncoderInput) -> torch.Tensor:
        positions = self.stack["positions"].weight[: texts.tokens.shape[1]]
        words = attend(self.stack["blocks"], self.words(texts.tokens) + positions, texts)
        return self.dense(mean_of_words(self.stack["last_norm"](words), texts))


class Bert(nn.Module):
    """A checkpoint's encoder, mean over the words, unit length, dense."""

    def __init__(self, config: RunConfig, dataset: Dataset) -> None:
        super().__init__()
        form = Architecture.read(CHECKPOINT.path(dataset.folder, config.checkpoint))
        if form.pooling != "mean" or not form.normalises:
            raise UsageError("The peer has checkpoints with mean pooling and unit length only.")
        sizes = (form.width, form.heads, form.feed_forward)
        options = {"norm_first": False, "activation": "gelu", "layer_norm_eps": form.epsilon}
        stack = {
            "positions": nn.Embedding(form.positions, form.width),
            "norm": nn.LayerNorm(form.width, eps=form.epsilon),
            "layers": make_layers(form.layers, *sizes, **options),
        }
        self.pretrained = nn.ModuleDict(
            {"words": nn.Embedding(form.words, form.width), "stack": nn.ModuleDict(stack)}
        )
        self.dense = nn.Linear(form.width, config.dimension)

    def forward(self, texts: EncoderInput) -> torch.Tensor:
        stack = self.pretrained["stack"]
        positions = stack["positions"].weight[: texts.tokens.shape[1]]
        words = stack["norm"](self.pretrained["words"](texts.tokens) + positions)
        mean = mean_of_words(attend(stack["layers"], words, texts), texts)
        return self.dense(functional.normalize(mean, eps=1e-12))


ENCODERS: Mapping[str, Callable[[RunConfig, Dataset], Any]] = {
    "cnn": Convolution,
    "lstm": Lstm,
    "transformer": Transformer,
    "bert": Bert,
}
