"""Races of recorded curves: who leaves, who is the soonest, and in which time."""

import math
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from played_field import played_race

from ncfbench.errors import CheckFailedError
from ncfbench.racing import race as races
from ncfbench.racing.answer import make_answer
from ncfbench.racing.arm import CommandArm, Field
from ncfbench.racing.clock import Reading, Timeline
from ncfbench.racing.commands import Command
from ncfbench.racing.engine import Status
from ncfbench.racing.metric import Metric
from ncfbench.racing.question import Question
from ncfbench.racing.race import make_clock
from ncfbench.racing.summary import headline
from ncfbench.statistics.intervals import LOSS_SPREAD, QUALITY_SPREAD


def played(curves, budget, startup=0.0, **asked):
    """Race curves to the end of a budget."""
    metric = Metric(str(asked.pop("name", "value")), minimize=bool(asked.pop("minimize", False)))
    question = Question(metric, budget, **asked)  # type: ignore[arg-type]
    race, field = played_race(curves, question, startup)
    race.run()
    return race, field


def rising(pace, top=0.5, end=100.0, every=0.5):
    """A recall that comes to rest at a top, by the pace."""
    count = int(end / every)
    return [(every * n, top * (1 - math.exp(-every * n / pace))) for n in range(1, count + 1)]


def answer_of(race):
    return make_answer(race.question, race.arms, race.clock.spent, is_over=True)


def best_of(race):
    best = answer_of(race).best
    assert best is not None
    return best


def full_times(curves, *, sign=1.0):
    """Seconds of whole curves to 95 % of the best, of those within 1.5 % of it; by brute force."""
    tops = {name: max(sign * value for _, value in points) for name, points in curves.items()}
    best = max(tops.values())
    found = {}
    for name, points in curves.items():
        first = min((at for at, value in points if sign * value >= 0.95 * best), default=math.inf)
        found[name] = first if tops[name] >= 0.985 * best else math.inf
    return found


def test_the_soonest_wins_within_a_tenth_of_the_time():
    """Of ten arms, each of which would take 100 s: the budget is that of one."""
    curves = {f"arm {n}": rising(2.0 * 1.5**n, 0.5 if n % 3 else 0.4) for n in range(10)}
    race, field = played(curves, budget=100.0)
    best = best_of(race)
    times = full_times(curves)
    assert times[best.name] <= 1.1 * min(times.values())
    assert field.clock.spent <= 100


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0.5, 20), st.floats(0.1, 1)), min_size=2, max_size=8))
def test_races_keep_their_budget_and_their_books(laws):
    curves = {f"arm {n}": rising(*law, end=60) for n, law in enumerate(laws)}
    race, field = played(curves, budget=60.0)
    answer = answer_of(race)
    assert field.clock.spent <= 60
    assert sum(seconds for _, seconds in field.turns) == pytest.approx(field.clock.spent)
    assert sum(each.running_seconds for each in race.arms) == pytest.approx(field.clock.spent)
    assert answer.best is not None
    assert {each.name for each in answer.results} == set(curves)
    for each in answer.results:
        assert bool(each.arm.reason) == (each.arm.status is not Status.RACING)


def test_arms_take_turns(monkeypatch):
    monkeypatch.setattr(races, "TURN_SECONDS", 2.0)
    race, field = played({"a": rising(9), "b": rising(9)}, budget=60.0)
    names = [name for name, _ in field.turns[2:]]
    assert max(seconds for _, seconds in field.turns) == pytest.approx(2)
    assert names[:8] in (["a", "b"] * 4, ["b", "a"] * 4)
    trained = [each.seconds for each in race.arms]
    assert max(trained) - min(trained) <= 2.001


def test_startup_is_not_counted():
    """The one with the long start-up trains sooner."""
    curves = {"a": rising(4.0), "b": rising(8.0)}
    race, _ = played(curves, budget=100.0, startup=10.0)
    best = best_of(race)
    assert best.name == "a"
    assert best.arm.timeline.startup_seconds == pytest.approx(10)


def test_an_arm_whose_first_line_is_late_trains_as_long():
    """Until its second line, its start-up is taken to be that of the other one."""
    curves = {"a": rising(4.0), "b": rising(4.0, every=12.0)}
    race, _ = played(curves, budget=70.0, startup=10.0)
    a, b = race.arms
    assert len(b.readings) == 1
    assert b.timeline.startup_seconds == pytest.approx(10)
    assert b.seconds == pytest.approx(a.seconds, abs=5)


