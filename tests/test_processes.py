"""Several real processes on this machine: one curve, one folder, and one end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import joined_step
import numpy as np
import pytest
from processes import compiled_once
from test_parallel import SMALL, assert_same_curve, on_devices, train
from typer.testing import CliRunner

from ncfbench import runs
from ncfbench.cli import app
from ncfbench.datasets import synthetic
from ncfbench.datasets.store import load
from ncfbench.errors import UsageError
from ncfbench.processes import Cluster
from ncfbench.simulation import FLAG

SCRIPT = "from ncfbench import cli, openrun; openrun.CHECKPOINT_SECONDS = 0.0; cli.main()"
SLOW = """
import time
from ncfbench import cli, records
write = records.Records.write
def slow(self, status, iteration):
    write(self, status, iteration)
    if status == "finished":
        time.sleep(8)
records.Records.write = slow
cli.main()
"""
"""A first process that takes long to write its tables at the end."""
TELLING = """
import sys
import jax
from ncfbench import cli
initialize = jax.distributed.initialize
def telling(*arguments, **more):
    print("joining", file=sys.stderr, flush=True)
    initialize(*arguments, **more)
jax.distributed.initialize = telling
cli.main()
"""
"""A process that says when it begins to wait for the others."""


SLURM_PORTS = range(61440, 65536)
"""One of which JAX chooses by the number of the job."""


def free_port(*, slurm: bool = False) -> int:
    offset = os.getpid() % len(SLURM_PORTS)
    for port in [*SLURM_PORTS[offset:], *SLURM_PORTS[:offset]] if slurm else [0]:
        try:
            with socket.create_server(("127.0.0.1", port)) as server:
                return int(server.getsockname()[1])
        except OSError:
            continue
    raise AssertionError("no port is free")


def start(
    data_dir: Path,
    runs_dir: Path,
    count: int,
    *flags: str,
    of: int | None = None,
    slurm: bool = False,
    last: tuple[str, ...] = (),
    script: str = SCRIPT,
    **more: Any,
) -> list[subprocess.Popen[str]]:
    """``count`` of ``of`` processes of one run, which the program gives their devices; the last has flags of its own.

    With ``slurm`` they are told of each other by nothing but the variables that Slurm gives the tasks of a job.
    """
    settings = SMALL | {"sampler": "strat-ns", "encoder": "mf"} | more
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    variables = os.environ | compiled_once() | {"XLA_FLAGS": os.environ["XLA_FLAGS"].split(FLAG)[0]}
    port = free_port(slurm=slurm)
    found = []
    for index in range(count):
        if slurm:
            # JAX makes the coordinator's port from the number of the job.
            job = {
                "JOB_ID": port - SLURM_PORTS.start,
                "STEP_NODELIST": "localhost",
                "STEP_NUM_NODES": 1,
                "NTASKS": count,
                "PROCID": index,
                "LOCALID": index,
            }
            told, own = ["auto"], {f"SLURM_{name}": str(value) for name, value in job.items()}
        else:
            told, own = [f"127.0.0.1:{port}", "--processes", str(of or count), "--process-id", str(index)], {}
        command = [
            sys.executable, "-c", script, "run", *words, "--data-dir", str(data_dir), "--runs-dir", str(runs_dir),
            "--coordinator", *told, *flags, *(last if index == count - 1 else ()),
        ]  # fmt: skip
        found.append(
            subprocess.Popen(command, env=variables | own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    return found


def ends(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Exit code, standard output and standard error of each."""
    found = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=120)
            found.append((process.returncode, out, err))
    finally:
        for process in processes:
            process.kill()
    return found


LONG: Any = pytest.mark.long


