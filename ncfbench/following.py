"""What all processes of a run but the first do: the same training, and no records."""

from __future__ import annotations

from ncfbench import interrupts
from ncfbench.config import Locations, RunConfig
from ncfbench.datasets import open_dataset
from ncfbench.ledger import Ledger
from ncfbench.openrun import OpenRun
from ncfbench.parallel import Layout
from ncfbench.precision import require
from ncfbench.progress import Progress
from ncfbench.samplers import make_sampler
from ncfbench.streams import Streams
from ncfbench.team import Team
from ncfbench.training import STOPPING_TOGETHER


def follow(config: RunConfig, places: Locations) -> None:
    """Train beside the process that calls :func:`ncfbench.training.run` with the same settings.

    Raises:
        DataError: the data set is not prepared on this machine.
        DivergedError, KeyboardInterrupt, UsageError: as in the first process.
    """
    require(config.precision)
    dataset = open_dataset(places.data_dir, config.dataset, lambda text: None)
    make_sampler(dataset.graph, config, Streams(config.seed))
    Layout.of(config)
    Team.here().require_alike(config, dataset.fingerprint)
    (is_over,) = Team.here().any(False)
    if not is_over:
        with interrupts.noted(lambda text: None, STOPPING_TOGETHER) as interrupted:
            OpenRun(config, dataset, None, Progress(), interrupted, Ledger()).go()
