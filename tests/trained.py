"""Runs of a small model on the data set ``tiny``, and the numbers that they must repeat."""

import statistics
import time
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
from stopping import StopAt

from ncfbench.config import Locations, complete
from ncfbench.runs.plan import RunPlan
from ncfbench.timing.ledger import Ledger
from ncfbench.training import run as training
from ncfbench.training.export import BEST, export_vectors

SMALL = {
    "dataset": "tiny",
    "batch_size": 64,
    "epochs": 3,
    "encoder": "bow",
    "dimension": 8,
    "word_dimension": 8,
}


class Said(StopAt):
    """Keeps the messages, and the iteration at which training began."""

    def __init__(self, iteration=-1):
        super().__init__(iteration)
        self.texts = []
        self.began_at = -1

    def begin(self, title, total, done):
        self.began_at = done

    def say(self, text):
        self.texts.append(text)


def train(data_dir, runs_dir, *, again=False, progress=None, **more):
    locations = Locations(data_dir, runs_dir)
    return training.run(
        RunPlan.of(complete(SMALL | more), locations), again=again, progress=progress
    )


def recommend(folder, *, data_dir, count=50, said=None):
    """Export a run's vectors into a folder of its own, with each user's best items of the test;
    return that folder.
    """
    more = {"top": count, "candidates": "test", "again": True, "data_dir": data_dir}
    export_vectors(folder, folder / "vectors", progress=said, **more)
    return folder / "vectors"


def recall_of_files(folder, dataset):
    """Recall@50 of test links by exported vectors, with a sort of each user's scores; users without
    training links are left out, and known items where links are held out.
    """
    users, items = (np.load(folder / f"{side}.npy") for side in ("users", "items"))
    scores = users @ items.T
    if dataset.ranks_known_items:
        scores[dataset.links("train")] = -np.inf
    else:
        scores[:, dataset.split != 2] = -np.inf
    best = np.argsort(-scores, axis=1, kind="stable")[:, :50]
    linked, (user, item) = np.unique(dataset.links("train")[0]), dataset.links("test")
    tested = np.intersect1d(user, linked)
    return np.mean([np.isin(item[user == one], best[one]).mean() for one in tested])


def recall_of_lists(folder, dataset):
    """Recall of test links by the lists of an export, at their length."""
    rows = pq.read_table(folder / BEST).to_pylist()
    names = dataset.user_ids.to_pylist() if dataset.user_ids else range(dataset.n_users)
    linked = Counter(names[user] for user in dataset.links("test")[0])
    hits = Counter(row["user"] for row in rows if row["hit"])
    return statistics.fmean(hits[user] / count for user, count in linked.items())


def skippable_clock(patch):
    """Return a function that moves the clocks of runs on by some seconds, without a wait."""
    skipped, real = [0.0], time.perf_counter

    def now():
        return real() + sum(skipped)

    patch.setattr(time, "perf_counter", now)
    patch.setattr(time, "perf_counter_ns", lambda: int(now() * 1e9))
    patch.setattr(Ledger.__init__, "__defaults__", (now,))
    return skipped.append


def figures(record):
    """Return the curve without its times."""
    return [
        {key: value for key, value in row.items() if key != "train_seconds"} for row in record.curve
    ]


def ends_of(dataset, epochs=3):
    """Return the iterations that end an epoch."""
    return [-(-epoch * dataset.graph.n_links // 64) for epoch in range(1, epochs + 1)]
