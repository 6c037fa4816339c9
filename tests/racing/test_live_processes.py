"""Processes of arms and whole races that are paused, asked to end, or killed: all of it long, since
it waits for the machine.
"""

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from support.processes import ENDLESS, RACE_LIMIT_SECONDS, V, race

from ncfbench.racing import process as processes
from ncfbench.racing.metric import Metric
from ncfbench.racing.process import Process
from ncfbench.racing.summary import is_buffered

pytestmark = pytest.mark.long
TICKING = "n=0; while :; do n=$((n+1)); echo v=$n; sleep 0.01; done"


def wait(condition):
    deadline = time.monotonic() + RACE_LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.002)


@pytest.fixture
def started(tmp_path):
    """Starts a command; at the end nothing of it is left."""
    made = []

    def start(command):
        log = tmp_path / f"{len(made)}.log"
        made.append(Process(command, Metric.of(V[1]), log, threading.Event()))
        return made[-1]

    yield start
    for process in made:
        process.end()
        assert not process.is_alive


def python(text):
    return f"{sys.executable} -S -c {shlex.quote(text)}"


def statuses(known):
    """Return the statuses of those that are not gone."""
    result = set()
    for process in known:
        with suppress(psutil.NoSuchProcess):
            result.add(process.status())
    return result


STILL = {psutil.STATUS_STOPPED, psutil.STATUS_DISK_SLEEP, psutil.STATUS_ZOMBIE}
"""One that waits for a stopped child to begin its program stands still too."""


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
    wait(lambda: statuses(running._descendants()) <= STILL)
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
    wait(lambda: bool(running.readings) and len(running._descendants()) >= 4)
    known = running._descendants()
    running.pause()
    wait(lambda: statuses(known) <= STILL)
    running.resume()
    count = len(running.readings)
    wait(lambda: len(running.readings) > count)
    running.end()
    wait(lambda: not any(process.is_running() for process in known))


@pytest.mark.parametrize("paused", [True, False])
def test_a_killed_keeper_leaves_nothing(started, paused):
    running = started(python("import os\nos.fork()\nos.write(1, b'v=1\\n')\nwhile True: pass"))
    wait(lambda: len(running.readings) == 2)
    running.pause()
    if not paused:
        running.resume()
    known = running._descendants()
    running._keeper.kill()
    wait(lambda: not running.is_alive)
    wait(lambda: not any(process.is_running() for process in known))
    assert running.code is None


def test_a_process_can_save_when_it_is_asked_to_end(started):
    running = started("trap 'echo v=9 1; exit 0' TERM; echo v=1; while :; do sleep 0.01; done")
    wait(lambda: bool(running.readings))
    running.pause()
    running.ask_to_end()
    running.end(time.monotonic() + RACE_LIMIT_SECONDS)
    assert Path(running._log.name).read_text().endswith("v=9 1\n")
    assert [line.value for line in running.readings] == [1], "others end beside it"
    assert running.code == 0


def test_a_line_is_read_soon_after_it_is_printed(started):
    """Both clocks are the system's. Beside other work some are late, half are not."""
    text = """import time
for _ in range(20):
    print(f'v={time.perf_counter()}', flush=True)
    time.sleep(0.005)"""
    done = started(python(text))
    wait(lambda: not done.is_alive)
    late = sorted(done._since + line.running - line.value for line in done.readings)
    assert len(late) == 20
    assert late[0] >= 0
    assert late[10] < 0.05
    assert not is_buffered(done.readings)


class LiveRace:
    """A race of two endless arms, in a process whose command lines name its folder."""

    def __init__(self, folder, *words, **more):
        self.name, self.folder = f"T={folder}", folder
        self.words = [*V, "--try", "pace=1,2", *words, f"{self.name} && {ENDLESS}"]
        command = [sys.executable, "-m", "ncfbench", "race", *self.words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, **pipes, **more)

    @property
    def logs(self):
        return [log.read_text() for log in self.folder.glob("runs/race/*/*.log")]

    @property
    def lines(self):
        return sum(log.count("v=") for log in self.logs)

    def arms(self):
        """Return the processes whose command lines hold the name, with their first words."""
        result = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                words = process.cmdline()
                is_gone = process.status() == psutil.STATUS_ZOMBIE
                if any(self.name in word for word in words) and not is_gone:
                    result.append((words[0], process))
        return result

    def wait_for_both(self):
        wait(lambda: sum("v=" in text for text in self.logs) == 2)

    def end(self, number):
        self.process.send_signal(number)
        return self.process.communicate(timeout=RACE_LIMIT_SECONDS)


def test_an_interrupted_race_answers_and_leaves_nothing(tmp_path):
    live = LiveRace(tmp_path)
    live.wait_for_both()
    out, err = live.end(signal.SIGINT)
    assert live.process.returncode == 130, err
    assert "Use pace=" in out
    assert live.arms() == []


def test_a_suspended_race_suspends_its_arms(tmp_path):
    """By Ctrl-Z; continued, it goes on."""
    live = LiveRace(tmp_path, "--budget", "60s")
    live.wait_for_both()
    live.process.send_signal(signal.SIGTSTP)
    wait(lambda: psutil.Process(live.process.pid).status() == psutil.STATUS_STOPPED)
    lines = live.lines
    shells = [process for name, process in live.arms() if name == "/bin/sh"]
    assert len(shells) >= 2, "a shell that is about to start a program counts twice"
    time.sleep(0.3)
    assert psutil.STATUS_STOPPED in statuses(shells) <= STILL
    assert live.lines == lines
    live.process.send_signal(signal.SIGCONT)
    wait(lambda: live.lines > lines)
    live.end(signal.SIGINT)


def test_a_killed_race_leaves_nothing_but_its_answer(tmp_path):
    """That of the last rung. The same command begins again in its folder."""
    live = LiveRace(tmp_path, "--budget", "10s")
    wait(lambda: any(tmp_path.glob("runs/race/*/answer.json")))
    live.end(signal.SIGKILL)
    wait(lambda: live.arms() == [])
    (file,) = tmp_path.glob("runs/race/*/answer.json")
    answer = json.loads(file.read_text())
    assert (answer["recommended"], answer["is_over"]) == ("pace=1", False)
    assert race(*live.words)["folder"] == str(file.parent)


@pytest.mark.parametrize("kill", range(8))
def test_random_kills_leave_nothing(tmp_path, kill):
    """Of the race, its terminal's process group, an arm, or a keeper, at a random moment."""
    draw = random.Random(kill)
    live = LiveRace(tmp_path, "--budget", "20s", start_new_session=True)
    wait(lambda: bool(live.logs))
    time.sleep(draw.uniform(0, 2))
    keepers, arms = [], []
    for process in psutil.Process(live.process.pid).children(recursive=True):
        with suppress(psutil.Error):
            (keepers if "keeper.py" in " ".join(process.cmdline()) else arms).append(process)
    if kill % 4 == 0:
        live.end(signal.SIGKILL)
    elif kill % 4 == 1:
        os.killpg(live.process.pid, draw.choice([signal.SIGKILL, signal.SIGHUP]))
        live.process.communicate(timeout=RACE_LIMIT_SECONDS)
    else:
        with suppress(psutil.Error, IndexError):
            draw.choice(keepers if kill % 4 == 2 else arms).kill()
        live.end(signal.SIGINT)
    wait(lambda: live.arms() == [])
