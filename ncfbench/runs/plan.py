"""Plan a run, and refuse what its settings, data and folders rule out, before JAX is imported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ncfbench.config import Locations, RunConfig
from ncfbench.data import Dataset, open_dataset
from ncfbench.data.assets.checkpoint import require_checkpoint
from ncfbench.errors import UsageError
from ncfbench.rng import Streams
from ncfbench.runs.folder import RunRecord, path_of, read
from ncfbench.runs.quality import COMPARED, can_rank, n_ranked
from ncfbench.runs.schedule import Schedule
from ncfbench.sampling import Sampler, make_sampler
from ncfbench.storage import tables
from ncfbench.timing.ledger import Ledger


@dataclass(frozen=True)
class RunPlan:
    """A run that its settings and data allow, before its folder is made."""

    config: RunConfig
    locations: Locations
    dataset: Dataset
    sampler: Sampler
    schedule: Schedule

    @classmethod
    def of(
        cls,
        config: RunConfig,
        locations: Locations,
        *,
        dataset: Dataset | None = None,
        ledger: Ledger | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> RunPlan:
        """Open the data set, and refuse what cannot work with it.

        Args:
            dataset: the data set of these settings, if it is open already.
            ledger: charged with the time of loading.
            say: shows messages, for instance that the synthetic data set is made.

        Raises:
            DataError: the data set is not prepared, or the folder of the runs cannot be written.
            UsageError: the model reads what the data do not have, or the batch does not fit them.
        """
        tables.require_writable(locations.runs_dir)
        if dataset is None:
            with (ledger or Ledger()).line("loading"):
                dataset = open_dataset(config.dataset, data_dir=locations.data_dir, say=say)
        require_content(config, dataset)
        sampler = make_sampler(dataset.graph, config, Streams(config.seed))
        is_chosen = (
            can_rank(config.encoder, dataset)
            and len(dataset.links("validation")[0]) > 0
            and n_ranked(dataset, "validation").max() > COMPARED
        )
        schedule = Schedule.of(config, dataset.graph.n_links, has_validation=bool(is_chosen))
        return cls(config, locations, dataset, sampler, schedule)

    @property
    def folder(self) -> Path:
        """The run's folder, made or not."""
        return path_of(self.locations.runs_dir, self.config, self.dataset.fingerprint)

    def read_finished(self) -> RunRecord | None:
        """Return the run as its folder holds it, if it is finished."""
        if not (self.folder / "summary.parquet").exists():
            return None
        record = read(self.folder)
        return record if record.summary["status"] == "finished" else None


def require_content(config: RunConfig, dataset: Dataset) -> None:
    """Refuse a model that reads what the data set does not have.

    Raises:
        DataError: the checkpoint of a pretrained model is damaged.
        UsageError: otherwise; the message says what to use instead.
    """
    content, has_features = config.infos["encoder"].content, dataset.item_features is not None
    if "features" in content and not has_features:
        raise UsageError(
            f"--encoder {config.encoder} reads dense features of items, and {config.dataset} has"
            " none. Prepare your data with --lsa 300 or --item-features FILE."
        )
    if content == ("text",) and not dataset.n_words:
        raise UsageError(
            f"--encoder {config.encoder} reads texts, and {config.dataset} has none. Use --encoder"
            " mlp, which reads its dense features."
        )
    if config.reads_history_features and not has_features:
        raise UsageError(
            f"history_of = {config.history_of} reads dense features of items, and"
            f" {config.dataset} has none. Prepare your data with --lsa 300 or --item-features"
            " FILE, or use --set history_of=ids."
        )
    if "checkpoint" in config.infos["encoder"].own:
        require_checkpoint(config, dataset)
