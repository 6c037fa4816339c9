"""Processes of arms and whole races that are paused, asked to end, or killed: all of it long, since
it waits for the machine.
"""

import os
import random
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import psutil
import pytest
from support.processes import ENDLESS, RACE_LIMIT_SECONDS, V

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
    commands = []

    def start(command):
        log = tmp_path / f"{len(commands)}.log"
        commands.append(Process(command, Metric.of(V[1]), log, threading.Event()))
        return commands[-1]

    yield start
    for process in commands:
        process.end()
        assert not process.is_alive


def python(text):
    return f"{sys.executable} -S -c {shlex.quote(text)}"


def statuses(known):
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


def test_children_in_sessions_of_their_own_pause_and_end(started):
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


def test_a_line_is_read_soon_after_it_is_printed(started):
    """Both clocks are the system's. Beside other work some are late, half are not."""
    text = """import time
for _ in range(20):
    print(f'v={time.perf_counter()}', flush=True)
    time.sleep(0.02)"""
    done = started(python(text))
    wait(lambda: not done.is_alive)
    late = sorted(done._since + line.running - line.value for line in done.readings)
    assert len(late) == 20
    assert late[0] >= 0
    assert late[10] < 0.05
    assert not is_buffered(done.readings)


# Whole races of two endless arms, in a process of their own


@pytest.fixture
def live(tmp_path):
    def start(*words, **more):
        command = [sys.executable, "-m", "ncfbench", "race", *V, "--try", "pace=1,2", *words]
        command.append(f"T={tmp_path} && {ENDLESS}")
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, **pipes, **more)

    return start


def lines_of(folder):
    return [log.read_text().count("v=") for log in folder.glob("runs/race/*/*.log")]


def arms_of(folder):
    """Return the processes that name a folder, with the first words of their command lines."""
    arms = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words, is_gone = process.cmdline(), process.status() == psutil.STATUS_ZOMBIE
            if any(f"T={folder}" in word for word in words) and not is_gone:
                arms.append((words[0], process))
    return arms


def test_a_suspended_race_suspends_its_arms(tmp_path, live):
    """By Ctrl-Z; continued, it goes on until Ctrl-C, and answers."""
    process = live("--budget", "60s")
    wait(lambda: len([*filter(None, lines_of(tmp_path))]) == 2)
    process.send_signal(signal.SIGTSTP)
    wait(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    lines = lines_of(tmp_path)
    shells = [arm for name, arm in arms_of(tmp_path) if name == "/bin/sh"]
    assert len(shells) >= 2, "a shell that is about to start a program counts twice"
    time.sleep(0.3)
    assert psutil.STATUS_STOPPED in statuses(shells) <= STILL
    assert lines_of(tmp_path) == lines
    process.send_signal(signal.SIGCONT)
    wait(lambda: lines_of(tmp_path) != lines)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=RACE_LIMIT_SECONDS)
    assert process.returncode == 130, err
    assert "use pace=" in out.lower()
    assert arms_of(tmp_path) == []


@pytest.mark.parametrize("kill", range(8))
def test_random_kills_leave_nothing(tmp_path, live, kill):
    """Of the race, its terminal's process group, an arm, or a keeper, at a random moment."""
    draw = random.Random(kill)
    process = live("--budget", "20s", start_new_session=True)
    wait(lambda: bool(lines_of(tmp_path)))
    time.sleep(draw.uniform(0, 2))
    keepers, arms = [], []
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.Error):
            (keepers if "keeper.py" in " ".join(child.cmdline()) else arms).append(child)
    if kill % 4 == 0:
        process.kill()
    elif kill % 4 == 1:
        os.killpg(process.pid, draw.choice([signal.SIGKILL, signal.SIGHUP]))
    else:
        with suppress(psutil.Error, IndexError):
            draw.choice(keepers if kill % 4 == 2 else arms).kill()
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=RACE_LIMIT_SECONDS)
    wait(lambda: arms_of(tmp_path) == [])
