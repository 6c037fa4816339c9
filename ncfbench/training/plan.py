"""Plans of runs: whatever cannot work is refused here, before any folder is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import numpy as np
import psutil

from ncfbench.config import Locations, RunConfig
from ncfbench.data import Dataset, open_dataset
from ncfbench.distributed.layout import Layout, make_layout
from ncfbench.distributed.process_group import ProcessGroup
from ncfbench.errors import UsageError
from ncfbench.models.contracts import require_contracts
from ncfbench.models.precision import require
from ncfbench.rng import Streams
from ncfbench.runs import folder as runs
from ncfbench.runs.progress import Progress
from ncfbench.runs.recorder import Recorder
from ncfbench.runs.schedule import Schedule, require_hard_iterations
from ncfbench.sampling import Sampler, make_sampler
from ncfbench.storage import locks, tables
from ncfbench.timing.ledger import Ledger
from ncfbench.training.optimizer import updates_rows

FLOAT_BYTES = 4
STATE_COPIES = {"adagrad": 2}
"""Arrays of each table on the device: itself, and its moments, of which Adam has two. Unless its
rows are updated one by one, there is its gradient too.
"""


@dataclass(frozen=True)
class RunPlan:
    """A run that can work, and what is made for it before its folder."""

    config: RunConfig
    locations: Locations
    dataset: Dataset
    sampler: Sampler
    layout: Layout
    schedule: Schedule
    trace: Path | None = None
    """Folder for a trace of JAX's profiler of a few iterations."""

    @classmethod
    def of(
        cls,
        config: RunConfig,
        locations: Locations,
        *,
        dataset: Dataset | None = None,
        trace: Path | None = None,
        ledger: Ledger | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> RunPlan:
        """Open the data set, and refuse what cannot work.

        All processes of a run call it together.

        Args:
            dataset: the data set of these settings, if it is open already.
            ledger: charged with the time of loading.
            say: shows messages, for instance that the synthetic data set is made.

        Raises:
            DataError: the data set is not prepared, or the folder of the trace cannot be made.
            UsageError: a plug-in returns another shape than it must, word vectors do not fit, the
                batch does not fit the data, the device lacks the precision, the memory or its
                peers, or the processes differ.
        """
        require(config.precision)
        if dataset is None:
            with (ledger or Ledger()).line("loading"):
                dataset = open_dataset(config.dataset, data_dir=locations.data_dir, say=say)
        require_contracts(config, dataset)
        sampler = make_sampler(dataset.graph, config, Streams(config.seed))
        schedule = Schedule.of(config, dataset.graph.n_links)
        require_hard_iterations(config, dataset.graph.n_links)
        layout = make_layout(config)
        _require_room_for_vectors(config, dataset, layout)
        ProcessGroup.current().require_alike(config, dataset.fingerprint)
        if trace is not None:
            with tables.storage_errors(trace):
                trace.mkdir(parents=True, exist_ok=True)
        return cls(config, locations, dataset, sampler, layout, schedule, trace)

    @contextmanager
    def open_recorder(
        self, ledger: Ledger, progress: Progress, folder: Path | None
    ) -> Iterator[Recorder]:
        """Open a recorder and hold its folder, a new one for None; it writes in the first process.

        Raises:
            DataError: a folder cannot be written.
            UsageError: another process holds the folder.
        """
        config, fingerprint = self.config, self.dataset.fingerprint
        make = partial(Recorder, config, fingerprint, self.schedule, ledger, progress)
        if not ProcessGroup.current().is_first:
            yield make()
            return
        folder = folder or runs.create(
            self.locations.runs_dir, config, fingerprint, self.dataset.feature_seconds
        )
        with locks.held(folder, "writing"):
            yield make(folder)


def _require_room_for_vectors(config: RunConfig, dataset: Dataset, layout: Layout) -> None:
    # The encoder and the step, which need more, are not counted.
    rows = [dataset.n_users, dataset.n_items if config.coupling == "regularised" else 0]
    histories = 0
    if config.reads_histories:
        features = dataset.item_features if config.reads_history_features else None
        width = 0 if features is None else features.shape[1]
        histories = dataset.graph.n_links + dataset.n_users * (1 + width)
    state = STATE_COPIES.get(config.optimizer, 3)
    copies = [state + (not updates_rows(config, count, config.dimension)) for count in rows]
    if config.shard_tables:
        rows = [-(-count // layout.size) for count in rows]
    needed = np.dot(rows, copies) * config.dimension * FLOAT_BYTES
    needed += histories * FLOAT_BYTES + dataset.tokens_IxL.nbytes + dataset.lengths.nbytes
    for features in (dataset.user_features, dataset.item_features):
        needed += 0 if features is None else features.nbytes
    device = jax.local_devices()[0]
    available = (device.memory_stats() or {}).get("bytes_limit", psutil.virtual_memory().total)
    if needed > available:
        kinds = "users' and items'" if rows[1] else "users'"
        raise UsageError(
            f"The {kinds} vectors with the optimiser's moments, their gradient and the content take"
            f" {needed / 2**30:.1f} GiB, and {device.device_kind} has {available / 2**30:.1f} GiB."
            " Use a smaller --dimension, or --shard-tables on several --devices."
        )
