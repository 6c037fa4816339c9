"""Races of made curves in virtual time: who stays, waves, the budget."""

import math
import re
from dataclasses import dataclass, replace
from functools import cache, partial
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncfbench.advice.arms import Runs
from ncfbench.advice.race import TURNS, Race, rests
from ncfbench.advice.search import Search
from ncfbench.advice.space import Space
from ncfbench.config import Locations
from ncfbench.errors import DivergedError, NcfbenchError, UsageError
from ncfbench.racing.engine import Clock, Status
from ncfbench.runs import folder as runs
from ncfbench.runs.folder import path_of
from ncfbench.runs.progress import Progress
from ncfbench.statistics.curves import Curve
from ncfbench.training import turns

DATASET = SimpleNamespace(
    fingerprint="f" * 64,
    candidates=lambda split: range(1000),
    holds_out=lambda split: True,
    ranks_known_items=False,
    links=lambda split: (np.zeros(1, np.int32), np.zeros(1, np.int32)),
    has_links=np.ones(1, bool),
    graph=SimpleNamespace(n_links=50_000, user_degrees=np.ones(1, np.int64)),
)
RECALL = "validation_recall_at_50"


def hidden(config, seconds):
    """Two steps from the first arm recall is highest; all come to rest within seconds."""
    top = 0.5 + 0.1 * (config.dimension == 300) + 0.1 * (config.learning_rate == 0.003)
    top -= 0.2 * (config.loss != "softmax") + 0.05 * (config.sampler != "strat-ns")
    return 0.05 + (top - 0.05) * (1 - math.exp(-2 * seconds))


def hidden_and_late(config, seconds):
    """The same, but a small learning rate learns ten times as late."""
    return hidden(config, seconds / 2 if config.learning_rate == 0.003 else seconds)


@dataclass(frozen=True)
class Cost:
    """Seconds of the parts of a run; an iteration of samplers without sharing takes four times."""

    opening: float = 2.0
    link: float = 1e-5
    evaluation: float = 0.2
    saving: float = 0.1
    forecast: float = 1.0
    """Expected seconds of an evaluation over the true ones."""
    slower: float = 1.0
    """Times its seconds of training that a run of a further seed takes by the wall."""


class Run:
    """Stands for an open run: it moves a clock, and keeps its records in memory. Its recall follows
    from seconds of training by a law; it is not a number where the run diverges.
    """

    now, law, costs, records = 0.0, hidden, {}, {}
    iteration_seconds, is_done, is_saved = None, False, False

    def __init__(self, plan, *_, **__):
        config = plan.config
        self.plan, self.cost = plan, Run.costs.get(config.encoder, Cost())
        Run.now += self.cost.opening
        folder = path_of(plan.locations.runs_dir, config, DATASET.fingerprint)
        folder.mkdir(exist_ok=True)
        kept = SimpleNamespace(config=config, curve=[], summary={}, turns=[])
        self.kept = Run.records.setdefault(folder, kept)
        self.rows = [*self.kept.curve]
        self.pace = config.batch_size * self.cost.link * (4 if config.sampler == "iid" else 1)
        self.iteration = self.rows[-1]["iteration"] if self.rows else 0
        self.recorder = SimpleNamespace(folder=folder, train_seconds=0.0, last_row=None)
        self.advance(0)

    def advance(self, iterations):
        self.iteration += iterations
        self.recorder.train_seconds = self.iteration * self.pace
        Run.now += iterations * self.pace * (self.cost.slower if self.kept.config.seed else 1.0)
        self.recall = Run.law(self.kept.config, self.recorder.train_seconds)

    def train_for(self, seconds):
        iterations = max(round(seconds / self.pace), 1)
        self.kept.turns.append((seconds, iterations * self.pace))
        self.is_saved, self.iteration_seconds = False, self.pace
        self.advance(iterations)
        if math.isnan(self.recall):
            self.write("diverged")
            raise DivergedError("The loss is not finite.")

    @property
    def is_evaluated(self):
        return bool(self.rows) and self.rows[-1]["iteration"] == self.iteration

    def forecast_evaluation(self):
        return self.cost.forecast * self.cost.evaluation

    def evaluate(self):
        Run.now += self.cost.evaluation
        row = dict.fromkeys((f"{RECALL}_error", f"{RECALL}_item_error"), 0.01)
        row |= {RECALL: self.recall, f"{RECALL}_chance": 0.05}
        row |= {"iteration": self.iteration, "train_seconds": self.recorder.train_seconds}
        self.rows.append(row)
        self.recorder.last_row = row

    def save(self):
        Run.now += self.cost.saving
        self.is_saved = True
        self.write("interrupted")

    def write(self, status):
        (self.recorder.folder / "summary.parquet").touch()
        times = {"full_iteration_seconds": self.pace, "recall_reason": None}
        times["train_seconds"] = self.recorder.train_seconds
        self.kept.summary, self.kept.curve = {"status": status, **times}, [*self.rows]

    def close(self):
        """It holds nothing."""


