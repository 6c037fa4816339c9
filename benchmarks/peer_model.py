"""The same model and its training loops in PyTorch, for a process of its own.

Two programs in one process share a heap, and a pool of threads each: beside PyTorch our iterations
took up to twice as long there as alone. :func:`prepare`, :func:`run` and :func:`gradient` are
called in PyTorch's process, and what they prepare stays there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ncfbench.catalog import LossFamily
from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import UsageError
from ncfbench.sampling.batch import Batch
from ncfbench.torch import TensorBatch, as_tensors, dot_scores, make_loss, objective

WARM_UP = 3
"""Iterations before any block, for each shape."""
PROGRAMS = 64
"""Programs that torch.compile may make of one function; by its own limit of 8 it would go on
without compiling.
"""


# --- encoders: PyTorch's own layers, named as ours are. Of the items of a batch they get tokens,
# int64[V, L], cut to the longest text; present, bool[V, L], where a word is that was not removed;
# and lengths, int64[V].


class Convolution(nn.Module):
    """Convolution, maximum over time."""

    def __init__(self, config: RunConfig, dataset: Dataset) -> None:
        super().__init__()
        self.words = nn.Embedding(dataset.n_words + 1, config.word_dimension)
        self.convolution = nn.Conv1d(
            config.word_dimension, config.filters, config.filter_width, padding="same"
        )
        self.dense = nn.Linear(config.filters, config.dimension)

    def forward(self, tokens: Tensor, present: Tensor, lengths: Tensor) -> Tensor:
        words = self.words(tokens) * present.unsqueeze(-1)
        activity = functional.relu(self.convolution(words.transpose(1, 2)))
        in_text = torch.arange(tokens.shape[1]) < lengths.unsqueeze(1)
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

    def forward(self, tokens: Tensor, present: Tensor, lengths: Tensor) -> Tensor:
        words = self.words(tokens.gather(1, (~present).int().argsort(dim=1, stable=True)))
        left = present.sum(dim=1)
        options = {"batch_first": True, "enforce_sorted": False}
        packed = nn.utils.rnn.pack_padded_sequence(words, left.clamp(min=1), **options)
        _, (last, _) = self.lstm(packed)
        return self.dense(last[0] * (left > 0).unsqueeze(1))


ENCODERS: Mapping[str, Callable[[RunConfig, Dataset], Any]] = {"cnn": Convolution, "lstm": Lstm}


# --- the model


class Tensors(NamedTuple):
    """A batch of ours as tensors, and the number of words of its longest text."""

    links: TensorBatch
    longest: int

    @classmethod
    def of(cls, batch: Batch, family: LossFamily, dataset: Dataset) -> Tensors:
        """Copy a batch from the host or from JAX's device."""
        longest = max(int(dataset.lengths[np.asarray(batch.items)].max()), 1)
        return cls(as_tensors(batch, family), longest)


class Peer(nn.Module):
    """Both towers and the objective of a batch.

    Raises:
        UsageError: it has no such encoder.
    """

    def __init__(self, config: RunConfig, dataset: Dataset) -> None:
        super().__init__()
        if config.encoder not in ENCODERS:
            raise UsageError(f"The peer has no encoder {config.encoder!r}: {', '.join(ENCODERS)}.")
        self.config, self.loss = config, make_loss(config)
        for name, values in (("tokens", dataset.tokens_IxL), ("lengths", dataset.lengths)):
            self.register_buffer(name, torch.from_numpy(values.astype(np.int64)), persistent=False)
        vectors = nn.Embedding(dataset.n_users, config.dimension)
        self.user_tower = nn.ModuleDict({"vectors": vectors})
        self.encoder = ENCODERS[config.encoder](config, dataset)

    def load(self, parameters: Any) -> None:
        """Copy our parameters."""
        with torch.no_grad():
            for name, parameter in named(self).items():
                value = np.array(leaf_of(parameters, name))
                parameter.copy_(turned(name, torch.from_numpy(value)))

    def embed_items(self, batch: Tensors) -> Tensor:
        """Return g of a batch's items; dropout in training mode only."""
        items = batch.links.items
        tokens = self.tokens[items, : batch.longest]
        present = tokens > 0
        if self.training and self.config.word_dropout > 0:
            present &= torch.rand(tokens.shape) >= self.config.word_dropout
        vectors = self.encoder(tokens, present, self.lengths[items])
        if self.training and self.config.item_dropout > 0:
            vectors = functional.dropout(vectors, self.config.item_dropout)
        return functional.normalize(vectors, dim=1) if self.config.normalize else vectors

    def forward(self, batch: Tensors) -> Tensor:
        """Return the objective of a batch: the links' losses and the users' penalty."""
        links = batch.links
        raw = self.user_tower["vectors"](links.users)
        users = functional.normalize(raw, dim=1) if self.config.normalize else raw
        positive, negative = dot_scores(users, self.embed_items(batch), links)
        penalty = raw[links.pos_user].square().sum(dim=1).mean()
        return objective(positive, negative, links, self.loss) + self.config.user_l2 * penalty


