"""What all processes of a run but the first do: the same training, and no records."""

from __future__ import annotations

from ncfbench.config import Locations, RunConfig
from ncfbench.data import open_dataset
from ncfbench.distributed import signals
from ncfbench.distributed.mesh import make_layout
from ncfbench.distributed.process_group import ProcessGroup
from ncfbench.models.precision import require
from ncfbench.rng import Streams
from ncfbench.runs.progress import Progress
from ncfbench.sampling import make_sampler
from ncfbench.timing.ledger import Ledger
from ncfbench.training.run import STOPPING_TOGETHER
from ncfbench.training.session import OpenRun


def follow(config: RunConfig, places: Locations) -> None:
    """Train beside the process that calls :func:`ncfbench.training.run.run` with the same settings.

    Raises:
        DataError: the data set is not prepared on this machine.
        DivergedError, KeyboardInterrupt, UsageError: as in the first process.
    """
    require(config.precision)
    dataset = open_dataset(places.data_dir, config.dataset, lambda text: None)
    make_sampler(dataset.graph, config, Streams(config.seed))
    make_layout(config)
    ProcessGroup.current().require_alike(config, dataset.fingerprint)
    (is_over,) = ProcessGroup.current().any(False)
    if not is_over:
        with signals.deferred_signals(lambda text: None, STOPPING_TOGETHER) as interrupted:
            OpenRun(config, dataset, None, Progress(), interrupted, Ledger()).go()
