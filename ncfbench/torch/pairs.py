"""Pairs of texts for a trainer of sentence-transformers: stratified batches, and their loss.

A pair is a row of the trainer's data set: a user, which is a text or an id, and an item's text. Its
label is its link in the graph of all pairs, so that the loss knows which other items of the batch
the user is linked with, and how often items come.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import BatchSampler, SequentialSampler

from ncfbench.catalog import SAMPLERS, find_sampler
from ncfbench.config import complete
from ncfbench.data import BipartiteGraph
from ncfbench.errors import UsageError, either
from ncfbench.rng import Streams
from ncfbench.sampling import Draw, Sampler, make_sampler
from ncfbench.torch.batch import TensorBatch, as_tensors
from ncfbench.torch.objective import dot_scores, make_loss, objective

Features = Mapping[str, Any]
"""A column of texts as the trainer hands it to a loss, such as ``input_ids``, [b, L]."""


class LinkedPairs:
    """The links of a data set of (user, item) pairs, and the settings of their batches.

    Args:
        users, items: of each row, texts or ids, also a tensor's; equal ones are one user or item.
        sampler: ``strat-ns`` or ``ns``, whose negatives are the batch's own items.
        settings: such as ``loss``, ``gamma``, ``batch_size``, ``stratum_size``, ``strata``.

    Raises:
        UsageError: settings that cannot work, or a pair that comes twice.
    """

    def __init__(
        self,
        users: Iterable[Hashable],
        items: Iterable[Hashable],
        *,
        sampler: str = "strat-ns",
        loss: str = "softmax",
        **settings: Any,
    ) -> None:
        traits = find_sampler(sampler)
        if not traits.shares_items or traits.reads("uniform_items"):
            valid = [name for name in SAMPLERS if find_sampler(name).shares_items]
            valid = [name for name in valid if not find_sampler(name).reads("uniform_items")]
            raise UsageError(
                f"The negatives of {sampler} are not the batch's own items, and a batch has no"
                f" other texts. Use {either(valid)}."
            )
        self.config = complete({"sampler": sampler, "loss": loss, **settings})
        self.loss = make_loss(self.config)
        (user, self.users), (item, distinct) = _numbered(users), _numbered(items)
        if len(user) != len(item):
            raise UsageError(f"{len(user)} users and {len(item)} items make no pairs.")
        order = np.lexsort((item, user))
        same = np.flatnonzero((np.diff(user[order]) == 0) & (np.diff(item[order]) == 0))
        if len(same):
            first, second = sorted(order[same[0] : same[0] + 2])
            raise UsageError(f"Rows {first} and {second} are the same pair: leave one of them out.")
        self.row = order
        """int64[N]: the row of each link."""
        self.labels = np.argsort(order)
        """int64[N]: the link of each row, for the data set's column ``label``."""
        self.graph = BipartiteGraph.from_links(
            user, item, len(self.users), len(distinct), item_ids=distinct
        )
        self.sampler = self._seeded(0)

    def batch_sampler(
        self, dataset: Sized, batch_size: int, *, seed: int = 0, **ignored: Any
    ) -> PairBatches:
        """Return the rows of each batch; give this method as ``batch_sampler`` to the trainer.

        It needs none of the trainer's other arguments: batches are always whole, and shuffled by
        the seed.

        Raises:
            UsageError: another data set, or another batch size.
        """
        if len(dataset) != len(self.row):
            raise UsageError(
                f"These batches are of {len(self.row)} pairs, and the data set has {len(dataset)}."
                " To evaluate, give the trainer an evaluator instead of an eval_dataset."
            )
        if batch_size != self.config.batch_size:
            raise UsageError(
                f"The trainer's batches have {batch_size} pairs: give LinkedPairs"
                f" batch_size={batch_size}, by which it weights them."
            )
        return PairBatches(self, self._seeded(seed))

    def batch(self, labels: torch.Tensor) -> TensorBatch:
        """Return the batch of some rows by their labels, on the labels' device.

        ``pos_item`` are positions among the distinct items.
        """
        none = np.zeros((len(labels), 0), np.int32)
        links = labels.cpu().numpy().astype(np.int32)
        batch = self.sampler.assemble(Draw(links, none, none))
        return as_tensors(batch, self.config.family).to(labels.device)

    def _seeded(self, seed: int) -> Sampler:
        return make_sampler(self.graph, self.config, Streams(seed))