def test_a_budget_of_little_more_than_startups_is_used():
    """Where all have one line, a second one of one arm tells that all have trained little."""
    curves = {name: rising(4.0) for name in "abc"}
    race, _ = played(curves, budget=42.0, startup=10.0)
    assert min(len(each.readings) for each in race.arms) >= 2


def test_a_loss_is_measured_from_where_arms_began():
    """From 2 to 0.5 and to 0.505: 95 % of the way is 0.575, reached by exp(-t/pace) = 0.05."""

    def falling(pace, low):
        return [(t / 4, low + (2 - low) * math.exp(-t / 4 / pace)) for t in range(400)]

    race, _ = played({"a": falling(5, 0.5), "b": falling(2, 0.505)}, budget=150, minimize=True)
    answer, best = answer_of(race), best_of(race)
    assert best.name == "b"
    assert answer.value(answer.level or 0) == pytest.approx(0.575, abs=0.003)
    assert answer.start == pytest.approx(2)
    crossing = -2 * math.log((0.575 - 0.505) / 1.495)
    assert best.seconds == pytest.approx(crossing, rel=0.05)


@pytest.mark.parametrize(
    ("name", "begin", "top", "start", "level"),
    [
        ("recall", 0.0, 0.8, 0.0, 0.95 * 0.8),
        ("val_auc", 0.5, 0.8, 0.5, 0.5 + 0.95 * 0.3),
        ("AUC", 50.0, 52.0, 50.0, 50.0 + 0.95 * 2.0),
        ("accuracy", 0.90, 0.92, 0.90, 0.90 + 0.95 * 0.02),
        ("auc", 0.40, 0.45, 0.40, 0.40 + 0.95 * 0.05),
    ],
)
def test_quality_is_measured_from_chance(name, begin, top, start, level):
    """Or from where arms began, if all began near the best."""
    quick, slow = (
        [(t / 10, begin + (top - begin) * (1 - math.exp(-t / 10 / pace))) for t in range(1000)]
        for pace in (3.0, 9.0)
    )
    race, _ = played({"quick": quick, "slow": slow}, budget=150, name=name)
    answer, best = answer_of(race), best_of(race)
    assert (best.name, best.is_at_most) == ("quick", False)
    assert answer.value(answer.start) == pytest.approx(start, rel=0.01)
    assert answer.value(answer.level or 0) == pytest.approx(level, rel=0.001)
    said = "that of chance" if start in (0.5, 50) else "where arms began"
    assert (said in headline(answer)) == (start > 0)


def test_a_target_ends_the_race_once_it_is_decided():
    curves = {"slow": rising(40), "quick": rising(4), "low": rising(1, top=0.2)}
    race, field = played(curves, budget=300.0, target=0.4)
    best, wanted = best_of(race), -4 * math.log(1 - 0.8)
    assert best.name == "quick"
    assert best.seconds == pytest.approx(wanted, rel=0.05)
    assert field.clock.spent < 3 * QUALITY_SPREAD.factor * wanted + 5
    assert field.clock.spent > 2 * QUALITY_SPREAD.factor * wanted


def test_a_target_of_a_loss_is_decided_sooner():
    """Its times differ less between seeds. From 2 to 0.5, 0.8 is reached by exp(-t/pace) = 0.2."""

    def falling(pace):
        return [(t / 4, 0.5 + 1.5 * math.exp(-t / 4 / pace)) for t in range(1200)]

    curves = {"slow": falling(40), "quick": falling(4)}
    race, field = played(curves, budget=300.0, target=0.8, minimize=True)
    wanted = -4 * math.log(0.2)
    assert best_of(race).seconds == pytest.approx(wanted, rel=0.05)
    assert field.clock.spent < 2 * LOSS_SPREAD.factor * wanted + 5


def test_polls_for_the_target_make_no_curves(monkeypatch):
    """An arm of a thousand lines has its curve made about once a turn, not once a line."""
    made: list[int] = []
    whole = Timeline.points

    def counted(self, **more):
        made.append(1)
        return whole(self, **more)

    monkeypatch.setattr(Timeline, "points", counted)
    curves = {name: rising(40, every=0.01) for name in "ab"}
    race, field = played(curves, budget=100.0, target=0.4)
    lines = sum(len(each.readings) for each in race.arms)
    assert lines > 5000
    assert len(made) < 10 * len(field.turns)


