"""Other programs at work: counted, named, warned of, and recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from trained import Said

from ncfbench.config import Locations, complete
from ncfbench.timing import contention
from ncfbench.timing.contention import OtherPrograms, Program
from ncfbench.training import run as training

MEASURE = OtherPrograms._used
"""The method itself, which other tests do without."""


@pytest.fixture
def busy() -> Iterator[int]:
    """A program that this process did not start: the shell between both has ended."""
    loop = "timeout --foreground 20 sh -c 'while :; do :; done' >/dev/null 2>&1 & echo $!"
    shell = subprocess.Popen(["sh", "-c", loop], stdout=subprocess.PIPE, start_new_session=True)
    yield int(shell.communicate()[0])
    # All of its session: timeout alone may end before it has learned to end the loop.
    os.killpg(shell.pid, signal.SIGKILL)


@pytest.mark.long
def test_a_busy_program_is_measured_and_named(busy: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OtherPrograms, "_used", MEASURE)
    others = OtherPrograms()
    deadline = time.monotonic() + 15
    use = 0.0
    while use <= 0.05 and time.monotonic() < deadline:  # it has not begun, or waits for a core
        time.sleep(0.3)
        used = others._used()
        loops = [program for program in used if "while :" in contention._command(program)]
        use = max((used[program] for program in loops), default=0.0)
    assert use > 0.05


def test_programs_of_others_on_own_cores_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not this process, what it started, and those on other cores or without times."""
    own, times = os.getpid(), SimpleNamespace(user=3.0, system=0.5)

    def process(pid: int, ppid: int, cores: list[int], **more: Any) -> SimpleNamespace:
        info = {"ppid": ppid, "cpu_times": times, "create_time": 7.0, "cpu_affinity": cores}
        return SimpleNamespace(pid=pid, info=info | more)

    ours = [process(own + 2, own + 1, [0]), process(own + 1, own, [0]), process(own, 1, [0])]
    others = [process(1, 0, [0, 1]), process(2, 1, [1]), process(3, 1, [0], cpu_times=None)]
    monkeypatch.setattr(contention.psutil, "process_iter", lambda names: [*ours, *others])
    monkeypatch.setattr(contention, "_own_cores", lambda: {0})
    assert contention._seconds() == {Program(1, 7.0): 3.5}
    assert contention.available_cores() == 1
    monkeypatch.setattr(contention, "_own_cores", lambda: None)
    assert [*contention._seconds()] == [Program(1, 7.0), Program(2, 7.0)]


def test_use_is_seconds_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.5 and 0.5 s in 2 s, 0.2 of a new program; none of one that was only hidden before."""
    old, idle, new, hidden = (Program(number, float(number)) for number in (1, 2, 101, 3))
    seconds = iter([{old: 10.0, idle: 4.0}, {old: 11.5, idle: 4.5, new: 0.2, hidden: 50.0}, {}])
    monkeypatch.setattr(OtherPrograms, "_used", MEASURE)
    monkeypatch.setattr(contention, "_seconds", lambda: next(seconds))
    monkeypatch.setattr(contention.time, "perf_counter", iter([0.0, 0.0, 2.0, 2.0, 9.0]).__next__)
    monkeypatch.setattr(contention.time, "time", lambda: 100.0)
    others = OtherPrograms()
    assert others._used() == {old: 0.75, idle: 0.25, new: 0.1}
    assert others._used() == {}


def test_only_a_busy_machine_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores: from 0.4 on; programs below 0.1 are not named."""
    used: dict[Program, float] = {Program(7, 0.0): 0.35, Program(8, 0.0): 0.04}
    monkeypatch.setattr(OtherPrograms, "_used", lambda self: used)
    monkeypatch.setattr(contention, "available_cores", lambda: 2)
    monkeypatch.setattr(contention, "_command", lambda program: f"program {program.pid}")
    said: list[str] = []
    OtherPrograms().warn(said.append)
    assert said == []
    used[Program(9, 0.0)] = 0.9
    OtherPrograms().warn(said.append)
    OtherPrograms().warn(said.append, is_over=True)
    use = "1.3 of 2 cores: program 9 (process 9: 0.9), program 7 (process 7: 0.3)"
    assert said[0].startswith(f"Warning: other programs use {use}. Times taken beside them are")
    assert said[1] == f"Warning: meanwhile other programs used {use}. The times are too long."


def test_a_run_warns_and_records(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after training; one that is finished already takes no times."""
    monkeypatch.setattr(OtherPrograms, "_used", lambda self: {Program(1, 0.0): 64.0})
    said = Said()
    small = {"dataset": "tiny", "encoder": "mf", "batch_size": 64, "epochs": 1, "dimension": 8}
    for _ in range(2):
        record = training.run(complete(small), Locations(data_dir, tmp_path), progress=said)
    assert record.environment["other_programs_cores"] == 64
    del said.texts[0]  # nothing can be ranked
    assert [text.split(" of ")[0] for text in said.texts[:2]] == [
        "Warning: other programs use 64.0",
        "Warning: meanwhile other programs used 64.0",
    ]
    assert [text.split(":")[0] for text in said.texts[2:]] == ["Already finished"]
