"""Small data, trainers, runs and profiles, and progress that interrupts them."""

import os
import signal
import statistics
from collections import Counter
from functools import cached_property
from itertools import islice
from threading import Lock
from types import SimpleNamespace
from unittest.mock import patch

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest

from ncfbench.auditing.blocks import Block
from ncfbench.auditing.gradients import BatchGradients, Pullback, flat
from ncfbench.catalog import ENCODERS, SAMPLERS, find_encoder
from ncfbench.config import Locations, RunConfig, complete
from ncfbench.data import prepare
from ncfbench.data.content import Content
from ncfbench.data.options import SourceOptions
from ncfbench.data.text import Texts
from ncfbench.models.encoders.protocol import EncoderInput
from ncfbench.models.towers import DeviceContent
from ncfbench.profiling import batches as profiled
from ncfbench.profiling import measure
from ncfbench.rng import Streams
from ncfbench.runs.plan import RunPlan
from ncfbench.runs.progress import Progress
from ncfbench.sampling import batches, make_sampler
from ncfbench.timing.ledger import Ledger
from ncfbench.training import run as training
from ncfbench.training.evaluation import Evaluators
from ncfbench.training.export import BEST, export_vectors
from ncfbench.training.step import Trainer


class Said(Progress):
    """Keeps the messages and the iteration at which training began, and sends this process an
    interrupt after some iteration.
    """

    def __init__(self, iteration=-1):
        self.iteration, self.texts, self.began_at = iteration, [], -1

    def begin(self, title, total, done):
        self.began_at = done

    def say(self, text):
        self.texts.append(text)

    def advance(self, iteration, item_slots):
        if iteration == self.iteration:
            os.kill(os.getpid(), signal.SIGINT)


AUDITED = {"dimension": 6, "word_dimension": 6, "filters": 6, "batch_size": 64, "user_l2": 0.01}
"""Settings of a small model whose audit takes a moment."""


