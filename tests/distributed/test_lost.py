"""Processes of one run that die, hang, fail or are interrupted: the others end, the run resumes."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import psutil
import pytest
from devices import assert_same_curve, train
from jax.errors import JaxRuntimeError
from processes import CHILD, ends, start, wait_for

from ncfbench.distributed.process_group import peer_loss
from ncfbench.runs import folder as runs

LONG = pytest.mark.long
LOST = "Error: Lost another process of this run: "


AT_STOP = f"""{CHILD}
    import signal, time
    from ncfbench.distributed.process_group import ProcessGroup
    from ncfbench.errors import DataError
    agree, stops = ProcessGroup.any, 0
    def stop(self, *flags):
        global stops
        stops += len(flags) == 2
        if self.index == {{victim}} and stops == {{stop}}:
            {{deed}}
        return agree(self, *flags)
    ProcessGroup.any = stop
cli.main()
"""
"""A run of which one process does something at one of its stops, where all agree on two flags."""


@pytest.mark.parametrize(
    ("victim", "count"), [(1, 2), pytest.param(0, 2, marks=LONG), pytest.param(1, 4, marks=LONG)]
)
def test_killed_process_ends_the_others(
    data_dir: Path, tmp_path: Path, victim: int, count: int
) -> None:
    """The run is resumed by one process, and its curve is that of an uninterrupted one."""
    settings = {"encoder": "mf", "epochs": 3, "probe_every": 1000}
    deed = "os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)"
    script = AT_STOP.format(victim=victim, stop=3, deed=deed)
    found = ends(start(data_dir, tmp_path / "cut", count, script=script, **settings))
    assert found[victim][0] == -signal.SIGKILL, found[victim][2]
    for code, _, err in (end for index, end in enumerate(found) if index != victim):
        assert code == 8
        assert LOST in err
        assert "repeat the commands with --resume" in err
        assert "Traceback" not in err
        assert "stack trace" not in err
    record = train(data_dir, tmp_path / "cut", resume=True, **settings)
    assert record.timing[-1]["first_iteration"] > 0
    assert len({row["session"] for row in record.ledger}) == 2
    assert_same_curve(record, train(data_dir, tmp_path / "whole", **settings))


@pytest.mark.long
@pytest.mark.parametrize(
    ("victim", "cause"), [(0, "process 0 has ended"), (1, "process 1 stopped sending heartbeats")]
)
def test_stopped_process_ends_the_others(
    data_dir: Path, tmp_path: Path, victim: int, cause: str
) -> None:
    """Its connections stay; when it continues, it ends too."""
    processes = start(data_dir, tmp_path, 3, "--peer-timeout", "10", batch_size=60, epochs=4000)
    wait_for("*/curve.parquet", tmp_path, processes)
    (child,) = psutil.Process(processes[victim].pid).children()
    child.suspend()
    begin = time.monotonic()
    others = [process for index, process in enumerate(processes) if index != victim]
    for code, _, err in ends(others):
        assert code == 8
        assert LOST + cause in err
    assert time.monotonic() - begin < 10 + 30
    child.resume()
    ((code, _, _),) = ends([processes[victim]])
    assert code == 8


@pytest.mark.long
def test_interrupt_of_one_process_stops_all(data_dir: Path, tmp_path: Path) -> None:
    """At the next probe; the first saves, and the run can be resumed."""
    script = AT_STOP.format(victim=1, stop=2, deed="os.kill(os.getppid(), signal.SIGINT)")
    found = ends(start(data_dir, tmp_path, 2, script=script, epochs=4000))
    assert [code for code, _, _ in found] == [130, 130], found[0][2]
    assert "repeat the command with --resume" in found[0][2]
    (folder,) = tmp_path.iterdir()
    record = runs.read(folder)
    assert record.summary["status"] == "interrupted"
    assert list(folder.glob(f"checkpoints/{record.summary['iterations']}.npz"))


@pytest.mark.long
def test_second_interrupt_ends_one_at_once(data_dir: Path, tmp_path: Path) -> None:
    both = "(signal.SIGINT, signal.SIGTERM)"  # two of one kind may become one
    deed = f"for number in {both}: os.kill(os.getppid(), number); time.sleep(1)"
    script = AT_STOP.format(victim=1, stop=2, deed=deed)
    (code, _, err), (own, _, _) = ends(start(data_dir, tmp_path, 2, script=script, epochs=4000))
    assert (code, own) == (8, 130), err
    assert LOST in err
    assert "Traceback" not in err


def test_a_lonely_process_is_interrupted(data_dir: Path, tmp_path: Path) -> None:
    """While JAX waits in C++ for the others."""
    (lonely,) = start(data_dir, tmp_path, 1, of=2, last=("--process-id", "1"))
    assert lonely.stderr is not None
    said = next(line for line in lonely.stderr if not line.startswith("Warning: "))
    assert "Waiting for the 2 processes at 127.0.0.1:" in said
    lonely.send_signal(signal.SIGINT)
    ((code, out, err),) = ends([lonely])
    assert (code, out) == (130, "")
    assert err.splitlines()[-1].startswith("Interrupted. ")
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_a_lonely_process_ends_after_the_timeout(data_dir: Path, tmp_path: Path) -> None:
    last = ("--process-id", "1", "--peer-timeout", "2")
    ((code, out, err),) = ends(start(data_dir, tmp_path, 1, of=2, last=last))
    assert (code, out) == (8, "")
    assert "Error: Not all of the 2 processes at 127.0.0.1:" in err
    assert "within 2 s" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.parametrize(
    ("victim", "error", "code"),
    [(0, "DataError('the disk is full')", 3), (1, "ValueError('a mistake of ours')", 1)],
)
def test_failing_process_ends_the_others(
    data_dir: Path, tmp_path: Path, victim: int, error: str, code: int
) -> None:
    """It says why; the others say that they lost a process."""
    script = AT_STOP.format(victim=victim, stop=1, deed=f"raise {error}")
    found = ends(start(data_dir, tmp_path, 2, script=script, epochs=400))
    assert found[victim][0] == code
    assert error[error.index("(") + 2 : -2] in found[victim][2]
    other = found[1 - victim]
    assert other[0] == 8, other[2]
    assert LOST in other[2]
    assert "Traceback" not in other[2]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("UNKNOWN: Gloo AllGather failed: [a/pair.cc:5] Read error [::1]:9"), "Lost an"),
        (JaxRuntimeError("INTERNAL: NCCL operation failed: remote error"), "Lost another process"),
        (JaxRuntimeError("INTERNAL: ptxas exited"), "A computation of all processes failed: INT"),
        (JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), None),
        (ValueError("a mistake of ours"), None),
    ],
)
def test_errors_of_jax_become_losses(error: Exception, message: str | None) -> None:
    lost = peer_loss(error)
    assert (lost is None) == (message is None)
    if lost is not None and message is not None:
        assert str(lost).startswith(message)
        assert "pair.cc" not in str(lost)


SLOW = """
import time
from ncfbench import cli
from ncfbench.runs import recorder
write = recorder.Recorder.write
def slow(self, status, *arguments):
    write(self, status, *arguments)
    if status == "finished":
        time.sleep(25)
