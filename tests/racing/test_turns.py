"""Races of recorded curves: who leaves, who is the soonest, and in which time."""

import math
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from played_field import played_race

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


def played(curves, budget, startup=0.0, name="value", minimize=False, **asked):
    question = Question(Metric(name, minimize=minimize), budget, **asked)
    race, field = played_race(curves, question, startup)
    race.run()
    return race, field, answer_of(race)


def answer_of(race):
    return make_answer(race.question, race.arms, race.clock.spent, is_over=True)


def statuses(answer):
    return {result.name: result.status for result in answer.results}


def rising(pace, top=0.5, end=100.0, every=0.5, begin=0.0):
    """A recall that comes to rest at a top, by the pace; or a loss, where it begins above."""
    times = [every * n for n in range(1, int(end / every) + 1)]
    return [(t, begin + (top - begin) * (1 - math.exp(-t / pace))) for t in times]


def full_times(curves):
    """Seconds of whole curves to 95 % of the best, of those within 1.5 % of it; by brute force."""
    tops = {name: max(value for _, value in points) for name, points in curves.items()}
    best = max(tops.values())
    return {
        name: min(at for at, value in points if value >= 0.95 * best)
        for name, points in curves.items()
        if tops[name] >= 0.985 * best
    }


def test_the_soonest_wins_within_a_tenth_of_the_time():
    curves = {f"arm {n}": rising(2.0 * 1.5**n, 0.5 if n % 3 else 0.4) for n in range(10)}
    _, field, answer = played(curves, budget=100.0)
    times = full_times(curves)
    assert times[answer.best.name] <= 1.1 * min(times.values())
    assert field.clock.spent <= 100


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(0.5, 20), st.floats(0.1, 1)), min_size=2, max_size=8))
def test_races_keep_their_budget_and_their_books(laws):
    curves = {f"arm {n}": rising(*law, end=60) for n, law in enumerate(laws)}
    race, field, answer = played(curves, budget=60.0)
    assert field.clock.spent <= 60
    assert sum(seconds for _, seconds in field.turns) == pytest.approx(field.clock.spent)
    assert sum(arm.running_seconds for arm in race.arms) == pytest.approx(field.clock.spent)
    assert answer.best is not None
    assert statuses(answer).keys() == curves.keys()
    for result in answer.results:
        assert bool(result.arm.reason) == (result.arm.status is not Status.RACING)


def test_arms_take_turns(monkeypatch):
    monkeypatch.setattr(races, "TURN_SECONDS", 2.0)
    race, field, _ = played({"a": rising(9), "b": rising(9)}, budget=60.0)
    names = [name for name, _ in field.turns[2:]]
    assert max(seconds for _, seconds in field.turns) == pytest.approx(2)
    assert names[:8] in (["a", "b"] * 4, ["b", "a"] * 4)
    trained = [arm.seconds for arm in race.arms]
    assert max(trained) - min(trained) <= 2.001


def test_startup_is_not_counted():
    """Until the second line of an arm, its start-up is taken to be that of the other one. Where all
    have one line, a second one of one arm tells that all have trained little.
    """
    _, _, answer = played({"a": rising(4), "b": rising(8)}, budget=100.0, startup=10.0)
    assert answer.best.name == "a"
    assert answer.best.arm.timeline.startup_seconds == pytest.approx(10)
    race, _, _ = played({"a": rising(4), "b": rising(4, every=12)}, budget=70.0, startup=10.0)
    a, b = race.arms
    assert len(b.readings) == 1
    assert b.timeline.startup_seconds == pytest.approx(10)
    assert b.seconds == pytest.approx(a.seconds, abs=5)
    race, _, _ = played({name: rising(4.0) for name in "abc"}, budget=42.0, startup=10.0)
    assert min(len(arm.readings) for arm in race.arms) >= 2


@pytest.mark.parametrize(
    ("name", "begin", "top", "start", "level"),
    [
        ("loss", 2.0, 0.5, 2.0, 2 - 0.95 * 1.5),
        ("recall", 0.0, 0.8, 0.0, 0.95 * 0.8),
        ("val_auc", 0.5, 0.8, 0.5, 0.5 + 0.95 * 0.3),
        ("AUC", 50.0, 52.0, 50.0, 50.0 + 0.95 * 2.0),
        ("accuracy", 0.90, 0.92, 0.90, 0.90 + 0.95 * 0.02),
        ("auc", 0.40, 0.45, 0.40, 0.40 + 0.95 * 0.05),
    ],
)
def test_quality_is_measured_from_chance(name, begin, top, start, level):
    """Or from where arms began, if all began near the best, and of losses. The quick one comes to
    0.3 % less of the way, and is there by exp(-t/pace) = 0.0471.
    """
    near = begin + 0.997 * (top - begin)
    quick, slow = rising(3, near, every=0.1, begin=begin), rising(9, top, every=0.1, begin=begin)
    curves, is_loss = {"quick": [(0.0, begin), *quick], "slow": [(0.0, begin), *slow]}, begin > top
    _, _, answer = played(curves, budget=150, name=name, minimize=is_loss)
    assert (answer.best.name, answer.best.is_at_most) == ("quick", False)
    assert answer.value(answer.start) == pytest.approx(start, rel=0.01)
    assert answer.value(answer.level) == pytest.approx(level, rel=0.005)
    assert answer.best.seconds == pytest.approx(-3 * math.log(1 - 0.95 / 0.997), rel=0.03)
    words = "that of chance" if start in (0.5, 50) else "where arms began"
    assert (words in headline(answer)) == (start > 0)


