"""Processes of arms that end by themselves, and the clock of their lines: start-up, and lines of
several series.
"""

import itertools
import math
import random
import signal
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.processes import RACE_LIMIT_SECONDS

from ncfbench.errors import UsageError
from ncfbench.racing.clock import Reading, Timeline, doubt, startup_of
from ncfbench.racing.metric import Metric
from ncfbench.racing.process import Process, require_pausing
from ncfbench.racing.summary import is_buffered


def run_to_its_end(folder, command, metric="v=([0-9.]+)"):
    process = Process(command, Metric.of(metric), folder / "log", threading.Event())
    process._reader.join(RACE_LIMIT_SECONDS)
    assert (process.is_alive, process._descendants()) == (False, [])
    process.end()
    return process


TERMINAL = r"printf '\033[32mv=\033[1m0.5\033[0m\n\033[31mfoo\033[0m\nv=1\b2.\n'"


@pytest.mark.parametrize(
    ("command", "values", "code", "last"),
    [
        (
            "echo hello; echo v=1; printf 'bar 10%%\\rv=2\\n' >&2; printf v=3; exit 5",
            *([1, 2, 3], 5, ["hello", "bar 10%"]),
        ),
        (TERMINAL, [0.5, 2], 0, ["foo"]),
        ("echo v=1; kill -9 $$", [1], -9, []),
        ("sleep 60 & echo v=1", [1], 0, []),
    ],
    ids=["lines", "terminal", "killed", "left behind"],
)
def test_lines_are_read_and_nothing_is_left(tmp_path, command, values, code, last):
    done = run_to_its_end(tmp_path, command)
    assert [line.value for line in done.readings] == values
    assert (done.code, [*done.last_lines]) == (code, last)


@pytest.mark.parametrize(
    ("values", "read", "diverged"),
    [("nan 1 2", [1, 2], False), ("nan inf 1", [1], True), ("1 nan 2", [1, 2], True)],
)
def test_a_first_value_may_be_none(tmp_path, values, read, diverged):
    done = run_to_its_end(tmp_path, f"for n in {values}; do echo v=$n; done")
    assert [line.value for line in done.readings] == read
    assert (done.diverged is not None) == diverged


def test_output_that_is_held_back_is_noticed(tmp_path):
    """Python, whose arms print at once unless they are told otherwise."""
    assert is_buffered(run_to_its_end(tmp_path, "printf 'v=1\\nv=2\\nv=3\\n'").readings)
    text = f"{sys.executable} -S -c 'import sys; print(sys.stdout.write_through)'"
    assert [*run_to_its_end(tmp_path, text).last_lines] == ["True"]


def test_a_choice_of_metrics_is_passed_on(tmp_path):
    done = run_to_its_end(tmp_path, """echo '{"a": 1, "b": 2}'""", None)
    assert "--metric a" in str(done.error)


def test_a_process_can_save_when_it_is_asked_to_end(tmp_path):
    """Lines that it prints then do not count, since others end beside it."""
    begun, log = threading.Event(), tmp_path / "log"

    class Noted(Process):
        def _take(self, lines, now):
            super()._take(lines, now)
            begun.set()

    command = "trap 'echo v=9; exit 0' TERM; echo v=1; while :; do sleep 0.01; done"
    running = Noted(command, Metric.of("v=([0-9.]+)"), log, threading.Event())
    assert begun.wait(RACE_LIMIT_SECONDS)
    running.pause()
    running.ask_to_end()
    running.end(deadline=1e9)
    assert log.read_text().endswith("v=9\n")
    assert ([line.value for line in running.readings], running.code) == ([1], 0)


def test_a_system_without_pauses_is_refused(monkeypatch):
    require_pausing()
    monkeypatch.delattr(signal, "SIGSTOP")
    with pytest.raises(UsageError, match="cannot pause"):
        require_pausing()


# The clock of an arm


def lines(startup, pace, steps, *, numbered=True):
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