recorder.Recorder.write = slow
cli.main()
"""
"""A first process that takes long to write its tables at the end."""


@pytest.mark.long
def test_all_wait_for_a_slow_first_process(data_dir: Path, tmp_path: Path) -> None:
    """It writes for longer than the timeout."""
    found = ends(start(data_dir, tmp_path, 2, "--peer-timeout", "10", script=SLOW, epochs=1))
    assert [code for code, _, _ in found] == [0, 0], found[1][2]
    (folder,) = tmp_path.iterdir()
    assert runs.read(folder).summary["status"] == "finished"


LATE = """
import os, signal, time
import jax
from ncfbench import cli
shutdown = jax.distributed.shutdown
def late():
    if jax.process_index() == 1:
        {deed}
    shutdown()
jax.distributed.shutdown = late
cli.main()
"""
"""A second process that is lost or late when all is written."""


@pytest.mark.long
@pytest.mark.parametrize(
    "deed", ["os.kill(os.getpid(), signal.SIGKILL)", "time.sleep(25)"], ids=["lost", "late"]
)
def test_losses_after_the_last_write_are_harmless(
    data_dir: Path, tmp_path: Path, deed: str
) -> None:
    script = LATE.format(deed=deed)
    flags = ("--json", "--peer-timeout", "10")
    found = ends(start(data_dir, tmp_path, 2, *flags, script=script, epochs=1))
    assert [each[0] for each in found] == [0, 0], found[0][2]
    assert json.loads(found[0][1])["status"] == "finished"
