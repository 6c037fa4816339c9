"""The clock of an arm: start-up, and lines that come meanwhile."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncfbench.racing.clock import Reading, Timeline, startup_of


def lines(startup, pace, steps, *, numbered=True):
    """Lines of a program that trains at a steady pace after its start-up."""
    return [
        Reading(startup + pace * step, float(step), step if numbered else None) for step in steps
    ]


@given(
    st.floats(0, 50),
    st.floats(0.01, 10),
    st.lists(st.integers(1, 1000), min_size=2, max_size=30, unique=True).map(sorted),
)
def test_startup_is_what_steps_do_not_take(startup, pace, steps):
    piece = lines(startup, pace, steps)
    assert startup_of(piece) == pytest.approx(startup, abs=1e-6)
    points = Timeline(piece).points()
    assert [at for at, _ in points] == pytest.approx([pace * step for step in steps], abs=1e-6)


def test_lines_without_a_step_count_as_evenly_spaced():
    piece = lines(3.0, 2.0, [1, 2, 3, 4], numbered=False)
    assert startup_of(piece) == pytest.approx(3.0)
    assert startup_of(piece[:1]) == 0


def test_one_line_alone_takes_the_startup_of_others():
    """But not more than the time to that line; two lines tell."""
    piece = lines(3.0, 2.0, [1, 2], numbered=False)
    assert startup_of(piece[:1], expected=2.0) == 2.0
    assert startup_of(piece[:1], expected=9.0) == 5.0
    assert startup_of(piece, expected=9.0) == 3.0
    assert Timeline([], 4.0).startup_seconds == 4.0
    assert Timeline(piece[:1], 4.0).points() == [(1.0, 1.0)]


def test_a_line_before_training_ends_the_startup():
    assert startup_of(lines(4.0, 1.0, [0, 5])) == 4.0
    assert startup_of(lines(4.0, 1.0, [0])) == 4.0


class Growing(list[Reading]):
    """Lines to which a thread adds one whenever they have been read."""

    def __iter__(self):
        yield from super().__iter__()
        last = self[-1]
        self.append(last._replace(running=last.running + 1))


def test_lines_may_come_while_a_curve_is_made():
    piece = Growing([Reading(1.0, 0.1), Reading(2.0, 0.2)])
    timeline = Timeline(piece)
    assert len(timeline.points()) >= 2
    assert timeline.curve(is_less_better=False) is not None


def test_curves_fall_whatever_is_better():
    timeline = Timeline(lines(0.0, 1.0, [1, 2]))
    for is_less_better, losses in ((True, [1, 2]), (False, [-1, -2])):
        curve = timeline.curve(is_less_better=is_less_better)
        assert curve is not None
        assert curve.losses == losses
    assert Timeline().curve(is_less_better=True) is None


def test_the_lowest_value_is_kept_as_lines_come():
    """A recall falls with its sign changed."""
    timeline = Timeline()
    assert timeline.lowest(is_less_better=True) == math.inf
    timeline.readings += [Reading(1, 5.0), Reading(2, 3.0)]
    assert timeline.lowest(is_less_better=True) == 3
    timeline.readings.append(Reading(3, 4.0))
    assert timeline.lowest(is_less_better=True) == 3
    timeline.readings.append(Reading(4, 2.0))
    assert timeline.lowest(is_less_better=True) == 2
    assert Timeline(timeline.readings).lowest(is_less_better=False) == -5
