"""A run over several devices, simulated on a CPU, and over several real processes: the numbers of
one, one folder, and one end.
"""

import json
import socket

import pytest
from support.processes import CHILD, SMALL, assert_same_curve, check_devices, ends, start, train
from support.training import Said, Trial

from ncfbench.catalog import SAMPLERS
from ncfbench.distributed.process_group import require_free_port
from ncfbench.errors import UsageError
from ncfbench.runs import folder as runs

LONG = pytest.mark.long
CASES = [
    *({"sampler": name, "devices": 8} for name in SAMPLERS if name not in ("ns", "mixed-ns")),
    {"sampler": "ns", "encoder": "bow", "devices": 4, "item_block": 6},
    {"sampler": "strat-ns", "encoder": "bow", "devices": 2, "word_dimension": 100},
    {"sampler": "strat", "strata": "user", "devices": 4, "loss": "hinge"},
    # Slots are padded: 7 does not divide the items.
    {"sampler": "ns", "devices": 7, "batch_size": 63},
    {"sampler": "neg", "encoder": "bow", "devices": 8, "coupling": "regularised"},
    {"sampler": "neg", "encoder": "bow", "devices": 4, "optimizer": "row-adam"},
]


@pytest.mark.long_cases(r"(?!ns-bow|ns-7)")
@pytest.mark.parametrize("settings", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_loss_and_gradient_equal_one_device(tiny, settings):
    check_devices(tiny, SMALL | {"encoder": "mf"} | settings)


@pytest.mark.parametrize(
    ("devices", "small"), [(2, {"encoder": "mf", "epochs": 1}), pytest.param(4, {}, marks=LONG)]
)
def test_a_run_continues_on_its_devices(data_dir, tmp_path, devices, small):
    """Interrupted at an iteration: the curve of one device, in one folder."""
    whole = train(data_dir, tmp_path / "whole", **small)
    more = small | {"devices": devices}
    with pytest.raises(KeyboardInterrupt):
        train(data_dir, tmp_path / "cut", progress=Said(5), **more)
    record = train(data_dir, tmp_path / "cut", **more)
    assert len(list((tmp_path / "cut").iterdir())) == 1
    assert_same_curve(record, whole)
    assert record.environment["key"] != whole.environment["key"], "its times are others"
    mesh = record.environment["mesh"]
    assert (mesh["devices"], mesh["simulated"]) == (devices, True)


def test_a_compiled_step_divides_the_work(tiny):
    """Each device encodes a part of the items and scores a part of the rows."""
    settings = SMALL | {"sampler": "ns", "encoder": "cnn", "batch_size": 64}
    flops = []
    for devices in (1, 4):
        trial = Trial(tiny, settings | {"devices": devices})
        layout = trial.trainer.layout
        batch = layout.put(next(trial.sampler.batches(0, 64)))
        content = layout.replicate(trial.content)
        compiled = trial.trainer.trace(trial.state, batch, content).lower().compile()
        flops.append(compiled.cost_analysis()["flops"])
    assert flops[1] < 0.5 * flops[0]


# Several processes


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
import signal
from ncfbench.distributed.process_group import ProcessGroup
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


@LONG
@pytest.mark.parametrize(("victim", "count"), [(1, 2), (0, 2), (1, 4)])
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
