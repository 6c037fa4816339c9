"""Processes of one run that die, hang, fail or are interrupted: the others end with a message, and
the run goes on.
"""

from __future__ import annotations

import json
import signal
import socket
import time
from pathlib import Path

import pytest
from devices import assert_same_curve, train
from processes import SLOW, TELLING, ends, start

from ncfbench.runs import folder as runs

LONG = pytest.mark.long


@pytest.mark.parametrize("victim", [1, pytest.param(0, marks=pytest.mark.long)])
def test_a_killed_process_ends_the_others_and_the_run_goes_on(
    data_dir: Path, tmp_path: Path, victim: int
) -> None:
    """Four processes of a device each; then two of two, tables by row over all of them, and the
    uninterrupted curve.
    """
    processes = start(
        data_dir, tmp_path / "cut", 4, "--peer-timeout", "20", epochs=12, probe_every=1000
    )
    while not list(tmp_path.glob("cut/*/checkpoints/[0-9]*")) and processes[0].poll() is None:
        time.sleep(0.005)
    begin = time.monotonic()
    processes[victim].kill()
    found = ends(processes)
    assert time.monotonic() - begin < 20
    assert found[victim][0] == -signal.SIGKILL, "the run was over before it was killed"
    for code, _, err in (end for index, end in enumerate(found) if index != victim):
        assert code == 8
        assert f"Error: Lost another process of this run: process {victim} has died" in err
        assert "repeat the commands with --resume" in err
    again = ("--resume", "--devices", "4", "--shard-tables")
    resumed = ends(start(data_dir, tmp_path / "cut", 2, *again, epochs=12, probe_every=1000))
    assert [code for code, _, _ in resumed] == [0, 0], resumed[0][2]
    (folder,) = (tmp_path / "cut").iterdir()
    record = runs.read(folder)
    assert record.timing[-1]["first_iteration"] > 0
    assert len({row["session"] for row in record.ledger}) == 2
    assert_same_curve(
        record, train(data_dir, tmp_path / "whole", encoder="mf", epochs=12, probe_every=1000)
    )


@pytest.mark.long
@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_falls_silent_ends_the_others(
    data_dir: Path, tmp_path: Path, victim: int
) -> None:
    """It is stopped, and its connections stay; when it goes on again, it ends too."""
    processes = start(data_dir, tmp_path, 3, "--peer-timeout", "5", batch_size=60, epochs=400)
    while not list(tmp_path.glob("*/curve.parquet")) and processes[0].poll() is None:
        time.sleep(0.005)
    begin = time.monotonic()
    processes[victim].send_signal(signal.SIGSTOP)
    others = [process for index, process in enumerate(processes) if index != victim]
    for code, _, err in ends(others):
        assert code == 8
        assert f"process {victim} has said nothing for 5 s" in err
    assert time.monotonic() - begin < 5 + 10
    processes[victim].send_signal(signal.SIGCONT)
    ((code, _, _),) = ends([processes[victim]])
    assert code in (8, -signal.SIGABRT)


@pytest.mark.long
def test_an_interruption_of_one_process_stops_all_together(data_dir: Path, tmp_path: Path) -> None:
    """At the next probe; the first saves, and the run goes on by itself."""
    processes = start(data_dir, tmp_path / "cut", 2, "--peer-timeout", "20", epochs=400)
    while not list(tmp_path.glob("cut/*/curve.parquet")) and processes[0].poll() is None:
        time.sleep(0.005)
    processes[1].send_signal(signal.SIGINT)
    found = ends(processes)
    assert [code for code, _, _ in found] == [130, 130], found[0][2]
    assert "repeat the command with --resume" in found[0][2]
    (folder,) = (tmp_path / "cut").iterdir()
    record = runs.read(folder)
    assert record.summary["status"] == "interrupted"
    assert list(folder.glob(f"checkpoints/{record.summary['iterations']}"))


def test_all_wait_for_a_first_process_that_writes_for_longer_than_the_timeout(
    data_dir: Path, tmp_path: Path
) -> None:
    found = ends(start(data_dir, tmp_path, 2, "--peer-timeout", "3", script=SLOW, epochs=1))
    assert [code for code, _, _ in found] == [0, 0], found[1][2]
    (folder,) = tmp_path.iterdir()
    assert runs.read(folder).summary["status"] == "finished"