@pytest.fixture(scope="module")
def search(tiny):
    @cache
    def make(encoders):
        given = {"encoder": encoders, "loss": ("softmax", "log"), "sampler": ("strat-ns", "ns")}
        search = Search(Space.of(tiny, {"dataset": "tiny"}, given))
        near = cache(partial(search.neighbours, known=()))
        search.neighbours = lambda leader, known: [
            choice for choice in near(leader) if choice.name not in known
        ]
        return search

    return make


@pytest.fixture
def hold(monkeypatch, tmp_path, search):
    def plan(config, locations, **_):
        return SimpleNamespace(config=config, locations=locations)

    monkeypatch.setattr("time.perf_counter", lambda: Run.now)
    monkeypatch.setattr(turns, "Run", Run)
    monkeypatch.setattr(turns, "RunPlan", SimpleNamespace(of=plan))
    monkeypatch.setattr(runs, "read", lambda folder: Run.records[folder])

    def hold(law=hidden, *, budget=300.0, encoders=None):
        Run.now, Run.records, Run.law = 0.0, {}, staticmethod(law)
        Run.costs = dict(encoders or {})
        progress = Mock(Progress)
        here = Locations(tmp_path, tmp_path)
        clock = Clock(budget, 3.0, began=Run.now)
        runs = Runs(DATASET, None, here, RECALL, clock, progress, lambda: False)
        among = search(tuple(encoders or ["bow"]))
        race = Race(clock, [], progress.say, search=among, runs=runs)
        with runs.turns:
            race.run()
        return race, [call.args[0] for call in progress.say.call_args_list]

    return hold


def test_a_further_seed_that_the_budget_cut_short_decides_nothing(hold):
    race, said = hold(encoders={"bow": Cost(slower=10.0)})
    records = {run.config: run for run in Run.records.values() if run.summary}
    repeats, tops = [arm for arm in race.arms if arm.seed], []
    late = {arm.config for arm in repeats if not arm.is_cut}
    for arm in {arm.first for arm in repeats}:
        first = records[arm.config]
        best = max(first.curve, key=lambda row: row[RECALL])["iteration"]
        tops.append(best * first.summary["full_iteration_seconds"])
    assert all(records[config].curve[-1]["train_seconds"] >= 0.9 * max(tops) for config in late)
    cut = {
        arm.name: {one.seed for one in repeats if one.first is arm.first and one.is_cut}
        for arm in repeats
    }
    assert late < {config for config in records if config.seed}
    assert any(cut.values())
    # The best one that was cut short takes the other with it.
    best = re.match("Seed 2 of (.*?)[,.]", next(line for line in said if "Seed 2" in line))[1]
    assert all(cut[best] <= seeds for seeds in cut.values())


def test_what_has_learned_nothing_gets_no_second_seed(hold):
    """At chance nobody leads, so nobody enters beside anybody: the time goes to the first seeds."""
    race, said = hold(lambda config, seconds: 0.05)
    assert all(arm.seed == 0 for arm in race.arms)
    assert any("none is better than chance yet" in line for line in said)
    assert not any("were tried" in line or "leads" in line for line in said)


def test_a_candidate_that_diverges_leaves_alone(hold):
    def diverging(config, seconds):
        return math.nan if config.sampler == "ns" else hidden(config, seconds)

    race, said = hold(diverging)
    lost = [arm for arm in race.firsts if arm.status is Status.DIVERGED]
    assert {arm.config.sampler for arm in lost} == {"ns"}
    assert {arm.reason for arm in lost} == {"diverged: The loss is not finite."}
    assert f"{lost[0].name} {lost[0].reason}" in said
    best = max(race.active, key=lambda arm: hidden(arm.config, 60.0))
    assert (best.config.dimension, best.config.learning_rate) == (300, 0.003)
    with pytest.raises(NcfbenchError, match="No arm is left. .* diverged: The loss"):
        hold(lambda config, seconds: math.nan)


def test_a_leader_that_stands_still_at_first_is_not_at_rest(hold):
    """For three seconds all stand where they begin; a sixtieth of the budget is five."""
    _, said = hold(lambda config, seconds: 0.3 if seconds < 3 else hidden(config, seconds))
    first = next(place for place, line in enumerate(said) if "were tried" in line)
    rungs = [line.partition("trained ")[2] for line in said[:first] if "trained " in line]
    assert max(float(line.split()[0]) for line in rungs) >= 5


