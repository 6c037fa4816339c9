"""The peer's encoders: PyTorch's own layers, as an expert would put them together.

Modules are named as ours are, so that parameters can be copied and gradients compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ncfbench.config import RunConfig
from ncfbench.data import Dataset

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


ENCODERS: Mapping[str, Callable[[RunConfig, Dataset], Any]] = {
    "cnn": Convolution,
    "lstm": Lstm,
}