def test_ctrl_c_is_heard_while_the_others_are_waited_for(data_dir: Path, tmp_path: Path) -> None:
    """The first waits for a second that does not come, and the second for a first: both in C++,
    where Python hears nothing.
    """
    for index in (0, 1):
        own = ("--process-id", str(index))
        (process,) = start(
            data_dir, tmp_path, 1, "--peer-timeout", "100", of=2, last=own, script=TELLING
        )
        assert process.stderr is not None
        assert process.stderr.readline() == "joining\n"
        time.sleep(0.5)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        ((code, _, err),) = ends([process])
        assert code == 130, err
        assert "Interrupted" in err
        assert time.monotonic() - begin < 20


def test_a_process_that_never_comes_is_waited_for_so_long(data_dir: Path, tmp_path: Path) -> None:
    """The second by the first, and the first by the second."""
    begin = time.monotonic()
    waiting = [
        start(
            data_dir, tmp_path, 1, "--peer-timeout", "2", of=2, last=("--process-id", str(index))
        )[0]
        for index in (0, 1)
    ]
    for code, out, err in ends(waiting):
        assert code == 8
        assert "Not all of the 2 processes have come to 127.0.0.1:" in err
        assert "within 2 s" in err
        assert not out
    assert not list(tmp_path.iterdir())
    assert time.monotonic() - begin < 60


FAILING = """
from ncfbench import cli
from ncfbench.distributed import process_group
from ncfbench.training import session
from ncfbench.errors import DataError
record = session.Session._record
def failing(self):
    record(self)
    if self._loop.iteration and process_group.ProcessGroup.current().index == {victim}:
        raise {error}
session.Session._record = failing
cli.main()
"""
"""A run of which one process fails at its second probe, while the others go on."""


@pytest.mark.parametrize(
    ("victim", "error", "code"),
    [
        (0, "DataError('the disk is full')", 3),
        pytest.param(1, "ValueError('a mistake of ours')", 1, marks=LONG),
    ],
)
def test_a_process_that_fails_ends_the_others_with_its_reason(
    data_dir: Path, tmp_path: Path, victim: int, error: str, code: int
) -> None:
    found = ends(
        start(data_dir, tmp_path, 2, script=FAILING.format(victim=victim, error=error), epochs=400)
    )
    assert found[victim][0] == code
    other = found[1 - victim]
    assert other[0] == 8, other[2]
    assert (
        f"Error: Lost another process of this run: process {victim} ended:"
        f" {error[error.index('(') + 2 : -2]}" in other[2]
    )
    assert "Traceback" not in other[2]


@pytest.mark.long
def test_a_second_ctrl_c_ends_one_at_once_and_the_others_with_a_message(
    data_dir: Path, tmp_path: Path
) -> None:
    processes = start(
        data_dir, tmp_path, 2, "--peer-timeout", "20", epochs=4000, probe_every=10_000
    )
    while not list(tmp_path.glob("*/environment.json")) and processes[0].poll() is None:
        time.sleep(0.005)
    time.sleep(3)
    for number in (signal.SIGINT, signal.SIGTERM):  # two of one kind would be one
        processes[1].send_signal(number)
    (code, _, err), (own, _, _) = ends(processes)
    assert (code, own) == (8, 130), err
    assert "process 1 ended: KeyboardInterrupt" in err
    assert "Traceback" not in err


LATE = """
import os, signal, time
from ncfbench import cli
from ncfbench.distributed import heartbeat
leave = heartbeat.Roll.leave
def late(self, failure=""):
    if self.index == 1:
        {deed}
    leave(self, failure)
heartbeat.Roll.leave = late
cli.main()
"""
"""A second process that is lost or late when all is written."""


@pytest.mark.parametrize(
    ("deed", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        pytest.param("time.sleep(12)", 0, marks=LONG),
    ],
)
def test_who_is_lost_when_all_is_written_takes_nothing_away(
    data_dir: Path, tmp_path: Path, deed: str, code: int
) -> None:
    found = ends(
        start(
            data_dir,
            tmp_path,
            2,
            "--json",
            "--peer-timeout",
            "4",
            script=LATE.format(deed=deed),
            epochs=1,
        )
    )
    assert [each[0] for each in found] == [0, code], found[0][2]
    assert json.loads(found[0][1])["status"] == "finished"


def test_a_port_that_is_in_use_is_said(data_dir: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        ((code, _, err),) = ends(
            start(data_dir, tmp_path, 1, of=2, last=("--coordinator", address))
        )
    assert code == 2
    assert "cannot be listened on" in err
