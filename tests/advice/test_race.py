"""Races of made curves in virtual time: who stays, waves, the budget, resuming."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ncfbench.advice import candidate_runs
from ncfbench.advice.candidate_runs import CandidateRuns, Clock
from ncfbench.advice.candidates import Status
from ncfbench.advice.question import Question
from ncfbench.advice.race import Race, rests
from ncfbench.advice.search import Search
from ncfbench.advice.space import Space
from ncfbench.advice.state import State, read_state
from ncfbench.config import Locations, RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import DivergedError, NcfbenchError
from ncfbench.racing.rule import Curve
from ncfbench.runs import choice
from ncfbench.runs import folder as runs
from ncfbench.runs.progress import Progress
from ncfbench.training import turns

Law = Callable[[RunConfig, float], float]
"""The recall of a run after some seconds of training; not a number where it diverges."""
DATASET: Any = SimpleNamespace(
    fingerprint="f" * 64,
    candidates=lambda split: range(1000),
    holds_out=lambda split: True,
    ranks_known_items=False,
)
RECALL = "validation_recall_at_50"


def hidden(config: RunConfig, seconds: float) -> float:
    """Two steps from the first candidate recall is highest; all come to rest within seconds."""
    top = 0.5 + 0.1 * (config.dimension == 300) + 0.1 * (config.learning_rate == 0.003)
    top -= 0.2 * (config.loss != "softmax") + 0.05 * (config.sampler != "strat-ns")
    return 0.05 + (top - 0.05) * (1 - math.exp(-2 * seconds))


def hidden_and_late(config: RunConfig, seconds: float) -> float:
    """The same, but a small learning rate learns ten times as late."""
    return hidden(config, seconds / 2 if config.learning_rate == 0.003 else seconds)


class Run:
    """Stands for a session: it moves a clock, and keeps its records in memory."""

    now, law = 0.0, hidden
    records: dict[Path, Any]

    def __init__(self, plan: Any, *_: Any, folder: Path | None, **__: Any) -> None:
        config: RunConfig = plan.config
        Run.now += 2.0
        if folder is None:
            folder = plan.locations.runs_dir / f"run{len(Run.records)}"
            folder.mkdir(exist_ok=True)
            Run.records[folder] = SimpleNamespace(config=config, curve=[], summary={})
        self.kept, self.rows = Run.records[folder], [*Run.records[folder].curve]
        self.pace = config.batch_size * (4e-5 if config.sampler == "iid" else 1e-5)
        self.iteration = self.rows[-1]["iteration"] if self.rows else 0
        self.recorder = SimpleNamespace(folder=folder, train_seconds=self.iteration * self.pace)
        self.is_done = self.is_saved = False

    def advance(self) -> None:
        config = self.kept.config
        self.iteration, self.is_saved = self.iteration + config.probe_every, False
        self.recorder.train_seconds = self.iteration * self.pace
        Run.now += config.probe_every * self.pace + 0.1
        if math.isnan(Run.law(config, self.recorder.train_seconds)):
            self.write("diverged")
            raise DivergedError("The loss is not finite.")
        errors = dict.fromkeys((f"{RECALL}_error", f"{RECALL}_item_error"), 0.01)
        errors[f"{RECALL}_chance"] = 0.05
        self.rows.append({"iteration": self.iteration, RECALL: None, **errors})

    def evaluate(self) -> None:
        Run.now += 0.2
        self.rows[-1][RECALL] = Run.law(self.kept.config, self.recorder.train_seconds)

    def save(self) -> None:
        Run.now += 0.1
        self.is_saved = True
        self.write("interrupted")

    def write(self, status: str) -> None:
        (self.recorder.folder / "summary.parquet").touch()
        times = {"full_iteration_seconds": self.pace, "recall_reason": None}
        self.kept.summary, self.kept.curve = {"status": status, **times}, [*self.rows]

    def close(self) -> None:
        """It holds nothing."""


@pytest.fixture
def search(tiny: Dataset) -> Search:
    given = {"encoder": ("bow",), "loss": ("softmax", "log"), "sampler": ("strat-ns", "ns")}
    return Search(Space.of(tiny, {"dataset": "tiny"}, given))


@pytest.fixture
def hold(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, search: Search
) -> Callable[..., tuple[State, list[str]]]:
    """A function that holds a race of 300 s, and returns its state and what it said."""

    def plan(config: RunConfig, locations: Locations, **_: Any) -> Any:
        return SimpleNamespace(config=config, locations=locations)

    def find(_folder: Path, config: RunConfig, _fingerprint: str) -> Path | None:
        return next((path for path, run in Run.records.items() if run.config == config), None)

    monkeypatch.setattr(time, "perf_counter", lambda: Run.now)
    monkeypatch.setattr(candidate_runs, "Session", Run)
    monkeypatch.setattr(turns, "Session", Run)
    monkeypatch.setattr(turns, "RunPlan", SimpleNamespace(of=plan))
    monkeypatch.setattr(runs, "read", lambda folder: Run.records[folder])
    monkeypatch.setattr(choice, "find", find)

    def hold(
        law: Law = hidden, *, cut: float = math.inf, state: State | None = None
    ) -> tuple[State, list[str]]:
        if state is None:
            Run.now, Run.records, Run.law = 0.0, {}, staticmethod(law)
            pool = search.first_field()
            for each in pool:
                each.iteration_seconds = 5e-3
                each.schedule_probes(0.5)
            state = State(DATASET.fingerprint, pool[:4], pool[4:], 1.0)
        progress = Mock(Progress)
        here = Locations(tmp_path, tmp_path)
        clock = Clock(300.0, 3.0, state.spent_seconds, began=Run.now)
        work: Any = state, DATASET, None, here, clock, progress, lambda: Run.now > cut
        try:
            Race(Question({"dataset": "tiny"}), search, CandidateRuns(*work)).run()
        finally:
            state.spent_seconds = clock.spent
            state.write(tmp_path)
        return state, [call.args[0] for call in progress.say.call_args_list]

    return hold


def test_what_has_learned_nothing_gets_no_second_seed(hold: Callable[..., Any]) -> None:
    """At chance nobody leads, so nobody enters beside anybody: the time goes to the first seeds."""
    state, said = hold(lambda config, seconds: 0.05)
    assert state.is_over
    assert all(each.seeds == [0] for each in state.entrants)
    assert any("none is better than chance yet" in line for line in said)
    assert not any("were tried" in line or "leads" in line for line in said)


def test_a_candidate_that_diverges_leaves_alone(hold: Callable[..., Any]) -> None:
    def diverging(config: RunConfig, seconds: float) -> float:
        return math.nan if config.sampler == "ns" else hidden(config, seconds)

    state, said = hold(diverging)
    lost = [each for each in state.entrants if each.status is Status.DIVERGED]
    assert {each.config.sampler for each in lost} == {"ns"}
    assert {each.reason for each in lost} == {"diverged: The loss is not finite."}
    assert f"{lost[0].name} {lost[0].reason}" in said
    best = max(state.racing, key=lambda each: hidden(each.config, 60.0))
    assert (best.config.dimension, best.config.learning_rate) == (300, 0.003)
    with pytest.raises(NcfbenchError, match="No candidate is left. .* diverged: The loss"):
        hold(lambda config, seconds: math.nan)


@pytest.mark.long_cases("25|280")
@pytest.mark.parametrize("cut", [5.0, 25.0, 40.0, 150.0, 280.0])
def test_an_interrupted_race_continues(
    hold: Callable[..., Any], tmp_path: Path, cut: float
) -> None:
    """Nothing that was trained is lost, and the budget counts what was spent before."""
    with pytest.raises(KeyboardInterrupt):
        hold(cut=cut)
    state = read_state(tmp_path)
    assert state is not None
    assert not state.is_over
    trained = {folder: len(run.curve) for folder, run in Run.records.items()}
    state, _ = hold(state=state)
    assert state.is_over
    assert state.spent_seconds <= 300
    assert all(len(Run.records[folder].curve) >= length for folder, length in trained.items())
    assert len(Run.records) == sum(len(each.seeds) for each in state.entrants)
    best = max(state.racing, key=lambda each: hidden(each.config, 60.0))
    assert (best.config.dimension, best.config.learning_rate) == (300, 0.003)


def test_a_leader_that_stands_still_at_first_is_not_at_rest(hold: Callable[..., Any]) -> None:
    """For three seconds all stand where they begin; a sixtieth of the budget is five."""

    def recall(config: RunConfig, seconds: float) -> float:
        return 0.3 if seconds < 3 else hidden(config, seconds)

    _, said = hold(recall)
    first = next(place for place, line in enumerate(said) if "were tried" in line)
    clocks = [float(line.partition("trained ")[2].split()[0]) for line in said[:first]]
    assert max(clocks) >= 5


@pytest.mark.parametrize("recall", [hidden, hidden_and_late])
def test_a_search_goes_on_beside_whoever_leads(hold: Callable[..., Any], recall: Law) -> None:
    """Candidates that begin with neither of two good settings end with both: one enters beside the
    leader once that is at rest, and the other beside the one that then leads.
    """
    state, said = hold(recall)
    assert state.is_over
    best = max(state.racing, key=lambda each: hidden(each.config, 60.0))
    assert (best.config.dimension, best.config.learning_rate) == (300, 0.003)
    assert best.config.loss == "softmax"
    waves = [line for line in said if "were tried" in line]
    assert len(waves) >= 2
    names = [each.name for each in state.entrants]
    assert len(set(names)) == len(names)
    left = [each for each in state.entrants if each.status is Status.LEFT]
    assert any("in a wave" in each.reason for each in left)
    assert 0.7 * 300 < state.spent_seconds <= 300
    # The winner and the next one get a second seed.
    assert best.seeds == [0, 1]
    assert sum(each.seeds == [0, 1] for each in state.entrants) == 2


def test_time_is_left_to_train_a_leader_that_still_learns(hold: Callable[..., Any]) -> None:
    """By the clock a wave would begin, but with it the leader would train half as long."""

    def rising(config: RunConfig, seconds: float) -> float:
        return 0.05 + 0.5 * (hidden(config, 9.0) - 0.05) * min(seconds / 60, 1.0)

    state, said = hold(rising)
    assert not any("were tried" in line or "last rung" in line for line in said)
    assert state.clock > 50


def test_one_that_cannot_come_near_leaves_a_wave(hold: Callable[..., Any]) -> None:
    """Whoever is far behind at the end of a wave, however few are in it."""

    def only_usual(config: RunConfig, seconds: float) -> float:
        is_usual = config.dimension == 100 and config.learning_rate == 0.01
        return 0.05 + (0.5 if is_usual else 0.1) * (1 - math.exp(-2 * seconds))

    state, _ = hold(only_usual)
    reasons = {each.reason.partition(": ")[2] for each in state.entrants}
    assert "cannot come near its leader" in reasons


def test_a_curve_rests_when_half_of_its_clock_gave_all() -> None:
    rising, resting = [0.0, -0.2, -0.3, -0.35, -0.4], [0.0, -0.3, -0.398, -0.4, -0.4]
    assert not rests(Curve(range(5), rising))
    assert rests(Curve(range(5), resting))
    assert not rests(Curve([0], [-0.05]))
    assert not rests(Curve(range(3), [0.0, 0.0, 0.0])), "nothing was reached"
