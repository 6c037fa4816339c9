"""The clock of an arm: start-up, the program's own clock, pauses, resumed processes."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncfbench.racing.arms import Arm
from ncfbench.racing.clock import Reading, Timeline, own_seconds, startup_of
from ncfbench.racing.entry import Entry


def lines(startup: float, pace: float, steps: list[int], *, numbered: bool = True) -> list[Reading]:
    """Lines of a program that trains at a steady pace after its start-up."""
    return [
        Reading(startup + pace * step, float(step), step if numbered else None) for step in steps
    ]


@given(
    st.floats(0, 50),
    st.floats(0.01, 10),
    st.lists(st.integers(1, 1000), min_size=2, max_size=30, unique=True).map(sorted),
)
def test_startup_is_what_steps_do_not_take(startup: float, pace: float, steps: list[int]) -> None:
    piece = lines(startup, pace, steps)
    assert startup_of(piece) == pytest.approx(startup, abs=1e-6)
    points = Timeline([piece]).points()
    assert [at for at, _ in points] == pytest.approx([pace * step for step in steps], abs=1e-6)
    counted = Timeline([piece]).points(count_startup=True)
    assert [at for at, _ in counted] == pytest.approx([each.running for each in piece])


def test_lines_without_a_step_count_as_evenly_spaced() -> None:
    piece = lines(3.0, 2.0, [1, 2, 3, 4], numbered=False)
    assert startup_of(piece) == pytest.approx(3.0)
    assert startup_of(piece[:1]) == 0


def test_one_line_alone_takes_the_startup_of_others() -> None:
    """But not more than the time to that line; two lines tell."""
    piece = lines(3.0, 2.0, [1, 2], numbered=False)
    assert startup_of(piece[:1], expected=2.0) == 2.0
    assert startup_of(piece[:1], expected=9.0) == 5.0
    assert startup_of(piece, expected=9.0) == 3.0
    assert Timeline([[]], 4.0).startup_seconds == 4.0
    assert Timeline([piece[:1]], 4.0).points() == [(1.0, 1.0)]


def test_a_line_before_training_ends_the_startup() -> None:
    assert startup_of(lines(4.0, 1.0, [0, 5])) == 4.0
    assert startup_of(lines(4.0, 1.0, [0])) == 4.0


def test_the_own_clock_leaves_evaluation_out() -> None:
    """Training takes 2 s between lines, evaluation 1 s, start-up 5 s."""
    piece = [Reading(5 + 3.0 * n, n, None, 2.0 * n) for n in (1, 2, 3)]
    assert Timeline([piece]).points() == [(2, 1), (4, 2), (6, 3)]
    assert startup_of(piece) == pytest.approx(6)
    assert Timeline([piece]).points(count_startup=True) == [(8, 1), (10, 2), (12, 3)]


@pytest.mark.parametrize("inside", [True, False])
def test_a_pause_is_taken_out_of_the_own_clock(inside: bool) -> None:
    """A pause of 20 s before the second line, in training or in evaluation."""
    pause = 20.0
    piece = [
        Reading(3, 0.1, None, 2.0, paused=0.0),
        Reading(6, 0.2, None, 4.0 + pause * inside, paused=pause),
        Reading(9, 0.3, None, 6.0 + pause * inside, paused=pause),
    ]
    assert own_seconds(piece) == [2, 4, 6]


@pytest.mark.parametrize("numbered", [True, False])
def test_a_resumed_process_goes_on(numbered: bool) -> None:
    """It starts for 3 s, from the checkpoint at step 2, and makes step 3 again."""
    again = [Reading(3.0 + 1.0 * n, 10.0 + n, n + 2 if numbered else None) for n in (1, 2, 3)]
    timeline = Timeline([lines(5.0, 1.0, [1, 2, 3], numbered=numbered), again])
    clocks = [at for at, _ in timeline.points()]
    assert clocks == pytest.approx([1, 2, 3, 4, 5] if numbered else [1, 2, 3, 4, 5, 6])
    values = [value for _, value in timeline.points()]
    assert values == ([1, 2, 11, 12, 13] if numbered else [1, 2, 3, 11, 12, 13])
    assert timeline.startups == pytest.approx([5, 3])
    entry = Entry(Arm("a", "a"), timeline=timeline, before=8.0, running_seconds=6.0)
    assert entry.trained_seconds == pytest.approx(3 + 3)


@pytest.mark.parametrize(
    ("before", "running", "own", "wanted"),
    [
        (5.0, [7, 13], [6, 12], [5, 11, 17]),
        (30.0, [21, 22, 23], [31, 32, 33], [30, 31, 32, 33]),
        (30.0, [2, 3], [33, 34], [30, 33, 34]),
    ],
    ids=["begun at 0", "kept", "kept some time after the last line"],
)
@pytest.mark.parametrize("pause", [0.0, 40.0])
def test_the_own_clock_of_a_resumed_process(
    before: float, running: list[float], own: list[float], wanted: list[float], pause: float
) -> None:
    """It is right with a pause within it, before the first line, too."""
    again = [
        Reading(ran, 0.2, None, pause + at, pause) for ran, at in zip(running, own, strict=True)
    ]
    timeline = Timeline([[Reading(before + 1, 0.1, None, before)], again])
    assert [at for at, _ in timeline.points()] == wanted
    assert timeline.startups[1] == max(running[0] - (wanted[1] - before), 0)


@pytest.mark.parametrize(
    ("own", "wanted"),
    [([17, 22, 27], [12, 17, 22, 27]), ([5, 10, 15], [12, 17, 22, 27])],
    ids=["kept", "begun at 0"],
)
def test_steps_tell_whether_a_clock_was_kept(own: list[float], wanted: list[float]) -> None:
    """A process that starts for longer than the one before trained: a step takes a second."""
    again = [Reading(20.0 + 5 * n, 0.2, 12 + 5 * n, at) for n, at in enumerate(own, 1)]
    timeline = Timeline([[Reading(15.0, 0.1, 12, 12.0)], again])
    assert [at for at, _ in timeline.points()] == wanted
    assert timeline.startups[1] == 20


class Growing(list[Reading]):
    """Lines to which a thread adds one whenever they have been read."""

    def __iter__(self) -> Iterator[Reading]:
        yield from super().__iter__()
        last = self[-1]
        self.append(last._replace(running=last.running + 1))


@pytest.mark.parametrize("seconds", [None, 1.0])
def test_lines_may_come_while_a_curve_is_made(seconds: float | None) -> None:
    piece = Growing([Reading(1.0, 0.1, None, seconds), Reading(2.0, 0.2, None, seconds)])
    timeline = Timeline([piece])
    assert len(timeline.points()) >= 2
    assert timeline.curve(is_less_better=False) is not None


def test_curves_fall_whatever_is_better() -> None:
    timeline = Timeline([lines(0.0, 1.0, [1, 2])])
    for is_less_better, losses in ((True, [1, 2]), (False, [-1, -2])):
        curve = timeline.curve(is_less_better=is_less_better)
        assert curve is not None
        assert curve.losses == losses
    assert Timeline().curve(is_less_better=True) is None


def test_the_lowest_value_is_kept_as_lines_come() -> None:
    """Also of lines that come in a resumed process; a recall falls with its sign changed."""
    timeline = Timeline([[]])
    assert timeline.lowest(is_less_better=True) == math.inf
    timeline.pieces[0] += [Reading(1, 5.0), Reading(2, 3.0)]
    assert timeline.lowest(is_less_better=True) == 3
    timeline.pieces[0].append(Reading(3, 4.0))
    assert timeline.lowest(is_less_better=True) == 3
    timeline.pieces.append([Reading(1, 2.0)])
    assert timeline.lowest(is_less_better=True) == 2
    assert Timeline(timeline.pieces).lowest(is_less_better=False) == -5
