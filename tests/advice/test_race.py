"""Races of made curves in virtual time: who stays, what the budget is used for, resuming."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ncfbench.advice import race as racing
from ncfbench.advice.candidates import Status, by_promise, first_wave, list_candidates
from ncfbench.advice.question import Question
from ncfbench.advice.race import Clock, Race
from ncfbench.advice.search import Search
from ncfbench.advice.space import Space
from ncfbench.advice.state import State, read_state
from ncfbench.advice.waves import SearchRace, rests
from ncfbench.config import Locations, RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import DivergedError, NcfbenchError
from ncfbench.racing.rule import Curve
from ncfbench.runs import choice
from ncfbench.runs import folder as runs
from ncfbench.runs.progress import Progress
from ncfbench.training import turns

Law = Callable[[RunConfig, float], float]
"""The loss of a run after some seconds of training; infinite where it diverges."""
DATASET: Any = SimpleNamespace(
    fingerprint="f" * 64,
    candidates=lambda split: range(1000),
    holds_out=lambda split: True,
    ranks_known_items=False,
)
BEST, BASELINE = "strat-ns b=512 s=4 lr=0.01", "iid b=512 k=10 lr=0.01"
RECALL = "validation_recall_at_50"


def usual(config: RunConfig, seconds: float) -> float:
    """Strata are the fastest, and the usual rate comes to rest lowest."""
    rate = abs(math.log(config.learning_rate / 0.01))
    speed = {"iid": 1, "ns": 8, "strat-ns": 20}[config.sampler] / (1 + rate)
    return 1 + 0.3 * rate + 7 / math.sqrt(1 + speed * seconds)


class Run:
    """Stands for a session: it moves a clock, and keeps its records in memory."""

    now, learns_at, law = 0.0, 1.0, usual
    recall: Law | None = None
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
        loss = Run.law(config, self.recorder.train_seconds)
        if not math.isfinite(loss):
            self.write("diverged")
            raise DivergedError("The loss is not finite.")
        errors = dict.fromkeys((f"{RECALL}_error", f"{RECALL}_item_error"), 0.01)
        errors[f"{RECALL}_chance"] = 0.05
        self.rows.append({"iteration": self.iteration, "probe_loss": loss, RECALL: None, **errors})

    def evaluate(self) -> None:
        Run.now += 0.2
        seconds, learned = self.recorder.train_seconds, Run.learns_at
        recall = Run.recall and Run.recall(self.kept.config, seconds)
        self.rows[-1][RECALL] = recall or (0.5 if seconds >= learned else 0.05)

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
def hold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """A function that holds a race of 300 s, and returns its state and what it said."""

    def plan(config: RunConfig, locations: Locations, **_: Any) -> Any:
        return SimpleNamespace(config=config, locations=locations)

    def find(_folder: Path, config: RunConfig, _fingerprint: str) -> Path | None:
        return next((path for path, run in Run.records.items() if run.config == config), None)

    monkeypatch.setattr(time, "perf_counter", lambda: Run.now)
    monkeypatch.setattr(racing, "Session", Run)
    monkeypatch.setattr(turns, "Session", Run)
    monkeypatch.setattr(turns, "RunPlan", SimpleNamespace(of=plan))
    monkeypatch.setattr(runs, "read", lambda folder: Run.records[folder])
    monkeypatch.setattr(choice, "find", find)

    def hold(
        law: Law = usual,
        *,
        learns_at: float = 1.0,
        cut: float = math.inf,
        state: State | None = None,
        search: Search | None = None,
    ) -> tuple[State, list[str]]:
        tried: dict[str, Any] = {"samplers": ("iid", "ns", "strat-ns"), "batch_sizes": (512, 1024)}
        tried |= {"stratum_sizes": (4,), "negatives": (10,)}
        question = Question({"dataset": "tiny", "encoder": "cnn"}, "loss", **tried)
        if search is not None:
            question = Question({"dataset": "tiny"})
        if state is None:
            Run.now, Run.records, Run.learns_at = 0.0, {}, learns_at
            Run.law = staticmethod(law if search is None else usual)
            Run.recall = None if search is None else staticmethod(law)
            if search is not None:
                pool = search.first_field()
                field = pool[:4]
                for each in pool:
                    each.iteration_seconds = 5e-3
            else:
                pool, _ = list_candidates(question, n_links=100_000)
                for each in pool:
                    each.expect(each.config.batch_size * 1e-5, 10)
                pool = by_promise(pool)
                field = first_wave(pool)[:8]
            for each in pool:
                each.schedule_probes(0.5)
            rest = [each for each in pool if each not in field]
            state = State(DATASET.fingerprint, field, rest, [], 1.0)
        progress = Mock(Progress)
        here = Locations(tmp_path, tmp_path)
        clock = Clock(300.0, 3.0, state.spent_seconds, began=Run.now)
        kind, near = Race, state.near
        if search is not None:
            kind, near = SearchRace, partial(search.near, state)
        work: Any = (question, state, DATASET, None, here, clock, progress)
        try:
            kind(*work, lambda: Run.now > cut, near).run()
        finally:
            state.spent_seconds = clock.spent
            state.write(tmp_path)
        return state, [call.args[0] for call in progress.say.call_args_list]

    return hold


def test_a_race_ends_with_the_best_and_the_baseline(hold: Callable[..., Any]) -> None:
    """Neighbours of the leader enter, the slow leave, and the time that is left is for seeds."""
    state, said = hold()
    assert state.is_over
    left = [each for each in state.entrants if each.status is Status.LEFT]
    assert all(each.reason.startswith("after ") for each in left)
    stayed = {each.name: each.seeds for each in state.racing}
    assert stayed[BEST] == stayed[BASELINE] == [0, 1]
    assert len(stayed) < 8 < len(state.entrants)
    assert not {each.name for each in state.entrants} & {each.name for each in state.pool}
    assert any(f"{BEST} leads" in line and "last rung" in line for line in said)
    assert 0.8 * 300 < state.spent_seconds <= 300


def test_what_has_learned_nothing_gets_no_second_seed(hold: Callable[..., Any]) -> None:
    """It would show nothing: the time goes to the first seeds."""
    state, said = hold(learns_at=math.inf)
    assert all(each.seeds == [0] for each in state.entrants)
    assert all("none is better than chance yet" in line for line in said)


def test_a_candidate_that_diverges_leaves_alone(hold: Callable[..., Any]) -> None:
    state, said = hold(
        lambda config, seconds: math.inf if config.learning_rate == 0.03 else usual(config, seconds)
    )
    lost = [each for each in state.entrants if each.status is Status.DIVERGED]
    assert {each.config.learning_rate for each in lost} == {0.03}
    assert {each.reason for each in lost} == {"diverged: The loss is not finite."}
    assert f"{lost[0].name} {lost[0].reason}" in said
    assert BEST in {each.name for each in state.racing}
    with pytest.raises(NcfbenchError, match="No candidate is left. .* diverged: The loss"):
        hold(lambda config, seconds: math.inf)


@pytest.mark.long_cases("25|280")
@pytest.mark.parametrize("cut", [5.0, 25.0, 150.0, 280.0])
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
    assert BEST in {each.name for each in state.racing}


def hidden(config: RunConfig, seconds: float) -> float:
    """Two steps from the first candidate recall is highest; all come to rest within seconds."""
    top = 0.5 + 0.1 * (config.dimension == 300) + 0.1 * (config.learning_rate == 0.003)
    top -= 0.2 * (config.loss != "softmax") + 0.05 * (config.sampler != "strat-ns")
    return 0.05 + (top - 0.05) * (1 - math.exp(-2 * seconds))


def hidden_and_late(config: RunConfig, seconds: float) -> float:
    """The same, but a small learning rate learns ten times as late."""
    return hidden(config, seconds / 2 if config.learning_rate == 0.003 else seconds)


@pytest.fixture
def search(tiny: Dataset) -> Search:
    given = {"encoder": ("bow",), "loss": ("softmax", "log"), "sampler": ("strat-ns", "ns")}
    return Search(Space.of(tiny, {"dataset": "tiny"}, given))


def test_a_leader_that_stands_still_at_first_is_not_at_rest(
    hold: Callable[..., Any], search: Search
) -> None:
    """For three seconds all stand where they begin; a sixtieth of the budget is five."""

    def recall(config: RunConfig, seconds: float) -> float:
        return 0.3 if seconds < 3 else hidden(config, seconds)

    _, said = hold(recall, search=search)
    first = next(place for place, line in enumerate(said) if "were tried" in line)
    clocks = [float(line.partition("trained ")[2].split()[0]) for line in said[:first]]
    assert max(clocks) >= 5


@pytest.mark.parametrize("recall", [hidden, hidden_and_late])
def test_a_search_goes_on_beside_whoever_leads(
    hold: Callable[..., Any], search: Search, recall: Callable[[RunConfig, float], float]
) -> None:
    """Candidates that begin with neither of two good settings end with both: one enters beside the
    leader once that is at rest, and the other beside the one that then leads.
    """
    state, said = hold(recall, search=search)
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


@pytest.mark.parametrize("cut", [40.0, 150.0])
def test_an_interrupted_search_continues(
    hold: Callable[..., Any], search: Search, tmp_path: Path, cut: float
) -> None:
    with pytest.raises(KeyboardInterrupt):
        hold(hidden, cut=cut, search=search)
    state = read_state(tmp_path)
    assert state is not None
    state, _ = hold(hidden, state=state, search=search)
    assert state.is_over
    assert state.spent_seconds <= 300
    best = max(state.racing, key=lambda each: hidden(each.config, 60.0))
    assert (best.config.dimension, best.config.learning_rate) == (300, 0.003)


def test_time_is_left_to_train_a_leader_that_still_learns(
    hold: Callable[..., Any], search: Search
) -> None:
    """By the clock a wave would begin, but with it the leader would train half as long."""

    def rising(config: RunConfig, seconds: float) -> float:
        return 0.05 + 0.5 * (hidden(config, 9.0) - 0.05) * min(seconds / 60, 1.0)

    state, said = hold(rising, search=search)
    assert not any("were tried" in line or "last rung" in line for line in said)
    assert state.clock > 50


def test_a_search_without_a_lesson_ends(hold: Callable[..., Any], search: Search) -> None:
    """At chance nobody leads, so nobody enters beside anybody."""
    state, said = hold(lambda config, seconds: 0.05, search=search)
    assert state.is_over
    assert not any("were tried" in line for line in said)


def test_one_that_cannot_come_near_leaves_a_wave(hold: Callable[..., Any], search: Search) -> None:
    """Whoever is far behind at the end of a wave, however few are in it."""

    def only_usual(config: RunConfig, seconds: float) -> float:
        is_usual = config.dimension == 100 and config.learning_rate == 0.01
        return 0.05 + (0.5 if is_usual else 0.1) * (1 - math.exp(-2 * seconds))

    state, _ = hold(only_usual, search=search)
    reasons = {each.reason.partition(": ")[2] for each in state.entrants}
    assert "cannot come near its leader" in reasons


def test_a_curve_rests_when_half_of_its_clock_gave_all() -> None:
    rising, resting = [0.0, -0.2, -0.3, -0.35, -0.4], [0.0, -0.3, -0.398, -0.4, -0.4]
    assert not rests(Curve(range(5), rising))
    assert rests(Curve(range(5), resting))
    assert not rests(Curve([0], [-0.05]))
    assert not rests(Curve(range(3), [0.0, 0.0, 0.0])), "nothing was reached"
