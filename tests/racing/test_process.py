"""Processes of arms that end by themselves: their lines, and how they ended."""

import signal
import sys
import threading

import pytest
from support.processes import RACE_LIMIT_SECONDS

from ncfbench.errors import UsageError
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
    """An expression of digits knows nan too."""
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
