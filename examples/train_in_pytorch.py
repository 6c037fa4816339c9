"""Train a two-tower in PyTorch on stratified batches with shared negatives.

    python examples/train_in_pytorch.py [DATASET [EPOCHS]]

The batches are those of ``ncfbench run``, one by one (docs/integrate.md).
"""

import sys
from collections.abc import Iterator
from itertools import islice

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
        for weight, scale in zip(self.parameters(), (0.01, 0.1, dimension**-0.5, 0), strict=True):
            nn.init.normal_(weight, std=scale)

    def forward(self, batch: TensorBatch) -> tuple[Tensor, Tensor]:
        items = self.dense(self.words(self.tokens[batch.items]))
        return dot_scores(self.users(batch.users), items, batch)


def train(model: TwoTower, loader: BatchLoader, learning_rate: float = 0.01) -> Iterator[float]:
    """Yield the loss of each batch, after the step, pass by pass without end."""
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    while True:
        for batch in loader:
            on_device = batch.to(model.tokens.device, non_blocking=True)
            positive, negative = model(on_device)
            loss = objective(positive, negative, on_device, loader.loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.item()


def main(name: str = "synthetic", epochs: str = "2") -> None:
    dataset, device = open_dataset(name), "cuda" if torch.cuda.is_available() else "cpu"
    loader = BatchLoader(dataset, "strat-ns", loss="sg", batch_size=512, num_workers=1)
    losses = train(TwoTower(dataset).to(device), loader)
    for epoch in range(1, int(epochs) + 1):
        print(f"epoch {epoch}: loss {sum(islice(losses, len(loader))) / len(loader):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
