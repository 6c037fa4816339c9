"""The stages of a sweep: the trials of its tuning, then its cells; each is predicted, cut to a
budget, trained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ncfbench.config import Locations, RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import DivergedError, NcfbenchError
from ncfbench.runs.trials import FOLDER, Budget
from ncfbench.sweeps import forecast, tuning
from ncfbench.sweeps import grid as sweeps
from ncfbench.sweeps import runner as sweeping
from ncfbench.sweeps.forecast import Prediction
from ncfbench.sweeps.overview import Overview
from ncfbench.sweeps.status import Survey, survey


@dataclass
class Stage:
    """Cells that are predicted and trained together: those of the sweep, or the trials before
    them.
    """

    cells: Sequence[RunConfig]
    datasets: Mapping[str, Dataset]
    places: Locations
    tell: Callable[[str], None]
    overview: Callable[[], Overview] = Overview
    predicted: dict[RunConfig, Prediction] | None = None
    failed: dict[RunConfig, str] = field(default_factory=dict)
    exit_code: int = 0

    @property
    def seconds(self) -> float:
        """Predicted for all cells."""
        return sum(each.seconds for each in (self.predicted or {}).values())

    @property
    def memory_bytes(self) -> int | None:
        """Predicted for the worst moment."""
        return None if self.predicted is None else forecast.memory(self.predicted)

    def survey(self) -> Survey:
        """How far the cells are."""
        fingerprints = {name: each.fingerprint for name, each in self.datasets.items()}
        return survey(self.places.runs_dir, self.cells, fingerprints)

    def predict(self) -> None:
        """Find out what the cells still need."""
        self.predicted = forecast.predict(
            self.survey().states, self.datasets, self.places.runs_dir, self.tell
        )

    def fit(self, seconds: float) -> tuple[str, ...]:
        """Drop seeds and cells until the prediction fits; what was dropped, in words."""
        predicted = self.predicted or {}
        self.cells, dropped = sweeps.within(
            self.cells, {config: each.seconds for config, each in predicted.items()}, seconds
        )
        self.predicted = {config: predicted[config] for config in self.cells}
        return dropped

    def train(self) -> None:
        """Train what is left, and keep what failed."""
        left = [config for config in self.cells if config not in self.failed]
        outcome = sweeping.run(left, self.datasets, self.places, self.overview())
        self.failed |= outcome.failed
        self.exit_code = self.exit_code or outcome.exit_code


class Tuning:
    """The trials of a sweep."""

    def __init__(self, stage: Stage, budget: Budget) -> None:
        for name, dataset in stage.datasets.items():
            tuning.require_validation(name, dataset.manifest["statistics"]["validation_items"])
        self.budget = budget
        self.trials = tuning.trials(stage.cells, budget)
        cells = tuple(dict.fromkeys(trial for own in self.trials.values() for trial in own))
        places = Locations(stage.places.data_dir, stage.places.runs_dir / FOLDER)
        self.stage = Stage(cells, stage.datasets, places, stage.tell, stage.overview)
        self.lines: list[str] = []

    def choose(self, stage: Stage, *, final: bool) -> None:
        """Give a stage's cells what their trials say.

        Args:
            final: whether all trials should be there, so that a cell without a choice fails.
        """
        wanted = {config: self.trials[config] for config in stage.cells if not config.tuned}
        chosen, missing = tuning.choose(wanted, self.stage.survey())
        names = sweeps.labels(stage.cells)
        for config, choice in chosen.items():
            values = ", ".join(
                f"{name} = {value:g}" for name, value in choice.settings(self.budget).items()
            )
            line = (
                f"Tuned: {names[config]}: {values} (validation recall@50 {choice.recall:.4f},"
                f" {choice.usable} trials)"
            )
            self.lines.append(line)
            stage.tell(line)
        stage.cells = [
            tuning.tuned(config, chosen[config], self.budget) if config in chosen else config
            for config in stage.cells
        ]
        if final:
            stage.failed |= missing
            # A trial that diverged is a bad setting, and no failure; one that could not be trained
            # is.
            failed = self.stage.exit_code not in (0, DivergedError.exit_code)
            if failed or missing:
                stage.exit_code = self.stage.exit_code if failed else NcfbenchError.exit_code