@pytest.mark.parametrize("target", [None, 0.4])
@pytest.mark.parametrize("is_over", [True, False])
def test_one_arm_alone_is_recommended_only_if_others_have_lost(target, is_over):
    """To a target: when the race is over, the other one has run for longer than the first took."""
    question = Question(Metric("value"), 100.0, target=target)
    field = Field(question.metric, Path(), make_clock(100.0))
    alone, silent = (
        CommandArm(Command(name, ""), field, number) for number, name in enumerate("ab")
    )
    alone.status = silent.status = Status.RACING
    alone.timeline.readings += [Reading(at, 0.1 * at, at) for at in (1.0, 2.0, 3.0, 4.0, 5.0)]
    answer = make_answer(question, [alone, silent], 50.0, is_over=is_over)
    assert (answer.best is not None) == (is_over and target is not None)
    assert answer.results[0].status == ("alone" if answer.best is None else "recommended")
    said = "Nothing was compared: only a printed its metric in 50 s. Give a larger --budget."
    assert (headline(answer) == said) == (answer.best is None)
    silent.status, silent.reason = Status.FAILED, "it crashed"
    assert make_answer(question, [alone, silent], 50.0, is_over=is_over).best is not None


def test_a_sooner_arm_that_ends_lower_is_no_tie():
    """2 % below the best, which is later by far."""
    race, _ = played({"late": rising(10, 0.5), "soon": rising(2, 0.49)}, budget=160.0)
    answer = answer_of(race)
    assert best_of(race).name == "late"
    assert [each.status for each in answer.results] == ["recommended", "lower"]
    assert not answer.ties
    said = headline(answer)
    assert "soon gets there sooner, in " in said
    assert "but peaks at 0.49." in said


def test_no_arm_may_reach_the_target():
    race, _ = played({"a": rising(4), "b": rising(5)}, budget=80.0, target=0.9)
    answer = answer_of(race)
    assert answer.best is None
    assert [each.status for each in answer.results] == ["slower", "slower"]


def test_arms_that_end_by_themselves_stay_in_the_answer():
    curves = {"a": rising(1, end=6), "b": rising(1.5, end=6), "c": rising(3, end=6)}
    race, field = played(curves, budget=1000.0)
    assert 12 <= field.clock.spent <= 18
    assert best_of(race).name == "a"
    assert {each.status for each in race.arms} == {Status.ENDED}


def test_finalists_are_repeated():
    """To the level that decides; seeds share a curve here, so the ratio stays."""
    curves = {"a": rising(1), "b": rising(6, top=0.501)}
    race, _ = played(curves, budget=200.0, seeds=2)
    answer = answer_of(race)
    repeats = {each.command.name: each for each in race.arms if each.seed}
    assert set(repeats) == {"a", "b"}
    assert repeats["a"].running_seconds == pytest.approx(3, abs=0.6)
    other = next(each for each in answer.results if each.name == "b")
    assert other.behind is not None
    assert other.behind.seeds == 2
    assert other.behind.value == pytest.approx(6, rel=0.1)


def test_the_next_one_may_have_left():
    """Whoever reaches the level next is named, though it trained no further."""
    curves = {"a": rising(1), "b": rising(8), "c": rising(2)}
    race, _ = played(curves, budget=200.0)
    entries = {each.command.name: each for each in race.arms}
    entries["c"].status, entries["c"].reason = Status.LEFT, "no time for all"
    text = headline(answer_of(race))
    assert text.startswith("Use a: ")
    assert "Next is c, in" in text


def test_an_arm_without_a_line_in_time_has_no_place():
    late = [(500.0, 0.9)]
    race, _ = played({"a": rising(2), "late": late}, budget=60.0)
    answer = answer_of(race)
    assert {each.name: each.status for each in answer.results}["late"] == "left"
    with pytest.raises(CheckFailedError, match="No arm printed"):
        played({"x": late, "y": late}, budget=20.0)


FAR_APART = [(3.0 * n, 0.1 * n) for n in range(1, 9)]


@settings(deadline=None, max_examples=25)
@example(FAR_APART)
@given(
    st.lists(
        st.tuples(st.floats(2.0, 80.0), st.floats(0.1, 0.9)), min_size=3, max_size=12, unique=True
    )
)
def test_nobody_leaves_after_the_last_rung(laws):
    """Who trained as long as any is told apart by what it reached."""
    curves = {f"arm {n}": rising(pace, top) for n, (pace, top) in enumerate(laws)}
    race, _ = played(curves, budget=20.0 * len(curves))
    longest = max(each.seconds for each in race.firsts)
    left = [each.seconds for each in race.firsts if each.status is Status.LEFT]
    assert left or laws != FAR_APART
    assert max(left, default=0.0) < 0.9 * longest
