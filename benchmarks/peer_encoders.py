"""The peer's encoders in PyTorch: its own layers, as an expert would put them together.

Each names its parameters as ours are called, so that they can be copied and gradients compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from peer_torch import functional, nn, torch

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.data.assets.checkpoint import Architecture
from ncfbench.data.assets.kept import CHECKPOINT
from ncfbench.errors import UsageError
from ncfbench.models.encoders.transformer import POSITIONS


class EncoderInput(NamedTuple):
    """The items of a batch, as the peer's encoders see them."""

    items: torch.Tensor
    """int64[V]."""
    tokens: torch.Tensor
    """int64[V, L], cut to the longest text of the batch."""
    present: torch.Tensor
    """bool[V, L]: where a word is that was not removed."""
    lengths: torch.Tensor
    """int64[V]."""
    host_lengths: torch.Tensor
    """int64[V]: 1 at least, on the CPU, where packing wants them."""


Named = Mapping[str, tuple[nn.Parameter, str]]
"""Parameters by our names, and the order of their axes in ours: ``same``, or ``turned``, which is
its own inverse.
"""


def turned(value: torch.Tensor, how: str) -> torch.Tensor:
    """Reverse the axes of a tensor, or leave it."""
    return value.permute(*reversed(range(value.ndim))) if how == "turned" else value


def linear(name: str, module: Any) -> dict[str, tuple[nn.Parameter, str]]:
    """A dense layer or a convolution."""
    return {f"{name}.kernel": (module.weight, "turned"), f"{name}.bias": (module.bias, "same")}


def norm(name: str, module: Any) -> dict[str, tuple[nn.Parameter, str]]:
    """A layer normalisation."""
    return {f"{name}.scale": (module.weight, "same"), f"{name}.bias": (module.bias, "same")}


class Free(nn.Module):
    """A free vector for each item."""

    def __init__(self, config: RunConfig, dataset: Dataset) -> None:
        super().__init__()
        self.vectors = nn.Embedding(dataset.n_items, config.dimension)

    def named(self) -> Named:
        return {"vectors.embedding": (self.vectors.weight, "same")}

    def forward(self, texts: EncoderInput) -> torch.Tensor:
        return self.vectors(texts.items)


class OfWords(nn.Module):
    """Base of the encoders of texts: words, something, dense.

    Args:
        width, pooled: length of a word's vector, and of what the dense layer gets.
    """

    def __init__(self, config: RunConfig, dataset: Dataset, width: int, pooled: int) -> None:
        super().__init__()
        self.words = nn.Embedding(dataset.n_words + 1, width)
        self.dense = nn.Linear(pooled, config.dimension)

    def named(self) -> Named:
        return {"words.embedding": (self.words.weight, "same"), **linear("dense", self.dense)}

    def zeroed(self, texts: EncoderInput) -> torch.Tensor:
        """Words' vectors, zero where there is none."""
        return self.words(texts.tokens) * texts.present.unsqueeze(-1)

    def mean(self, vectors: torch.Tensor, texts: EncoderInput) -> torch.Tensor:
        """The mean over the words that are present."""
        total = (vectors * texts.present.unsqueeze(-1)).sum(dim=1)
        return total / texts.present.sum(dim=1, keepdim=True).clamp(min=1)


class Convolution(OfWords):
    """Convolution, maximum over time."""

    def __init__(self, config: RunConfig, dataset: Dataset) -> None:
        super().__init__(config, dataset, config.word_dimension, config.filters)
        self.convolution = nn.Conv1d(
            config.word_dimension, config.filters, config.filter_width, padding="same"
        )

    def named(self) -> Named:
        return {**super().named(), **linear("convolution", self.convolution)}

    def forward(self, texts: EncoderInput) -> torch.Tensor:
        activity = functional.relu(self.convolution(self.zeroed(texts).transpose(1, 2)))
        length = texts.tokens.shape[1]
        in_text = torch.arange(length, device=activity.device) < texts.lengths.unsqueeze(1)
        return self.dense((activity * in_text.unsqueeze(1)).amax(dim=2))


class Bow(OfWords):
    """The mean of word vectors."""

    def __init__(self, config: RunConfig, dataset: Dataset) -> None:
        super().__init__(config, dataset, config.word_dimension, config.word_dimension)

    def forward(self, texts: EncoderInput) -> torch.Tensor:
        return self.dense(self.mean(self.words(texts.tokens), texts))