@pytest.mark.parametrize("recall", [hidden, hidden_and_late])
def test_a_search_goes_on_beside_whoever_leads(hold, recall):
    """Arms that begin with neither of two good settings end with both: one enters beside the
    leader once that is at rest, and the other beside the one that then leads.
    """
    race, said = hold(recall)
    best = max(race.active, key=lambda arm: hidden(arm.config, 60.0))
    assert (best.config.dimension, best.config.learning_rate) == (300, 0.003)
    assert best.config.loss == "softmax"
    assert sum("were tried" in line for line in said) >= 2
    names = [arm.name for arm in race.firsts]
    assert len(set(names)) == len(names)
    assert any("in a wave" in arm.reason for arm in race.firsts if arm.status is Status.LEFT)
    assert 0.7 * 300 < race.clock.spent <= 300
    # Two of the best get further seeds; they are equal here.
    seeded = [*{arm.name: arm.first.config for arm in race.arms if arm.seed}.values()]
    assert [hidden(config, 60.0) for config in seeded] == [hidden(best.config, 60.0)] * 2


def test_time_is_left_to_train_a_leader_that_still_learns(hold):
    """By the clock a wave would begin, but with it the leader would train half as long."""

    def rising(config, seconds):
        return 0.05 + 0.5 * (hidden(config, 9.0) - 0.05) * min(seconds / 60, 1.0) ** 0.5

    race, said = hold(rising)
    assert not any("were tried" in line or "last rung" in line for line in said)
    assert race.reached > 50


def test_a_costly_arm_trains_by_its_own_clock(hold):
    """An iteration of one encoder takes 300 times as long as the other's. All turns end within an
    iteration of the same seconds, and so do the clocks of all that end the first rung.
    """
    costs = {"bow": Cost(), "transformer": Cost(20.0, 3e-3, 8.0, 0.5)}
    race, _ = hold(budget=600.0, encoders=costs)
    turns = {encoder: [] for encoder in costs}
    for run in Run.records.values():
        pace = run.config.batch_size * costs[run.config.encoder].link
        turns[run.config.encoder] += [real for _, real in run.turns]
        for asked, real in run.turns:
            assert asked <= race.first_clock / TURNS or run.config == race.arms[0].config
            assert real <= asked + pace / 2 or real == pytest.approx(pace)
    assert max(turns["bow"]) < 3.5
    assert 2.5 < max(turns["transformer"]) < 4.2
    costly = [run for run in Run.records.values() if run.config.encoder == "transformer"]
    assert all(run.curve for run in costly), "every one that began was evaluated"
    assert race.clock.spent <= 600


def costs(opening, link):
    """Costs of an encoder up to so many seconds; an evaluation takes no longer than forecast."""
    return st.builds(
        Cost,
        opening=st.floats(0.01, opening),
        link=st.floats(1e-6, link),
        evaluation=st.floats(0.01, 60.0),
        saving=st.floats(0.01, 0.3),
        forecast=st.floats(1.0, 2.0),
    )


@settings(max_examples=25)
@given(
    bow=costs(4.0, 4e-4),
    other=costs(8.0, 1e-3),
    surprise=st.sampled_from([0.0, 100.0]),
    budget=st.sampled_from([30.0, 60.0, 300.0, 600.0]),
)
def test_the_budget_is_kept_whatever_an_arm_costs(hold, bow, other, surprise, budget):
    """But for what nobody can know: that an encoder takes longer to compile than any before."""
    encoders = {"bow": bow, "transformer": replace(other, opening=other.opening + surprise)}
    try:
        hold(budget=budget, encoders=encoders)
    except UsageError as error:
        assert "too short: two arms need about" in str(error)
    assert Run.now <= budget + surprise


def test_one_that_cannot_come_near_leaves_a_wave(hold):
    def only_usual(config, seconds):
        is_usual = config.dimension == 100 and config.learning_rate == 0.01
        return 0.05 + (0.5 if is_usual else 0.1) * (1 - math.exp(-2 * seconds))

    race, _ = hold(only_usual)
    reasons = {arm.reason.partition(": ")[2] for arm in race.firsts}
    assert "cannot come near its leader" in reasons


def test_a_curve_rests_when_half_of_its_clock_gave_all():
    rising, resting = [0.0, -0.2, -0.3, -0.35, -0.4], [0.0, -0.3, -0.398, -0.4, -0.4]
    assert not rests(Curve(range(5), rising))
    assert rests(Curve(range(5), resting))
    assert not rests(Curve([0], [-0.05]))
    assert not rests(Curve(range(3), [0.0, 0.0, 0.0])), "nothing was reached"
