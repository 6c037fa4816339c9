"""Processes of one run that die, fail or are interrupted: the others end, the run resumes."""

import pytest
from support.processes import CHILD, assert_same_curve, ends, start, train

from ncfbench.runs import folder as runs

LONG = pytest.mark.long


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
    found = ends(start(data_dir, tmp_path / "cut", count, script=script, **settings))
    assert all(code != 0 for code, _, _ in found)
    record = train(data_dir, tmp_path / "cut", devices=count, **settings)
    assert record.timing[-1]["first_iteration"] > 0
    assert len({row["session"] for row in record.ledger}) == 2
    assert_same_curve(record, train(data_dir, tmp_path / "whole", **settings))


@pytest.mark.long
def test_interrupt_of_one_process_stops_all(data_dir, tmp_path):
    """At the next probe; the first saves, and the run can be resumed."""
    script = AT_STOP.format(victim=1, stop=2, deed="os.kill(os.getpid(), signal.SIGINT)")
    found = ends(start(data_dir, tmp_path, 2, script=script, epochs=4000))
    assert [code for code, _, _ in found] == [130, 130], found[0][2]
    assert "To continue it: " in found[0][2]
    (folder,) = tmp_path.iterdir()
    record = runs.read(folder)
    assert record.summary["status"] == "interrupted"
    assert list(folder.glob(f"checkpoints/{record.summary['iterations']}.npz"))
