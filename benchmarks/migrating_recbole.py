"""RecBole's BPR with its own negatives, one a link, or with batches of ours.

``after`` has the noise of RecBole, and ``unigram`` takes negatives by popularity.
"""

# ruff: noqa: E402 - RecBole 1.2.1 reads names that NumPy 2 removed.
from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_migrating import Clock, recall_of

for name, kind in {"float_": np.float64, "complex_": np.complex128, "unicode_": np.str_}.items():
    setattr(np, name, kind)  # removed by NumPy 2, and read by RecBole 1.2.1

from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.model.general_recommender import BPR
from recbole.trainer import Trainer
from recbole.utils import init_seed

from ncfbench.data import BipartiteGraph
from ncfbench.torch import BatchLoader, dot_scores, objective


class Clocked(BPR):
    """BPR that counts its batches; with shared negatives, as in docs/migrating.md, if it has a
    ``shared_loss``.
    """

    clock: Clock
    shared_loss: Any = None

    def calculate_loss(self, batch: Any) -> Any:
        """Return RecBole's loss, or our objective."""
        self.clock.batch()
        if self.shared_loss is None:
            return super().calculate_loss(batch)
        users, items = self.user_embedding(batch.users), self.item_embedding(batch.items)
        positive, negative = dot_scores(users, items, batch)
        return objective(positive, negative, batch, self.shared_loss)


def train(dataset: Any, way: str, seed: int, rate: float, start: Callable[..., Clock]) -> None:
    """Train on nine tenths of each user's links until the clock is over; recall of the others."""
    folder = Path(tempfile.mkdtemp())
    (folder / "links").mkdir()
    graph = dataset.graph
    rows = zip(graph.link_user.tolist(), graph.link_item.tolist(), strict=True)
    lines = ["user_id:token\titem_id:token", *(f"{user}\t{item}" for user, item in rows)]
    (folder / "links" / "links.inter").write_text("\n".join(lines) + "\n")
    split = {"split": {"RS": [0.9, 0.1, 0]}, "group_by": "user", "order": "RO", "mode": "full"}
    settings = {
        "data_path": str(folder),
        "checkpoint_dir": str(folder),
        "embedding_size": 64,
        "train_batch_size": 2048,
        "learning_rate": rate,
        "epochs": 10**6,
        "eval_args": split,
        "metrics": ["Recall"],
        "topk": [50],
        "valid_metric": "Recall@50",
        "seed": seed,
        "show_progress": False,
        "state": "ERROR",
    }
    config = Config(model=Clocked, dataset="links", config_dict=settings)
    init_seed(seed, True)
    data = create_dataset(config)
    train_data, valid_data, _ = data_preparation(config, data)
    model = Clocked(config, train_data.dataset)
    links, held_out = (each.dataset.inter_feat for each in (train_data, valid_data))
    seen = links["user_id"].numpy(), links["item_id"].numpy()

    def recall() -> float:
        with torch.no_grad():
            scores = (model.user_embedding.weight @ model.item_embedding.weight.T).numpy()
        scores[seen] = -np.inf
        scores[:, 0] = -np.inf  # padding
        return recall_of(scores, held_out["user_id"].numpy(), held_out["item_id"].numpy())

    model.clock = start(recall)
    os.chdir(folder)  # RecBole writes for TensorBoard into the current folder, at any time
    trainer = Trainer(config, model)
    if way == "before":
        trainer.fit(train_data, saved=False)
        return
    own = BipartiteGraph.from_links(*seen, data.user_num, data.item_num)
    noise = "unigram" if way == "unigram" else "uniform"
    loader = BatchLoader(
        own, "strat-ns", loss="log", gamma=1, batch_size=2048, noise=noise, seed=seed
    )
    model.shared_loss = loader.loss
    trainer.fit(loader, saved=False)
