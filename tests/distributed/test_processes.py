"""Several real processes on this machine train as one: same curve, one folder, and one end."""

import json
import socket

import pytest
from support.processes import CHILD, assert_same_curve, ends, start, train

from ncfbench.distributed.process_group import require_free_port
from ncfbench.errors import UsageError
from ncfbench.runs import folder as runs

LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("count", "flags", "more"),
    [
        (2, ["--devices=4"], {"epochs": 1}),
        pytest.param(4, ["--devices=4"], {}, marks=LONG),
        pytest.param(2, [], {"sampler": "mixed-ns"}, marks=LONG),
    ],
)
def test_curve_is_that_of_one_process(data_dir, tmp_path, count, flags, more):
    """Only the first process writes. JAX detects two through Slurm."""
    # Without --devices a run takes all: one in each process, for a CPU shows itself as one.
    devices, more = 4 if flags else count, {"epochs": 2} | more
    processes = start(data_dir, tmp_path / "all", count, "--json", *flags, slurm=count == 2, **more)
    results = ends(processes)
    assert [code for code, _, _ in results] == [0] * count, results[0][2]
    assert [bool(out) for _, out, _ in results] == [True] + [False] * (count - 1)
    assert json.loads(results[0][1])["config"]["devices"] == devices
    (folder,) = (tmp_path / "all").iterdir()
    record = runs.read(folder)
    assert_same_curve(record, train(data_dir, tmp_path / "one", encoder="mf", **more))
    mesh = record.environment["mesh"]
    assert (mesh["processes"], mesh["devices"], mesh["simulated"]) == (count, devices, True)


@LONG
def test_processes_with_other_settings_are_refused(data_dir, tmp_path):
    """Before a folder is made."""
    results = ends(start(data_dir, tmp_path, 2, last=("--seed", "1")))
    assert [code for code, _, _ in results] == [2, 2], results[0][2]
    assert "Process 1 has other settings" in results[0][2]
    assert not list(tmp_path.iterdir())


def test_a_taken_port_is_refused():
    """Before JAX takes it, which would violate memory."""
    refused = pytest.raises(UsageError, match="--coordinator: cannot listen on port")
    with socket.create_server(("127.0.0.1", 0)) as server, refused:
        require_free_port(server.getsockname()[1])


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
def test_killed_process_ends_the_others(data_dir, tmp_path, victim, count):
    """The run is resumed by one process, and its curve is that of an uninterrupted one."""
    settings = {"encoder": "mf", "epochs": 3, "probe_every": 1000}
    script = AT_STOP.format(victim=victim, stop=3, deed="os.kill(os.getpid(), signal.SIGKILL)")
    results = ends(start(data_dir, tmp_path / "cut", count, script=script, **settings))
    assert all(code != 0 for code, _, _ in results)
    record = train(data_dir, tmp_path / "cut", devices=count, **settings)
    assert record.timing[-1]["first_iteration"] > 0
    assert len({row["session"] for row in record.ledger}) == 2
    assert_same_curve(record, train(data_dir, tmp_path / "whole", **settings))


@LONG
def test_interrupt_of_one_process_stops_all(data_dir, tmp_path):
    """At the next probe; the first saves, and the run can be resumed."""
    script = AT_STOP.format(victim=1, stop=2, deed="os.kill(os.getpid(), signal.SIGINT)")
    results = ends(start(data_dir, tmp_path, 2, script=script, epochs=4000))
    assert [code for code, _, _ in results] == [130, 130], results[0][2]
    assert "To continue it: " in results[0][2]
    (folder,) = tmp_path.iterdir()
    record = runs.read(folder)
    assert record.summary["status"] == "interrupted"
    assert list(folder.glob(f"checkpoints/{record.summary['iterations']}.npz"))