class PairBatches(BatchSampler):
    """Rows of stratified batches: N / b whole batches an epoch, every pair equally often.

    An epoch begins where the one before ended in the endless stream of shuffled strata.
    """

    def __init__(self, pairs: LinkedPairs, sampler: Sampler) -> None:
        super().__init__(SequentialSampler(pairs.row), pairs.config.batch_size, drop_last=True)
        self.row, self.stream, self.epoch = pairs.row, sampler, 0

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be that of an epoch; the trainer calls it."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.row) // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        for draw in self.stream.draw(self.epoch * len(self), len(self)):
            yield self.row[draw.links].tolist()


class PairLoss(nn.Module):
    """The objective of a batch of pairs, for a trainer of sentence-transformers.

    Every distinct text is encoded once. Vectors have unit length, but for pointwise losses.

    Args:
        model: a SentenceTransformer.
        pairs: made the labels that the data set's column ``label`` holds.
        users: f of user ids, int64[U] -> [U, D], such as an ``nn.Embedding``, in the order of
            ``pairs.users``; None where users are texts, the data set's first column.
    """

    def __init__(
        self, model: nn.Module, pairs: LinkedPairs, users: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.model, self.pairs, self.users = model, pairs, users
        self.loss = pairs.loss

    def forward(self, sentence_features: Iterable[Features], labels: torch.Tensor) -> torch.Tensor:
        """Return the objective.

        Raises:
            UsageError: no labels, or another number of columns of texts.
        """
        columns = list(sentence_features)
        if len(columns) != (1 if self.users else 2) or labels is None:
            texts = "items" if self.users else "users and items"
            raise UsageError(
                f"PairLoss needs columns of texts for {texts}, and pairs.labels as the column"
                f" label; it got {len(columns)} of texts."
            )
        batch = self.pairs.batch(labels)
        items = self.encode(columns[-1], batch.pos_item)[0]
        if self.users is None:
            distinct, position = self.encode(columns[0], batch.users)
            users = distinct[position]
        else:
            users = self.users(batch.users)
        if self.pairs.config.normalize:
            users, items = nn.functional.normalize(users), nn.functional.normalize(items)
        return objective(*dot_scores(users, items, batch), batch, self.loss)

    def encode(self, features: Features, names: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the vectors of distinct texts by ascending name, and each row's position there."""
        distinct, position = names.unique(return_inverse=True)
        # Any row of a name: its texts are equal.
        row = torch.arange(len(names), device=names.device)
        row = torch.empty_like(distinct).scatter_(0, position, row)
        tensors = [part for part in features.values() if torch.is_tensor(part)]
        # Only padded texts can be cut by rows; other tokenizers put all texts behind one another.
        is_padded = "attention_mask" in features and all(
            tensor.ndim > 0 and len(tensor) == len(names) for tensor in tensors
        )
        if not is_padded:
            return self.model(dict(features))["sentence_embedding"][row], position
        cut = {key: part[row] if torch.is_tensor(part) else part for key, part in features.items()}
        return self.model(cut)["sentence_embedding"], position


def _numbered(values: Iterable[Any]) -> tuple[NDArray[np.int32], Sequence[Hashable]]:
    """Return the number of each value, by first appearance, and the distinct values.

    Tensors hash by identity, so that they are read as Python's values, whole or one by one.
    """
    if hasattr(values, "tolist"):
        values = values.tolist()
    plain = (value.item() if hasattr(value, "item") else value for value in values)
    numbers: dict[Hashable, int] = {}
    indices = [numbers.setdefault(value, len(numbers)) for value in plain]
    return np.array(indices, np.int32), list(numbers)
