"""Runs that train in turn in one process: opened, advanced, saved and closed together."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Self, TypeVar

import jax

from ncfbench.config import Locations, RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import Interrupted, NcfbenchError
from ncfbench.models.towers import DeviceContent
from ncfbench.runs.plan import RunPlan
from ncfbench.runs.progress import Progress
from ncfbench.timing.ledger import Ledger
from ncfbench.training.train import Run

Key = TypeVar("Key")
FAILURES = (NcfbenchError, MemoryError, OSError, jax.errors.JaxRuntimeError)
"""Failures of one run that leave the others whole: out of memory, a full disk, a held folder."""


class Turns(Generic[Key]):
    """Trains runs of one data set in turn, each under a key of the caller's. A context manager.

    A run that fails leaves, and the others go on. At the end all are closed; where Ctrl-C came
    between two pieces of work, or a run agreed to it, all are saved first.

    Args:
        content: the data set's content on the device.
        interrupted: when it is true, the next piece of work raises KeyboardInterrupt.
        failed: called with the key and the error of a run that failed, when it is closed.

    Attributes:
        runs: the open runs by key; those that are done or failed have left.
    """

    def __init__(
        self,
        dataset: Dataset,
        content: DeviceContent,
        locations: Locations,
        interrupted: Callable[[], bool],
        failed: Callable[[Key, BaseException], None],
    ) -> None:
        self.dataset, self.content, self.locations = dataset, content, locations
        self.interrupted, self.failed = interrupted, failed
        self.runs: dict[Key, Run] = {}
        self._id = uuid.uuid4().hex[:12]
        self._is_at_work = False
        """True while something is done that a second Ctrl-C may cut."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            # A second Ctrl-C cut an iteration: then nothing more is saved.
            is_whole = isinstance(error, Interrupted) or not self._is_at_work
            if isinstance(error, KeyboardInterrupt) and is_whole:
                self.save()
        finally:
            for key in list(self.runs):
                self.close(key)
            gc.collect()  # whatever trains next needs the memory

    def open(
        self,
        key: Key,
        config: RunConfig,
        progress: Progress | None = None,
        *,
        stops_at_epochs: bool = True,
    ) -> None:
        """Open a run, a new one or one to continue; its ledger is charged with its turns only.

        Args:
            stops_at_epochs: see :class:`~ncfbench.training.train.Run`.

        Raises:
            KeyboardInterrupt: interrupted.
        """

        def work() -> None:
            ledger = Ledger()
            with ledger.turn():
                plan = RunPlan.of(config, self.locations, dataset=self.dataset)
                self.runs[key] = Run(
                    plan,
                    ledger,
                    progress or Progress(),
                    self.interrupted,
                    content=self.content,
                    turns=self._id,
                    stops_at_epochs=stops_at_epochs,
                )

        self._attempt(key, work)

    def take(self, key: Key, work: Callable[[Run], object]) -> bool:
        """Give an open run a turn: a piece of work such as
        :func:`~ncfbench.training.train.train_epoch`.

        Returns:
            True where that finished the run, which has left.

        Raises:
            KeyboardInterrupt: interrupted before the work, or during it by a second Ctrl-C; an
                :class:`Interrupted` where the run stopped for the first and saved itself.
        """
        run = self.runs[key]
        self._attempt(key, lambda: work(run))
        return run.is_done and self.runs.pop(key, None) is not None

    def save(self) -> None:
        """Save the open runs that hold more than their checkpoints."""
        for key, run in list(self.runs.items()):
            if not run.is_saved:
                try:
                    run.save()
                except FAILURES as error:
                    self._leave(key, error)

    def close(self, key: Key) -> None:
        """Close a run, whose records are on the disk, unless it has left."""
        if key in self.runs:
            with suppress(*FAILURES):
                self.runs.pop(key).close()

    def _attempt(self, key: Key, work: Callable[[], object]) -> None:
        if self.interrupted():
            raise KeyboardInterrupt
        self._is_at_work = True
        try:
            work()
        except FAILURES as error:
            self._leave(key, error)
        self._is_at_work = False

    def _leave(self, key: Key, error: BaseException) -> None:
        self.close(key)
        self.failed(key, error)