def without_removed(texts: EncoderInput) -> EncoderInput:
    """The words that are left, moved to the front of their texts."""
    to_front = (~texts.present).int().argsort(dim=1, stable=True)
    lengths = texts.present.sum(dim=1)
    positions = torch.arange(texts.tokens.shape[1], device=lengths.device)
    return texts._replace(
        tokens=texts.tokens.gather(1, to_front),
        present=positions < lengths.unsqueeze(1),
        lengths=lengths,
        host_lengths=lengths.clamp(min=1).cpu(),
    )


class Lstm(OfWords):
    """LSTM, its last output, over packed sequences."""

    def __init__(self, config: RunConfig, dataset: Dataset) -> None:
        super().__init__(config, dataset, config.word_dimension, config.lstm_units)
        self.lstm = nn.LSTM(config.word_dimension, config.lstm_units, batch_first=True)
        # Ours has one bias, and a forget gate that starts open by a constant.
        units = config.lstm_units
        with torch.no_grad():
            self.lstm.bias_hh_l0.zero_()
            self.lstm.bias_hh_l0[units : 2 * units] = 1.0
        self.lstm.bias_hh_l0.requires_grad_(False)

    def named(self) -> Named:
        return {
            **super().named(),
            "input_gates.kernel": (self.lstm.weight_ih_l0, "turned"),
            "input_gates.bias": (self.lstm.bias_ih_l0, "same"),
            "recurrent_gates.kernel": (self.lstm.weight_hh_l0, "turned"),
        }

    def forward(self, texts: EncoderInput) -> torch.Tensor:
        texts = without_removed(texts)
        packed = nn.utils.rnn.pack_padded_sequence(
            self.zeroed(texts), texts.host_lengths, batch_first=True, enforce_sorted=False
        )
        _, (last, _) = self.lstm(packed)
        return self.dense(last[0] * (texts.lengths > 0).unsqueeze(1))


class Gru(OfWords):
    """GRU in both directions, mean over time, over packed sequences."""

    def __init__(self, config: RunConfig, dataset: Dataset) -> None:
        super().__init__(config, dataset, config.word_dimension, 2 * config.gru_units)
        self.gru = nn.GRU(
            config.word_dimension, config.gru_units, batch_first=True, bidirectional=True
        )
        for bias in (self.gru.bias_hh_l0, self.gru.bias_hh_l0_reverse):
            bias.requires_grad_(False).zero_()

    def named(self) -> Named:
        found = dict(super().named())
        for number, way in enumerate(("l0", "l0_reverse")):
            at = f"directions.{number}"
            found[f"{at}.input_gates.kernel"] = getattr(self.gru, f"weight_ih_{way}"), "turned"
            found[f"{at}.input_gates.bias"] = getattr(self.gru, f"bias_ih_{way}"), "same"
            found[f"{at}.recurrent_gates.kernel"] = getattr(self.gru, f"weight_hh_{way}"), "turned"
        return found

    def forward(self, texts: EncoderInput) -> torch.Tensor:
        texts = without_removed(texts)
        packed = nn.utils.rnn.pack_padded_sequence(
            self.zeroed(texts), texts.host_lengths, batch_first=True, enforce_sorted=False
        )
        outputs, _ = nn.utils.rnn.pad_packed_sequence(
            self.gru(packed)[0], batch_first=True, total_length=texts.tokens.shape[1]
        )
        return self.dense(self.mean(outputs, texts))


def layer(
    width: int, heads: int, units: int, *, norm_first: bool, activation: Any, epsilon: float
) -> nn.TransformerEncoderLayer:
    """A layer of PyTorch's own, without dropout."""
    return nn.TransformerEncoderLayer(
        width,
        heads,
        units,
        dropout=0.0,
        activation=activation,
        layer_norm_eps=epsilon,
        batch_first=True,
        norm_first=norm_first,
    )


def layer_names(name: str, module: Any, norms: tuple[str, str]) -> dict[str, Any]:
    """The parameters of a layer of PyTorch's own.

    Args:
        norms: what ours calls its two normalisations.
    """
    attention = module.self_attn
    return {
        f"{name}.attention.inputs.kernel": (attention.in_proj_weight, "turned"),
        f"{name}.attention.inputs.bias": (attention.in_proj_bias, "same"),
        **linear(f"{name}.attention.output", attention.out_proj),
        **linear(f"{name}.feed_forward.hidden", module.linear1),
        **linear(f"{name}.feed_forward.output", module.linear2),
        **norm(f"{name}.{norms[0]}", module.norm1),
        **norm(f"{name}.{norms[1]}", module.norm2),
    }


