"""A two-tower model of bags of words, as an expert would train it in PyTorch: the rival of a race.

It shares neither batches nor losses with ours. An epoch is a shuffle of the training links, cut
into batches. A batch's distinct items are encoded once, and are the negatives of all its links:
softmax over unit vectors with a temperature, logQ correction of the negatives, linked pairs out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from ncfbench.data import Dataset

WARM_UP = 3
"""Batches before the clock starts, on parameters that are then made anew."""
DEFAULTS = {
    "batch_size": 1024,
    "learning_rate": 0.01,
    "temperature": 0.1,
    "word_dropout": 0.5,
    "layer": False,  # a linear one behind the mean of the words
    "mask": "user",  # leave out all training items of a link's user, or "item": the link's own
    "tables": "dense",  # gradients and Adam, or "sparse" ones and SparseAdam
    "compiled": False,
}


class TwoTower(nn.Module):
    """A vector for each user, and for each item the mean of its words'; both of unit length."""

    def __init__(self, dataset: Dataset, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self.settings, width = settings, settings["dimension"]
        sparse = settings["tables"] == "sparse"
        self.users = nn.Embedding(dataset.n_users, width, sparse=sparse)
        self.words = nn.EmbeddingBag(dataset.n_words + 1, width, mode="mean", sparse=sparse)
        self.layer = nn.Linear(width, width) if settings["layer"] else nn.Identity()
        self.register_buffer("tokens", torch.from_numpy(dataset.tokens_IxL.astype(np.int64)))
        for table in (self.users, self.words):
            nn.init.normal_(table.weight, std=width**-0.5)

    def bags(self, items: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the words of items, one item after another, and where each begins."""
        tokens = self.tokens[items]
        present = tokens > 0
        if self.training:
            present &= torch.rand(tokens.shape) >= self.settings["word_dropout"]
        counts = present.sum(dim=1)
        return tokens[present], counts.cumsum(0) - counts

    def embed_items(self, words: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        return normalize(self.layer(self.words(words, starts)))

    def forward(
        self, users: torch.Tensor, own: torch.Tensor, bias: torch.Tensor, *bags: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss of a batch; ``own`` is the column of each link's item."""
        vectors = normalize(self.users(users)), self.embed_items(*bags).T
        logits = torch.addmm(bias, *vectors, alpha=1 / self.settings["temperature"])
        return cross_entropy(logits, own)


class Links:
    """The training links, by user, and batches of them."""

    def __init__(self, dataset: Dataset, settings: Mapping[str, Any]) -> None:
        users, items = (torch.from_numpy(ids.astype(np.int64)) for ids in dataset.links("train"))
        order = users.argsort()
        self.users, self.items, self.settings = users[order], items[order], settings
        self.degrees = torch.bincount(users, minlength=dataset.n_users)
        self.firsts = self.degrees.cumsum(0) - self.degrees
        self.log_q = torch.bincount(items, minlength=dataset.n_items).div(len(items)).log()
        self.columns = torch.empty(dataset.n_items, dtype=torch.int64)

    def batches(self) -> Iterator[tuple[torch.Tensor, ...]]:
        """Yield batches without end; the rest of an epoch that fills none is left out."""
        size = self.settings["batch_size"]
        while True:
            for chosen in torch.randperm(len(self.users)).split(size):
                if len(chosen) == size:
                    yield self.batch(chosen)

    def batch(self, chosen: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return users, distinct items, the column of each user's own item, and what is added to
        the logits: float32[users, items].
        """
        users, size = self.users[chosen], len(chosen)
        items, own, counts = self.items[chosen].unique(return_inverse=True, return_counts=True)
        # Among the other links of a batch an item is expected (b - 1) q times.
        bias = (counts.log() - self.log_q[items] - np.log(size - 1)).repeat(size, 1)
        if self.settings["mask"] == "user":
            bias[self.linked(users, items)] = -torch.inf
        bias[torch.arange(size), own] = 0
        return users, items, own, bias

    def linked(self, users: torch.Tensor, items: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return row and column of all training links between some users and distinct items."""
        degrees = self.degrees[users]
        row = torch.repeat_interleave(degrees)
        within = torch.arange(len(row)) - (degrees.cumsum(0) - degrees)[row]
        self.columns.fill_(-1)[items] = torch.arange(len(items))
        column = self.columns[self.items[self.firsts[users][row] + within]]
        return row[column >= 0], column[column >= 0]


class Program:
    """A training program on a clock."""

    def __init__(self, dataset: Dataset, settings: Mapping[str, Any], seed: int) -> None:
        self.dataset, self.settings = dataset, {**DEFAULTS, **settings}
        self.links = Links(dataset, self.settings)
        self.start(seed)
        _, seconds = self.advance(WARM_UP * self.settings["batch_size"])
        threads = torch.get_num_threads()
        self.facts = {"compile_seconds": seconds, "torch": torch.__version__, "threads": threads}
        self.start(seed)

    def start(self, seed: int) -> None:
        """Make parameters and optimisers."""
        torch.manual_seed(seed)
        self.model, self.batches = TwoTower(self.dataset, self.settings), self.links.batches()
        self.loss = torch.compile(self.model) if self.settings["compiled"] else self.model
        tables = [self.model.users.weight, self.model.words.weight]
        others, rate = list(self.model.layer.parameters()), self.settings["learning_rate"]
        if self.settings["tables"] == "sparse":
            self.optimizers = [torch.optim.SparseAdam(tables, lr=rate)]
        else:
            others, self.optimizers = [*tables, *others], []
        if others:
            self.optimizers.append(torch.optim.Adam(others, lr=rate, fused=True))

    def advance(self, links: int) -> tuple[int, float]:
        """Train on about so many links; return how many they were, and the seconds."""
        self.model.train()
        count = max(round(links / self.settings["batch_size"]), 1)
        begin = time.perf_counter()
        for _ in range(count):
            users, items, own, bias = next(self.batches)
            bags = self.model.bags(items)
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=True)
            self.loss(users, own, bias, *bags).backward()
            for optimizer in self.optimizers:
                optimizer.step()
        return count * self.settings["batch_size"], time.perf_counter() - begin

    @torch.inference_mode()
    def vectors(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors of all users and of some items, float32."""
        self.model.eval()
        rows = self.model.embed_items(*self.model.bags(torch.from_numpy(items.astype(np.int64))))
        return normalize(self.model.users.weight).numpy(), rows.numpy()