OURS = {
    "lstm.weight_ih_l0": "input_gates.kernel",
    "lstm.bias_ih_l0": "input_gates.bias",
    "lstm.weight_hh_l0": "recurrent_gates.kernel",
}
"""Names of PyTorch's parameters that are others in ours."""


def named(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return a model's trained parameters by the names of ours."""
    trained = {}
    for path, module in model.named_modules():
        weight = "embedding" if isinstance(module, nn.Embedding) else "kernel"
        for last, parameter in module.named_parameters(recurse=False):
            name = f"{path}.{weight if last == 'weight' else last}"
            for theirs, ours in OURS.items():
                name = name.replace(theirs, ours)
            if parameter.requires_grad:
                trained[name] = parameter
    return trained


def leaf_of(parameters: Any, name: str) -> np.ndarray:
    """Return one of our parameters, or of their gradients, by its name."""
    for key in name.split("."):
        parameters = next(value for own, value in parameters.items() if str(own) == key)
    return np.asarray(parameters[...])


def turned(name: str, value: Tensor) -> Tensor:
    """Reverse the axes of a kernel, which lie the other way round in ours."""
    return value.permute(*reversed(range(value.ndim))) if name.endswith("kernel") else value


# --- in PyTorch's process


class PeerLoop:
    """A training loop of the peer over some batches.

    Args:
        mode: of torch.compile; None for eager.
    """

    def __init__(self, peer: Peer, batches: Sequence[Tensors], mode: str | None) -> None:
        self.peer, self.batches = peer.train(), batches
        trained = [parameter for parameter in peer.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.Adam(trained, lr=peer.config.learning_rate, fused=True)
        compiled: Any = peer if mode is None else torch.compile(peer, mode=mode, dynamic=False)
        self.objective: Callable[[Tensors], Tensor] = compiled

    def run(self, iterations: int) -> float:
        """Return the seconds of some iterations; on a CPU operations end when they return."""
        begin = time.perf_counter()
        for batch in islice(cycle(self.batches), iterations):
            self.optimizer.zero_grad(set_to_none=True)
            self.objective(batch).backward()
            self.optimizer.step()
        return time.perf_counter() - begin


_loops: dict[tuple[str, str], PeerLoop] = {}
"""Loops by sampler and arm."""


def prepare(
    config: RunConfig,
    dataset: Dataset,
    parameters: Mapping[str, Any],
    batches: Sequence[Batch],
    modes: Mapping[str, Any],
) -> None:
    """Make a sampler's loops, one for each arm, and warm them up."""
    if any(modes.values()) and not _loops:
        torch._dynamo.config.recompile_limit = PROGRAMS
        torch._dynamo.config.accumulated_recompile_limit = 4 * PROGRAMS
    tensors = [Tensors.of(batch, config.family, dataset) for batch in batches]
    one_shape = len({len(batch.links.items) for batch in tensors}) == 1
    for arm, mode in modes.items():
        peer = Peer(config, dataset)
        peer.load(parameters)
        _loops[config.sampler, arm] = loop = PeerLoop(peer, tensors, mode)
        loop.run(WARM_UP if one_shape else WARM_UP * len(tensors))


def run(sampler: str, arm: str, iterations: int) -> float:
    """Return the seconds of some iterations of a loop that was prepared."""
    return _loops[sampler, arm].run(iterations)


def gradient(
    config: RunConfig, dataset: Dataset, parameters: Mapping[str, Any], batch: Batch
) -> tuple[float, dict[str, np.ndarray]]:
    """Return loss and gradients of a batch by our parameters' names and in our layout, without
    dropout.
    """
    peer = Peer(config, dataset).eval()
    peer.load(parameters)
    loss = peer(Tensors.of(batch, config.family, dataset))
    loss.backward()
    gradients = {name: turned(name, of.grad).numpy() for name, of in named(peer).items()}
    return float(loss.detach()), gradients