@pytest.mark.parametrize(
    ("begin", "top", "target", "spread"),
    [(0.0, 0.5, 0.4, QUALITY_SPREAD), (2.0, 0.5, 0.8, LOSS_SPREAD)],
)
def test_a_target_ends_the_race_once_it_is_decided(begin, top, target, spread):
    """It is 0.8 of the way. The times of a loss differ less between seeds."""
    curves = {"slow": rising(40, top, begin=begin), "quick": rising(4, top, begin=begin)}
    curves["low"] = rising(1, begin + 0.4 * (top - begin), begin=begin)
    more = {"budget": 300.0, "target": target, "minimize": begin > top}
    _, field, answer = played(curves, **more)
    wanted = -4 * math.log(1 - 0.8)
    assert answer.best.name == "quick"
    assert answer.best.seconds == pytest.approx(wanted, rel=0.05)
    assert 2 * spread.factor * wanted < field.clock.spent < 3 * spread.factor * wanted + 5


def test_polls_for_the_target_make_no_curves(monkeypatch):
    """An arm of a thousand lines has its curve made about once a turn, not once a line."""
    calls, whole = [], Timeline.points
    monkeypatch.setattr(Timeline, "points", lambda timeline: calls.append(1) or whole(timeline))
    curves = {name: rising(40, every=0.01) for name in "ab"}
    race, field, _ = played(curves, budget=100.0, target=0.4)
    assert sum(len(arm.readings) for arm in race.arms) > 5000
    assert len(calls) < 10 * len(field.turns)


@pytest.mark.parametrize("target", [None, 0.4])
@pytest.mark.parametrize("is_over", [True, False])
def test_one_arm_alone_is_recommended_only_if_others_have_lost(target, is_over):
    """To a target: when the race is over, the other one has run for longer than the first took."""
    question = Question(Metric("value"), 100.0, target=target)
    field = Field(question.metric, Path(), make_clock(100.0))
    alone, silent = (CommandArm(Command(name, ""), field, n) for n, name in enumerate("ab"))
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
    curves = {"late": rising(10, 0.5), "soon": rising(2, 0.49)}
    _, _, answer = played(curves, budget=160.0)
    assert statuses(answer) == {"late": "recommended", "soon": "lower"}
    assert "soon gets there sooner, in " in headline(answer)
    assert "but peaks at 0.49." in headline(answer)


def test_finalists_are_repeated():
    curves = {"a": rising(1), "b": rising(6, top=0.501)}
    race, _, answer = played(curves, budget=200.0, seeds=2)
    repeats = {arm.command.name: arm for arm in race.arms if arm.seed}
    assert repeats.keys() == {"a", "b"}
    assert repeats["a"].running_seconds == pytest.approx(3, abs=0.6)
    (behind,) = (result.behind for result in answer.results if result.name == "b")
    assert (behind.seeds, behind.value) == (2, pytest.approx(6, rel=0.1))


def test_the_next_one_may_have_left():
    """Whoever reaches the level next is named, though it trained no further."""
    race, _, _ = played({"a": rising(1), "b": rising(8), "c": rising(2)}, budget=200.0)
    race.arms[2].status, race.arms[2].reason = Status.LEFT, "no time for all"
    text = headline(answer_of(race))
    assert text.startswith("Use a: ")
    assert "Next is c, in" in text


def test_an_arm_without_a_line_in_time_has_no_place():
    _, _, answer = played({"a": rising(2), "late": [(500.0, 0.9)]}, budget=60.0)
    assert statuses(answer)["late"] == "left"


FAR_APART = [(3.0 * n, 0.1 * n) for n in range(1, 9)]
LAWS = st.tuples(st.floats(2.0, 80.0), st.floats(0.1, 0.9))


@settings(max_examples=25)
@example(FAR_APART)
@given(st.lists(LAWS, min_size=3, max_size=12, unique=True))
def test_nobody_leaves_after_the_last_rung(laws):
    """Who trained as long as any is told apart by what it reached."""
    curves = {f"arm {n}": rising(pace, top) for n, (pace, top) in enumerate(laws)}
    race, _, _ = played(curves, budget=20.0 * len(curves))
    longest = max(arm.seconds for arm in race.firsts)
    left = [arm.seconds for arm in race.firsts if arm.status is Status.LEFT]
    assert left or laws != FAR_APART
    assert max(left, default=0.0) < 0.9 * longest
