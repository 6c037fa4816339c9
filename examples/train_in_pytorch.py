"""Train a two-tower in PyTorch on stratified batches with shared negatives.

    python examples/train_in_pytorch.py [DATASET [EPOCHS]]

Prints the mean loss of every hundred batches. The batches are those of ``ncfbench run``, one by
one, and so is the curve (docs/pytorch.md).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain, islice, repeat

import torch
from torch import Tensor, nn

from ncfbench import open_dataset
from ncfbench.data import Dataset
from ncfbench.torch import BatchLoader, TensorBatch, dot_scores, objective


class TwoTower(nn.Module):
    """f is a vector for each user; g is the mean of an item's word vectors, and a linear layer."""

    def __init__(self, dataset: Dataset, dimension: int = 50) -> None:
        super().__init__()
        self.register_buffer("tokens", torch.tensor(dataset.tokens_IxL, dtype=torch.long))
        self.users = nn.Embedding(dataset.n_users, dimension)
        self.words = nn.EmbeddingBag(dataset.n_words + 1, dimension, mode="mean", padding_idx=0)
        self.dense = nn.Linear(dimension, dimension)
        self.reset(users=0.01, words=0.1, dense=dimension**-0.5)

    def reset(self, **scales: float) -> None:
        """Draw the initial weights as ``ncfbench run`` does."""
        for name, scale in scales.items():
            nn.init.normal_(getattr(self, name).weight, std=scale)
        nn.init.zeros_(self.dense.bias)

    def forward(self, batch: TensorBatch) -> tuple[Tensor, Tensor]:
        """Return the scores of a batch's positive and negative links."""
        items = self.dense(self.words(self.tokens[batch.items]))
        return dot_scores(self.users(batch.users), items, batch)


def train(model: TwoTower, loader: BatchLoader, learning_rate: float = 0.01) -> Iterator[float]:
    """Yield the loss of each batch, after the step, pass by pass without end."""
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    for batch in chain.from_iterable(repeat(loader)):
        on_device = batch.to(model.tokens.device, non_blocking=True)
        positive, negative = model(on_device)
        loss = objective(positive, negative, on_device, loader.loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def main(name: str = "synthetic", epochs: str = "2") -> None:
    """Train on a prepared data set and print the curve."""
    torch.manual_seed(0)
    dataset = open_dataset(name)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = BatchLoader(dataset, "strat-ns", loss="sg", batch_size=512, num_workers=1)
    losses = islice(train(TwoTower(dataset).to(device), loader), int(epochs) * len(loader))
    for number, hundred in enumerate(iter(lambda: list(islice(losses, 100)), []), 1):
        print(f"batches up to {100 * number:5}: loss {sum(hundred) / len(hundred):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