class Trial:
    """Settings on a data set, or a configuration; nothing is trained yet."""

    def __init__(self, dataset, settings):
        self.config = settings if isinstance(settings, RunConfig) else complete(settings)
        self.dataset, self.graph = dataset, dataset.graph
        self.trainer, self.state = Trainer.create(self.config, dataset)
        self.content = DeviceContent.of(dataset, [self.config])
        self.parameters = self.state.parameters

    def add_noise(self, scale):
        """Move the parameters away from zero; the state keeps its own."""
        rng = np.random.default_rng(0)
        self.parameters = jax.tree.map(
            lambda leaf: jax.device_put(leaf + rng.normal(0, scale, leaf.shape).astype(np.float32)),
            jax.device_get(self.parameters),
        )

    @cached_property
    def embedder(self):
        return self.trainer.embedder(self.content)

    @cached_property
    def evaluators(self):
        return Evaluators(self.trainer, self.dataset, self.content)

    def ranks(self, split):
        """Ranks of a split's held-out links, in the order of its users and items."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.evaluators.splits[split], "ranking", lambda ranks: ranks)
            return self.evaluators.evaluate(self.parameters)[split]

    @cached_property
    def sampler(self):
        return make_sampler(self.graph, self.config, Streams(0))

    def batch(self, number, slots=0):
        return self.sampler.assemble(self.sampler.draw(number, 1)[0], slots)

    def batches(self, seed=0):
        return batches(self.graph, self.config, Streams(seed))

    @cached_property
    def compiled(self):
        """The gradient, compiled as a whole: operation by operation takes ten times as long."""
        return jax.jit(self.trainer.gradient)

    def gradient(self, batch, dropout=None):
        value, gradient = self.compiled(self.parameters, batch, self.content, dropout)
        return float(value), gradient

    def check_audit(self, config=None):
        """The audit's mean gradient of two batches is that of the step that trains, also by the
        sampler of another configuration.
        """
        embedder, parameters, config = self.embedder, self.parameters, config or self.config
        two = [*islice(batches(self.graph, config, Streams(1)), 2)]
        means = BatchGradients(self.graph, config, embedder, parameters)
        block = Block(self.graph, config, two)
        audited = Pullback(embedder, self.graph)(parameters, means(block))
        trained = np.mean([flat(self.gradient(batch)[1]) for batch in two], axis=0)
        assert np.linalg.norm(audited - trained) < 1e-4 * np.linalg.norm(trained)


SMALL = {"dataset": "tiny", "batch_size": 64, "epochs": 3, "encoder": "bow"}
SMALL |= {"dimension": 8, "word_dimension": 8}


def train(data_dir, runs_dir, *, again=False, progress=None, **more):
    locations = Locations(data_dir, runs_dir)
    plan = RunPlan.of(complete(SMALL | more), locations)
    return training.run(plan, again=again, progress=progress)


def interrupt(data_dir, runs_dir, at, *, progress=None, **more):
    with pytest.raises(KeyboardInterrupt):
        train(data_dir, runs_dir, progress=progress or Said(at), **more)
    (folder,) = runs_dir.iterdir()
    return folder


def recommend(folder, *, data_dir, count=50, said=None):
    """Export a run's vectors with each user's best items of the test, and return their folder."""
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


def skippable_clock(patch, step_seconds=lambda config: 0.0):
    """Let the clocks of runs go on by these seconds of each training step, and by a moment whenever
    they are read; return a function that moves them on.
    """
    lock, now, step = Lock(), [100.0], Trainer.step

    def skip(seconds=1e-6):
        with lock:
            now[0] += seconds
            return now[0]

    def timed(trainer, *arguments):
        skip(step_seconds(trainer.config))
        return step(trainer, *arguments)

    patch.setattr(Trainer, "step", timed)
    patch.setattr("time.perf_counter", skip)
    patch.setattr("time.perf_counter_ns", lambda: int(skip() * 1e9))
    patch.setattr(Ledger.__init__, "__defaults__", (skip,))
    return skip


def figures(record):
    return [
        {key: value for key, value in row.items() if key != "train_seconds"} for row in record.curve
    ]


def ends_of(dataset, epochs=3):
    return [-(-epoch * dataset.graph.n_links // 64) for epoch in range(1, epochs + 1)]


FROM_SCRATCH = [
    name
    for name in ENCODERS
    if "features" not in find_encoder(name).content and not find_encoder(name).pretrained_parts
]
"""Encoders that need neither dense features nor a checkpoint."""
CHECKPOINT_DIGEST = "0123456789ab"


def traced_for(backend):
    """A context in which encoders are traced for a kind of device: "cpu" fast, "gpu" plainly."""
    return patch.object(jax, "default_backend", lambda: backend)


def texts_of(rng, items, length, words, removed):
    """Some empty, some full-length, words that repeat, some of them removed."""
    lengths = rng.integers(0, length + 1, items).astype(np.int32)
    lengths[: min(items, 3)] = [0, length, 1][: min(items, 3)]
    tokens = np.where(
        np.arange(length) < lengths[:, None], rng.integers(1, words + 1, (items, length)), 0
    )
    present = (tokens > 0) & (rng.random(tokens.shape) >= removed)
    parts = np.arange(items, dtype=np.int32), tokens.astype(np.int32), present, lengths
    return EncoderInput(*map(jax.device_put, parts))


def quiet(text):
    """Show nothing."""


def store_prepared(preparation, data_dir, name, source="synthetic"):
    """Store what a preparation makes, as if the source had planned it."""
    module = SimpleNamespace(plan=lambda options, **more: preparation)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "ncfbench.data.store.find_source", lambda *names: SimpleNamespace(load=lambda: module)
        )
        return prepare(source, SourceOptions(), data_dir, name, say=print)


def content_of(users, items, split, n_users, **more):
    """Links of users and items of these splits; by default every item has the one word."""
    ones = np.ones(len(split), np.int32)
    usual = {"users": np.array(users, np.int32), "items": np.array(items, np.int32)}
    usual |= {"texts": Texts(ones, ones), "vocabulary": ("a",), "split": np.array(split, np.uint8)}
    return Content(n_users=n_users, **(usual | more))


NAMES = tuple(SAMPLERS)
SIZE = 32


def configure(sampler, **settings):
    usual = {"batch_size": SIZE, "stratum_size": 4, "negatives": 3}
    return complete({"sampler": sampler} | usual | settings)


def shorten(patch):
    """Blocks of moments, and fewer sizes."""
    for name, number in (("BLOCK_SECONDS", 0.002), ("LOOP_SECONDS", 0.02)):
        patch.setattr(measure, name, number)
    patch.setattr(measure, "TRIED_SECONDS", 0.01)
    # A step is compiled for each size: only those of the samplers' batches.
    patch.setattr(profiled, "SPACING", 1000.0)
