"""Several real processes on this machine train as one: same step, same curve, one folder."""

import json
import socket

import pytest
from support.cli import check, invoke
from support.processes import assert_same_curve, ends, start, train

from ncfbench.distributed.process_group import require_free_port
from ncfbench.errors import UsageError
from ncfbench.runs import folder as runs

LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("count", "more"),
    [
        (2, {"sampler": "strat-ns", "epochs": 1}),
        pytest.param(4, {"sampler": "strat-ns"}, marks=LONG),
        pytest.param(2, {"sampler": "iid", "encoder": "cnn"}, marks=LONG),
        pytest.param(2, {"sampler": "mixed-ns", "devices": 2}, marks=LONG),
    ],
)
def test_curve_is_that_of_one_process(data_dir, tmp_path, count, more):
    """Only the first process writes. JAX detects two through Slurm."""
    # Without --devices a run takes all: one in each process, for a CPU shows itself as one.
    devices = more.get("devices", 4)
    flags = ("--json", *(() if "devices" in more else ("--devices", "4")))
    more = {name: value for name, value in more.items() if name != "devices"}
    more = {"epochs": 2} | more
    processes = start(data_dir, tmp_path / "all", count, *flags, slurm=count == 2, **more)
    found = ends(processes)
    assert [code for code, _, _ in found] == [0] * count, found[0][2]
    assert [bool(out) for _, out, _ in found] == [True] + [False] * (count - 1)
    assert json.loads(found[0][1])["config"]["devices"] == devices
    (folder,) = (tmp_path / "all").iterdir()
    record = runs.read(folder)
    alone = {"encoder": "mf"} | more
    assert_same_curve(record, train(data_dir, tmp_path / "one", **alone))
    mesh = record.environment["mesh"]
    assert (mesh["processes"], mesh["devices"], mesh["simulated"]) == (count, devices, True)


@pytest.mark.long
def test_processes_with_other_settings_are_refused(data_dir, tmp_path):
    """Before a folder is made."""
    found = ends(start(data_dir, tmp_path, 2, last=("--seed", "1")))
    assert [code for code, _, _ in found] == [2, 2], found[0][2]
    assert "Process 1 has other settings" in found[0][2]
    assert not list(tmp_path.iterdir())


def test_a_taken_port_is_refused():
    """Before JAX takes it, which would violate memory."""
    refused = pytest.raises(UsageError, match="--coordinator: cannot listen on port")
    with socket.create_server(("127.0.0.1", 0)) as server, refused:
        require_free_port(server.getsockname()[1])


AT = "--coordinator 127.0.0.1:1"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"{AT} --processes 0", "at least 1"),
        (f"{AT} --processes 2 --process-id 2", "between 0 and"),
        ("--coordinator here", "neither HOST:PORT nor auto"),
        ("--processes 2", "belong to --coordinator"),
    ],
)
def test_impossible_options_leave_no_folder(data_dir, tmp_path, words, message):
    folders = "--data-dir", data_dir, "--runs-dir", tmp_path
    check(invoke("run", *words.split(), *folders), 2, message)
    assert not list(tmp_path.iterdir())
