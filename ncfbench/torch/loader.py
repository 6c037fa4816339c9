"""Batches as tensors: a sampler's stream behind a :class:`torch.utils.data.DataLoader`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset

from ncfbench.catalog import find_sampler
from ncfbench.config import SETTINGS, complete
from ncfbench.data import BipartiteGraph
from ncfbench.data import Dataset as PreparedData
from ncfbench.errors import UsageError, reason, refusal
from ncfbench.rng import Streams
from ncfbench.sampling import Sampler, make_sampler, plan_capacity
from ncfbench.torch.batch import TensorBatch, as_tensors
from ncfbench.torch.objective import make_loss

OPTIONS = (
    *("num_workers", "persistent_workers", "prefetch_factor", "pin_memory"),
    *("multiprocessing_context", "timeout"),
)
"""Arguments that :class:`BatchLoader` hands on to PyTorch's own loader."""


class Batches(Dataset[TensorBatch]):
    """A sampler's batches by their numbers in its endless stream."""

    def __init__(self, sampler: Sampler, capacity: int) -> None:
        self.sampler, self.capacity = sampler, capacity

    def __getitem__(self, number: int) -> TensorBatch:
        (draw,) = self.sampler.draw(number, 1)
        return as_tensors(self.sampler.assemble(draw, self.capacity), self.sampler.config.family)


class Pass:
    """The numbers of a pass's batches, as PyTorch's loader asks for them."""

    def __init__(self, start: int, length: int) -> None:
        self.start, self.length = start, length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.start + self.length))


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
        settings: of the batches, such as ``loss``, ``batch_size``, ``stratum_size``, ``seed``; and
            PyTorch's own :data:`OPTIONS`.

    Raises:
        UsageError: settings or options that cannot work, or a number that is too small.
    """

    def __init__(
        self,
        dataset: PreparedData | BipartiteGraph,
        sampler: str = "strat-ns",
        *,
        start: int = 0,
        batches: int | None = None,
        fixed_shapes: bool = False,
        **settings: Any,
    ) -> None:
        options = {name: settings.pop(name) for name in OPTIONS if name in settings}
        known = [name for name, setting in SETTINGS.items() if setting.panel == "Sampler"]
        known += ["loss", "gamma", "lambda", "seed", *find_sampler(sampler).names, *OPTIONS]
        for name in settings:
            if name.rstrip("_") not in known:
                raise UsageError(refusal("Unknown setting", name, known))
        if start < 0:
            raise UsageError(f"start = {start} is no batch number: the first batch is 0.")
        if batches is not None and batches < 1:
            raise UsageError(f"batches = {batches}: a pass has 1 or more.")
        self.config = complete({"sampler": sampler, **settings})
        self.loss, self.number = make_loss(self.config), start
        graph = dataset if isinstance(dataset, BipartiteGraph) else dataset.graph
        capacity = plan_capacity(graph, self.config) if fixed_shapes else 0
        stream = Batches(make_sampler(graph, self.config, Streams(self.config.seed)), capacity)
        stream[start]  # refuses a layout that has no form
        numbers = Pass(start, batches or graph.n_links // self.config.batch_size)
        workers = options.get("num_workers", 0)
        if workers > len(numbers):
            raise UsageError(
                f"num_workers = {workers}: a pass has {len(numbers)} batches, and each worker makes"
                " whole ones. One worker is mostly enough."
            )
        try:
            super().__init__(stream, batch_size=None, sampler=numbers, **options)
        except ValueError as error:  # of PyTorch's own options
            raise UsageError(f"PyTorch refuses these options: {reason(error)}.") from error

    def __iter__(self) -> Iterator[TensorBatch]:
        self.sampler.start = self.number
        for batch in super().__iter__():
            self.number += 1
            yield batch