def hidden_words(texts: EncoderInput) -> torch.Tensor:
    """bool[V, L]: the words that attention must not see; a text without words sees its padding."""
    hidden = ~texts.present
    hidden[:, 0] &= texts.present.any(dim=1)
    return hidden


def tanh_gelu(values: torch.Tensor) -> torch.Tensor:
    """GELU by a hyperbolic tangent."""
    return functional.gelu(values, approximate="tanh")


class Transformer(OfWords):
    """Positions, blocks that normalise first, a last normalisation, mean over the words."""

    def __init__(self, config: RunConfig, dataset: Dataset) -> None:
        super().__init__(config, dataset, config.width, config.width)
        self.positions = nn.Embedding(POSITIONS, config.width)
        self.layers = nn.ModuleList(
            layer(
                config.width,
                config.heads,
                config.feed_forward,
                norm_first=True,
                activation=tanh_gelu,
                epsilon=1e-6,
            )
            for _ in range(config.layers)
        )
        self.last_norm = nn.LayerNorm(config.width, eps=1e-6)

    def named(self) -> Named:
        found = {**super().named(), "stack.positions.embedding": (self.positions.weight, "same")}
        for number, each in enumerate(self.layers):
            norms = ("before_attention", "before_hidden")
            found |= layer_names(f"stack.blocks.{number}", each, norms)
        return found | norm("stack.last_norm", self.last_norm)

    def forward(self, texts: EncoderInput) -> torch.Tensor:
        length, hidden = texts.tokens.shape[1], hidden_words(texts)
        words = self.words(texts.tokens) + self.positions.weight[:length]
        for each in self.layers:
            words = each(words, src_key_padding_mask=hidden)
        return self.dense(self.mean(self.last_norm(words), texts))


class Bert(nn.Module):
    """A checkpoint's encoder, mean over the words, unit length, dense."""

    def __init__(self, config: RunConfig, dataset: Dataset) -> None:
        super().__init__()
        architecture = Architecture.read(CHECKPOINT.path(dataset.folder, config.checkpoint))
        if architecture.pooling != "mean" or not architecture.normalises:
            raise UsageError("The peer has checkpoints with mean pooling and unit length only.")
        width, epsilon = architecture.width, architecture.epsilon
        self.words = nn.Embedding(architecture.words, width)
        self.positions = nn.Embedding(architecture.positions, width)
        self.norm = nn.LayerNorm(width, eps=epsilon)
        self.layers = nn.ModuleList(
            layer(
                width,
                architecture.heads,
                architecture.feed_forward,
                norm_first=False,
                activation="gelu",
                epsilon=epsilon,
            )
            for _ in range(architecture.layers)
        )
        self.dense = nn.Linear(width, config.dimension)

    def named(self) -> Named:
        found = {
            "pretrained.words.embedding": (self.words.weight, "same"),
            "pretrained.stack.positions.embedding": (self.positions.weight, "same"),
            **norm("pretrained.stack.norm", self.norm),
            **linear("dense", self.dense),
        }
        for number, each in enumerate(self.layers):
            norms = ("after_attention", "after_hidden")
            found |= layer_names(f"pretrained.stack.layers.{number}", each, norms)
        return found

    def forward(self, texts: EncoderInput) -> torch.Tensor:
        length, hidden = texts.tokens.shape[1], hidden_words(texts)
        words = self.norm(self.words(texts.tokens) + self.positions.weight[:length])
        for each in self.layers:
            words = each(words, src_key_padding_mask=hidden)
        total = (words * texts.present.unsqueeze(-1)).sum(dim=1)
        mean = total / texts.present.sum(dim=1, keepdim=True).clamp(min=1)
        return self.dense(functional.normalize(mean, eps=1e-12))


ENCODERS: Mapping[str, Callable[[RunConfig, Dataset], Any]] = {
    "mf": Free,
    "cnn": Convolution,
    "lstm": Lstm,
    "bow": Bow,
    "gru": Gru,
    "transformer": Transformer,
    "bert": Bert,
}


def make_encoder(config: RunConfig, dataset: Dataset) -> Any:
    """Return the peer of a run's encoder.

    Raises:
        UsageError: it has none.
    """
    if config.encoder not in ENCODERS:
        raise UsageError(f"The peer has no encoder {config.encoder!r}: {', '.join(ENCODERS)}.")
    return ENCODERS[config.encoder](config, dataset)
