"""The arms of a race of commands, and the field that they share."""

import os
import signal
import time

import pytest
from support.processes import RACE_LIMIT_SECONDS, V

from ncfbench.racing import arm as arms
from ncfbench.racing.arm import CommandArm, Field
from ncfbench.racing.commands import Command
from ncfbench.racing.engine import Clock, Status
from ncfbench.racing.metric import Metric

pytestmark = pytest.mark.usefixtures("quick")


def test_no_time_passes_while_a_race_is_suspended(tmp_path, monkeypatch):
    """Neither on the race's clock nor on the arm's."""
    kill, stopped = os.kill, list[int]()

    def stop(process, number):
        if process != os.getpid():
            return kill(process, number)
        stopped.append(number)
        return time.sleep(2.0)

    with Field(Metric.of(V[1]), tmp_path, Clock(60.0, 0.0)) as field:
        one = CommandArm(Command("a", "echo v=1; sleep 60"), field)
        one.start()
        field.suspended.set()
        monkeypatch.setattr(arms.os, "kill", stop)
        before = time.perf_counter(), field.clock.spent
        one.advance(0.2, lambda _: False)
        spent, waited = field.clock.spent - before[1], time.perf_counter() - before[0]
        monkeypatch.undo()
    assert stopped == [signal.SIGSTOP]
    assert spent <= waited - 2.0
    assert one.running_seconds < 2.0


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGRTMIN + 1, f"signal {signal.SIGRTMIN + 1}"), (15, "SIGTERM")]
)
def test_an_arm_may_end_by_any_signal(tmp_path, number, name):
    """Of real-time signals only the first and the last one have names."""
    with Field(Metric.of(V[1]), tmp_path, Clock(60.0, 0.0)) as field:
        one = CommandArm(Command("a", f"echo v=1; kill -{number} $$"), field)
        one.start()
        one.advance(RACE_LIMIT_SECONDS, lambda _: False)
    assert one.status is Status.FAILED
    assert one.reason.startswith(f"was ended by {name}, ")