@pytest.mark.parametrize(
    ("count", "more"),
    [
        (2, {"sampler": "strat-ns"}),
        pytest.param(4, {"sampler": "strat-ns"}, marks=LONG),
        pytest.param(2, {"sampler": "iid", "encoder": "cnn"}, marks=LONG),
        pytest.param(2, {"sampler": "mixed-ns", "share": "local", "devices": 2}, marks=LONG),
    ],
)
def test_several_processes_make_the_curve_of_one(data_dir: Path, tmp_path: Path, count: int, more: dict[str, Any]) -> None:
    """Tables by row over all of them; only the first writes, on disk and on standard output. Slurm tells two of each other."""
    # Where nobody counts them, all that there are: one in each process, for a CPU shows itself as one.
    devices = more.get("devices", 4)
    flags = ("--shard-tables", "--json", *(() if "devices" in more else ("--devices", "4")))
    more = {name: value for name, value in more.items() if name != "devices"}
    processes = start(data_dir, tmp_path / "all", count, *flags, slurm=count == 2, epochs=2, **more)
    found = ends(processes)
    assert [code for code, _, _ in found] == [0] * count, found[0][2]
    assert [bool(out) for _, out, _ in found] == [True] + [False] * (count - 1)
    assert json.loads(found[0][1])["config"]["devices"] == devices
    (folder,) = (tmp_path / "all").iterdir()
    record = runs.read(folder)
    alone = {"encoder": "mf"} | more | ({"devices": devices} if "share" in more else {})
    assert_same_curve(record, train(data_dir, tmp_path / "one", **alone))
    mesh = record.environment["mesh"]
    assert (mesh["processes"], mesh["devices"], mesh["shard_tables"], mesh["simulated"]) == (count, devices, True, True)


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=LONG)])
def test_several_processes_compute_the_step_of_one_device(
    tmp_path: Path, count: int, tiny_options: synthetic.Options
) -> None:
    """Loss and gradient of every sampler, and every link once an epoch. Users and items that no number of devices divides."""
    synthetic.prepare(tmp_path, joined_step.DATASET, replace(tiny_options, users=121, items=401), say=lambda text: None)
    variables = os.environ | compiled_once() | {"XLA_FLAGS": os.environ["XLA_FLAGS"].split(FLAG)[0]}
    place = f"127.0.0.1:{free_port()}"
    words = [[joined_step.__file__, place, str(count), str(index), str(tmp_path), str(tmp_path)] for index in range(count)]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    found = ends([subprocess.Popen([sys.executable, *each], env=variables, **pipes) for each in words])
    assert [code for code, _, _ in found] == [0] * count, found[0][2]
    results = [np.load(tmp_path / f"{index}.npz") for index in range(count)]
    graph = (odd := load(tmp_path, joined_step.DATASET)).graph
    for case in joined_step.CASES:
        value, gradient, _ = on_devices(odd, joined_step.settings(case, shard_tables=False))
        for each in results:
            assert each[f"{case}/loss"] == pytest.approx(value, rel=1e-5)
            assert np.linalg.norm(each[f"{case}/gradient"] - gradient) < 1e-5 * np.linalg.norm(gradient)
        pairs = np.concatenate([each[f"{case}/links"] for each in results], axis=2).transpose(0, 2, 1).reshape(-1, 2)
        epoch = sorted(map(tuple, pairs[: graph.n_links].tolist()))
        assert epoch == sorted(zip(graph.link_user.tolist(), graph.link_item.tolist(), strict=True))


@pytest.mark.parametrize("victim", [1, pytest.param(0, marks=pytest.mark.long)])
def test_a_killed_process_ends_the_others_and_the_run_goes_on(data_dir: Path, tmp_path: Path, victim: int) -> None:
    """Four processes of a device each; then two of them, and the uninterrupted curve."""
    processes = start(data_dir, tmp_path / "cut", 4, "--peer-timeout", "20", epochs=12, probe_every=1000)
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
    again = ends(start(data_dir, tmp_path / "cut", 2, "--resume", epochs=12, probe_every=1000))
    assert [code for code, _, _ in again] == [0, 0], again[0][2]
    (folder,) = (tmp_path / "cut").iterdir()
    record = runs.read(folder)
    assert record.timing[-1]["first_iteration"] > 0
    assert len({row["session"] for row in record.ledger}) == 2
    assert_same_curve(record, train(data_dir, tmp_path / "whole", encoder="mf", epochs=12, probe_every=1000))


@pytest.mark.long
@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_falls_silent_ends_the_others(data_dir: Path, tmp_path: Path, victim: int) -> None:
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


@pytest.mark.long
def test_processes_that_would_train_something_else_are_refused(data_dir: Path, tmp_path: Path) -> None:
    """Before a folder is made."""
    found = ends(start(data_dir, tmp_path, 2, last=("--seed", "1")))
    assert [code for code, _, _ in found] == [2, 2], found[0][2]
    assert "Process 1 has other settings" in found[0][2]
    assert not list(tmp_path.iterdir())


def test_all_wait_for_a_first_process_that_writes_for_longer_than_the_timeout(data_dir: Path, tmp_path: Path) -> None:
    found = ends(start(data_dir, tmp_path, 2, "--peer-timeout", "3", script=SLOW, epochs=1))
    assert [code for code, _, _ in found] == [0, 0], found[1][2]
    (folder,) = tmp_path.iterdir()
    assert runs.read(folder).summary["status"] == "finished"


def test_ctrl_c_is_heard_while_the_others_are_waited_for(data_dir: Path, tmp_path: Path) -> None:
    """The first waits for a second that does not come, and the second for a first: both in C++, where Python hears nothing."""
    for index in (0, 1):
        own = ("--process-id", str(index))
        (process,) = start(data_dir, tmp_path, 1, "--peer-timeout", "100", of=2, last=own, script=TELLING)
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
        start(data_dir, tmp_path, 1, "--peer-timeout", "2", of=2, last=("--process-id", str(index)))[0] for index in (0, 1)
    ]
    for code, out, err in ends(waiting):
        assert code == 8
        assert "Not all of the 2 processes have come to 127.0.0.1:" in err
        assert "within 2 s" in err
        assert not out
    assert not list(tmp_path.iterdir())
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("here",), "neither HOST:PORT nor auto"),
        (("here:5", 0), "at least 1"),
        (("here:5", 2, 2), "between 0 and"),
        (("auto", None, None, 0.0), "above 0 seconds"),
    ],
)
def test_clusters_that_cannot_be(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Cluster(*arguments)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--coordinator", "127.0.0.1:1", "--trace", "t"), "--trace is for one process"),
        (("--coordinator", "127.0.0.1:1", "--recommend", "5"), "--recommend is for one process"),
        (("--processes", "2"), "belong to --coordinator"),
        (("--coordinator", "127.0.0.1:1", "--share", "local", "--sampler", "neg", "--devices", "2"), "shares no negatives"),
    ],
)
def test_what_cannot_be_is_refused_before_joining(words: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(app, ["run", *words])
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