def test_startup_by_hand():
    """Lines without a step count as evenly spaced. One line alone takes the start-up of others, but
    not more than the time to it. A line before training ends the start-up.
    """
    piece = lines(3.0, 2.0, [1, 2, 3, 4], numbered=False)
    assert [startup_of(piece, 9.0), startup_of([])] == pytest.approx([3, 0])
    assert [startup_of(piece[:1], expected) for expected in (0.0, 2.0, 9.0)] == [0, 2, 5]
    assert [startup_of(lines(4.0, 1.0, steps)) for steps in ([0, 5], [0])] == [4, 4]
    assert Timeline([], 4.0).startup_seconds == 4.0
    assert Timeline(piece[:1], 4.0).points() == [(1.0, 1.0)]


class Growing(list):
    """Lines to which a thread adds one whenever they have been read."""

    def __iter__(self):
        yield from super().__iter__()
        self.append(self[-1]._replace(running=self[-1].running + 1))


def test_lines_may_come_while_a_curve_is_made():
    timeline = Timeline(Growing([Reading(1.0, 0.1), Reading(2.0, 0.2)]))
    assert len(timeline.points()) >= 2
    assert timeline.curve(is_less_better=False) is not None


def test_curves_fall_whatever_is_better():
    """The lowest value is kept as lines come; a recall falls with its sign changed."""
    timeline = Timeline(lines(0.0, 1.0, [1, 2]))
    for is_less_better, losses in ((True, [1, 2]), (False, [-1, -2])):
        assert timeline.curve(is_less_better=is_less_better).losses == losses
    timeline, lowest = Timeline(), []
    assert timeline.curve(is_less_better=True) is None
    for values in ([], [5, 3], [4], [2]):
        timeline.readings += [Reading(1, value) for value in values]
        lowest.append(timeline.lowest(is_less_better=True))
    assert lowest == [math.inf, 3, 3, 2]
    assert Timeline(timeline.readings).lowest(is_less_better=False) == -5


# Lines of training and validation, or of several processes, are no one series.


def taking_turns(*series, count=20):
    numbered = itertools.product(range(count), series)
    plain = [(Reading(float(at), value(n)), n) for at, (n, value) in enumerate(numbered)]
    return [line for line, _ in plain], [line._replace(step=n) for line, n in plain]


def recall(top, pace=8.0):
    return lambda n: top * (1 - math.exp(-(n + 1) / pace))


FALL, RISE, LOW = (lambda n: 2.3 * math.exp(-n / 8)), recall(0.9), recall(0.3)


@pytest.mark.parametrize(
    "series",
    [(RISE, LOW), (FALL, lambda n: FALL(n) + 1.0), (RISE, recall(0.6), LOW)],
    ids=["recalls", "losses", "three"],
)
def test_series_that_take_turns_are_noticed(series):
    reasons = [*map(doubt, taking_turns(*series))]
    assert reasons == ["values jump to and fro", "a step has several values"]


@pytest.mark.parametrize("between", [1, 2, 10, 18])
def test_validation_after_several_lines_of_training_is_noticed(between):
    """Under one name."""
    draw = random.Random(between)
    training = [lambda n: recall(0.8)(n) + draw.gauss(0, 0.01)] * between
    plain, _ = taking_turns(*training, recall(0.3))
    assert doubt(plain) == "values jump to and fro"


@pytest.mark.parametrize("seed", range(20))
def test_one_noisy_series_is_not_doubted(seed):
    """Rising, at rest, and with several lines of one step, which are no copies."""
    draw = random.Random(seed)
    for noise, count in ((0.0, 60), (0.02, 60), (0.2, 60), (0.02, 7)):
        noisy = [lambda n, noise=noise: recall(0.3)(n) + draw.gauss(0, noise)]
        plain, numbered = taking_turns(*noisy, count=count)
        assert doubt(plain) == doubt(numbered) == ""
        epochs = [line._replace(step=n // 5) for n, line in enumerate(plain)]
        assert doubt(epochs) == "" or noise == 0.2  # which is all that is left of it
