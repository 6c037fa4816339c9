"""Batches as tensors: a sampler's stream behind a :class:`torch.utils.data.DataLoader`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from ncfbench.config import SETTINGS, RunConfig, complete
from ncfbench.config.completion import unknown
from ncfbench.config.own import settings_of
from ncfbench.data import BipartiteGraph, Dataset
from ncfbench.declarations import LossFamily
from ncfbench.errors import UsageError
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler, plan_capacity
from ncfbench.sampling.batch import Batch, Listed, Shared
from ncfbench.torch.objective import make_loss

OPTIONS = ("pin_memory", "prefetch_factor", "multiprocessing_context", "timeout")
"""Arguments that :class:`BatchLoader` hands on to PyTorch's own loader."""


class TensorBatch(NamedTuple):
    """A :class:`ncfbench.sampling.batch.Batch` of tensors: ids and slots int64, weights float32."""

    users: torch.Tensor
    items: torch.Tensor
    pos_user: torch.Tensor
    pos_item: torch.Tensor
    negatives: Listed | Shared
    n_items: torch.Tensor
    family: LossFamily
    """The family of losses that the weights are for."""

    def to(self, *where: Any, **options: Any) -> TensorBatch:
        """Return the batch on a device; arguments are those of :meth:`torch.Tensor.to`."""

        def moved(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(*where, **options)

        users, items, pos_user, pos_item = map(moved, self[:4])
        negatives = type(self.negatives)(*map(moved, self.negatives))
        n_items = moved(self.n_items)
        return TensorBatch(users, items, pos_user, pos_item, negatives, n_items, self.family)


def as_tensors(batch: Batch, family: LossFamily) -> TensorBatch:
    """Copy a batch into tensors; UsageError where its layout is not ``Listed`` or ``Shared``."""
    kind: Any = type(batch.negatives)
    if kind not in (Listed, Shared):
        raise UsageError(
            f"PyTorch has no form for the batch layout {kind.__name__}. Use a sampler whose"
            " negatives are drawn, or the batch's own items, such as strat-ns."
        )

    def tensor(array: Any) -> torch.Tensor:
        is_whole = np.asarray(array).dtype.kind == "i"
        return torch.from_numpy(np.array(array, np.int64 if is_whole else None))

    users, items, pos_user, pos_item = map(tensor, batch[:4])
    negatives = kind(*map(tensor, batch.negatives))
    return TensorBatch(users, items, pos_user, pos_item, negatives, tensor(batch.n_items), family)


class BatchStream(IterableDataset[TensorBatch]):
    """Some batches of a sampler from number ``start`` on, cut over workers by their numbers.

    Of W workers, worker w assembles batches ``start + w``, ``start + w + W``, ..., and PyTorch's
    loader asks the workers in turn: batches and their order are those of one process. Each worker
    draws the random parts of all batches, which costs little beside assembling.
    """

    def __init__(
        self, graph: BipartiteGraph, config: RunConfig, start: int, length: int, capacity: int
    ) -> None:
        self.sampler = make_sampler(graph, config, Streams(config.seed))
        self.start, self.length, self.capacity = start, length, capacity
        as_tensors(self.sampler.assemble(self.sampler.draw(start, 1)[0]), config.family)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[TensorBatch]:
        worker = get_worker_info()
        part, cut = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return self._part(self.start, part, cut)

    def _part(self, start: int, part: int, cut: int) -> Iterator[TensorBatch]:
        number, stop, sampler = start, start + self.length, self.sampler
        while number < stop:
            draws = sampler.draw(number, min(stop - number, sampler.batches_per_draw))
            for draw in draws[(part + start - number) % cut :: cut]:
                yield as_tensors(sampler.assemble(draw, self.capacity), sampler.config.family)
            number += len(draws)


class BatchLoader(DataLoader[TensorBatch]):
    """A :class:`torch.utils.data.DataLoader` of a sampler's batches.

    Each pass, ``for batch in loader``, goes on where the one before ended in an endless stream.
    Batch n of the stream is the same for any number of workers, any lengths of passes and any
    start, so ``start=n`` resumes. ``config`` and ``loss`` are the batches' settings and their loss;
    ``number`` is that of the next batch; a pass that is left early goes on there.

    Args:
        dataset: a prepared data set, or a graph of links.
        start: the number of the first batch.
        batches: batches of a pass; by default an epoch's whole ones, N // batch_size.
        fixed_shapes: pad the items of every batch to one length, for ``torch.compile``. A batch
            that needs more has more.
        num_workers: processes that build batches, new ones in each pass; 0 builds them in this one.
        settings: of the batches, such as ``loss``, ``batch_size``, ``stratum_size``, ``seed``; and
            PyTorch's own :data:`OPTIONS`.

    Raises:
        UsageError: settings that cannot work, a number below 0, or more workers than batches.
    """

    def __init__(
        self,
        dataset: Dataset | BipartiteGraph,
        sampler: str = "strat-ns",
        *,
        start: int = 0,
        batches: int | None = None,
        fixed_shapes: bool = False,
        num_workers: int = 0,
        **settings: Any,
    ) -> None:
        options = {name: settings.pop(name) for name in OPTIONS if name in settings}
        known = [name for name, each in SETTINGS.items() if each.panel == "Sampler"]
        known += ["loss", "gamma", "lambda", "seed", *settings_of("sampler", sampler)]
        for name in settings:
            if name.rstrip("_") not in known:
                raise UsageError(unknown(name, [*known, *OPTIONS]))
        self.config = complete({"sampler": sampler, **settings})
        self.loss = make_loss(self.config)
        graph = dataset if isinstance(dataset, BipartiteGraph) else dataset.graph
        length = graph.n_links // self.config.batch_size if batches is None else batches
        if start < 0:
            raise UsageError(f"start = {start} is no batch number: the first batch is 0.")
        if batches is not None and batches < 1:
            raise UsageError(f"batches = {batches}: a pass has 1 or more.")
        if not 0 <= num_workers <= max(length, 1):
            raise UsageError(f"num_workers = {num_workers}: a pass can be cut over 0 to {length}.")
        capacity = plan_capacity(graph, self.config) if fixed_shapes else 0
        stream = BatchStream(graph, self.config, start, length, capacity)
        super().__init__(stream, batch_size=None, num_workers=num_workers, **options)
        self.number = start

    def __iter__(self) -> Iterator[TensorBatch]:
        # Workers get a copy of the stream as it is now.
        self.dataset.start = self.number
        for batch in super().__iter__():
            self.number += 1
            yield batch
