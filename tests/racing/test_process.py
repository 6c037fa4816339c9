"""Processes of arms: paused, continued, read, and ended with all that they started."""

import os
import shlex
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from support.processes import RACE_LIMIT_SECONDS, wait

from ncfbench.errors import UsageError
from ncfbench.racing import process as processes
from ncfbench.racing.metric import Metric
from ncfbench.racing.process import Process, require_pausing
from ncfbench.racing.summary import is_buffered

TICKING = "n=0; while :; do n=$((n+1)); echo v=$n; sleep 0.01; done"


@pytest.fixture
def started(tmp_path):
    """Starts a command; at the end nothing of it is left."""
    made: list[Process] = []

    def start(command, metric="v=([0-9.]+)"):
        log, news = tmp_path / f"{len(made)}.log", threading.Event()
        made.append(Process(command, Metric.of(metric), log, news))
        return made[-1]

    yield start
    for each in made:
        each.end()
        assert not each.is_alive


def python(text):
    return f"{sys.executable} -S -c {shlex.quote(text)}"


def tree(process):
    return process._descendants()


def stand_still(processes):
    """Return whether all are stopped or gone; one that waits for a stopped child to begin its
    program stands still too.
    """
    found = set()
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            found.add(each.status())
    return found <= {psutil.STATUS_STOPPED, psutil.STATUS_DISK_SLEEP, psutil.STATUS_ZOMBIE}


def test_lines_are_read_and_the_code_is_known(started):
    done = started("echo hello; echo v=1; printf 'bar 10%%\\rv=2\\n' >&2; printf v=3; exit 5")
    wait(lambda: not done.is_alive)
    assert [each.value for each in done.readings] == [1, 2, 3]
    assert (done.code, [*done.last_lines]) == (5, ["hello", "bar 10%"])


def test_lines_are_those_that_a_terminal_shows(started):
    done = started(r"printf '\033[32mv=\033[1m0.5\033[0m\n\033[31mfoo\033[0m\nv=1\b2.\n'")
    wait(lambda: not done.is_alive)
    assert [each.value for each in done.readings] == [0.5, 2]
    assert [*done.last_lines] == ["foo"]


@pytest.mark.parametrize(
    ("values", "read", "diverged"),
    [("nan 1 2", [1, 2], False), ("nan inf 1", [1], True), ("1 nan 2", [1, 2], True)],
)
def test_a_first_value_may_be_none(started, values, read, diverged):
    """An expression of digits knows nan too."""
    done = started(f"for n in {values}; do echo v=$n; done")
    wait(lambda: not done.is_alive)
    assert [each.value for each in done.readings] == read
    assert (done.diverged is not None) == diverged


def test_shared_memory_counts_once(started):
    """64 MiB that eight forked workers share, as loaders of data do."""
    text = """import os, time
held = bytearray(os.urandom(1 << 20)) * 64
for _ in range(8):
    if not os.fork():
        time.sleep(60)
print('v=1', flush=True)
time.sleep(60)"""
    running = started(python(text))
    wait(lambda: bool(running.readings))
    assert 64 << 20 < running.memory_bytes() < 160 << 20


def test_a_paused_process_stands_still(started, monkeypatch):
    """By a clock of the test's own: it runs for 3 s, pauses for 5 s, and runs for 10 s."""
    now = [100.0]
    clock = SimpleNamespace(perf_counter=lambda: now[0], monotonic=time.monotonic)
    monkeypatch.setattr(processes, "time", clock)
    running = started(TICKING)
    wait(lambda: len(running.readings) >= 3)
    now[0] += 3
    running.pause()
    assert running.running_seconds == 3
    wait(lambda: stand_still(tree(running)))
    now[0] += 5
    assert running.running_seconds == 3
    running.resume()
    now[0] += 10
    assert running.running_seconds == 13
    count = len(running.readings)
    wait(lambda: len(running.readings) > count + 2)
    assert running.readings[-1].running == 13


def test_children_in_sessions_of_their_own_pause_and_end(started):
    """One that begins a session, and one that is orphaned as a daemon is."""
    running = started(f"setsid sh -c '{TICKING}' & (setsid sleep 60 &) ; sleep 60")
    wait(lambda: bool(running.readings) and len(tree(running)) >= 4)
    own = tree(running)
    running.pause()
    wait(lambda: stand_still(own))
    running.resume()
    count = len(running.readings)
    wait(lambda: len(running.readings) > count)
    running.end()
    wait(lambda: not any(each.is_running() for each in own))


@pytest.mark.parametrize("paused", [True, False])
def test_a_killed_keeper_leaves_nothing(started, paused):
    running = started(python("import os\nos.fork()\nos.write(1, b'v=1\\n')\nwhile True: pass"))
    wait(lambda: len(running.readings) == 2)
    running.pause()
    if not paused:
        running.resume()
    own = tree(running)
    running._keeper.kill()
    wait(lambda: not running.is_alive)
    wait(lambda: not any(each.is_running() for each in own))
    assert running.code is None


def test_what_is_left_behind_at_the_end_is_ended(started):
    done = started("sleep 60 & echo v=1")
    wait(lambda: not done.is_alive)
    assert done.code == 0
    assert tree(done) == []


def test_a_killed_arm_is_known(started):
    running = started(TICKING)
    wait(lambda: bool(running.readings))
    os.killpg(running.group, signal.SIGKILL)
    wait(lambda: not running.is_alive)
    assert running.code == -signal.SIGKILL


def test_a_process_can_save_when_it_is_asked_to_end(started):
    running = started("trap 'echo v=9 1; exit 0' TERM; echo v=1; while :; do sleep 0.01; done")
    wait(lambda: bool(running.readings))
    running.pause()
    running.ask_to_end()
    running.end(time.monotonic() + RACE_LIMIT_SECONDS)
    assert Path(running._log.name).read_text().endswith("v=9 1\n")
    assert [each.value for each in running.readings] == [1], "others end beside it"
    assert running.code == 0


@pytest.mark.long
def test_a_line_is_read_soon_after_it_is_printed(started):
    """Both clocks are the system's. Beside other work some are late, half are not."""
    text = """import time
for _ in range(20):
    print(f'v={time.perf_counter()}', flush=True)
    time.sleep(0.005)"""
    done = started(python(text))
    wait(lambda: not done.is_alive)
    late = sorted(done._since + each.running - each.value for each in done.readings)
    assert len(late) == 20
    assert late[0] >= 0
    assert late[10] < 0.05
    assert not is_buffered(done.readings)


def test_output_that_is_held_back_is_noticed(started):
    done = started("printf 'v=1\\nv=2\\nv=3\\n'")
    wait(lambda: not done.is_alive)
    assert is_buffered(done.readings)


def test_a_choice_of_metrics_is_passed_on(started):
    done = started("""echo '{"a": 1, "b": 2}'""", None)  # type: ignore[arg-type]
    wait(lambda: done.error is not None)
    assert "--metric a" in str(done.error)


def test_a_system_without_pauses_is_refused(monkeypatch):
    require_pausing()
    monkeypatch.delattr(signal, "SIGSTOP")
    with pytest.raises(UsageError, match="cannot pause"):
        require_pausing()
