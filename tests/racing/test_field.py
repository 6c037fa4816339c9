"""The field of a race: the GPUs of its slots, and the processes of its entries."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from raced_commands import LIMIT_SECONDS, V

from ncfbench.racing import field as fields
from ncfbench.racing.arms import Arm
from ncfbench.racing.clock import Reading
from ncfbench.racing.entry import Entry, Status
from ncfbench.racing.field import Field, Slot, free_device_bytes, make_slots
from ncfbench.racing.metric import Metric

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.parametrize(
    ("visible", "wanted"),
    [
        (None, [("0", 10), ("1", 20), ("2", 30)]),
        ("2, 0", [("2", 30), ("0", 10)]),
        ("GPU-bb,GPU-cc3", [("GPU-bb", 20), ("GPU-cc3", 30)]),
        ("", []),
        ("-1", []),
    ],
)
def test_gpus_are_those_that_are_visible(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, wanted: list[tuple[str, int]]
) -> None:
    printed = "0, GPU-aa1, 10\n1, GPU-bb2, 20\n2, GPU-cc3, 30\n"
    monkeypatch.setattr(fields, "output_of", lambda *_: printed)
    monkeypatch.setattr(fields.os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [*free_device_bytes().items()] == [(entry, free << 20) for entry, free in wanted]
    own = [entry for entry, _ in wanted[:2]] or [None, None]
    assert [slot.device for slot in make_slots(2)] == own
    monkeypatch.setattr(fields, "output_of", lambda *_: None)
    assert free_device_bytes() == {}


@pytest.mark.parametrize("device", [None, "2", "0"])
def test_memory_is_that_of_the_slots_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str | None
) -> None:
    """Without a slot of its own, that of the first one."""
    answers = iter([{"2": 30, "0": 10}, {"2": 30, "0": 10}, {"2": 26, "0": 9}])
    monkeypatch.setattr(fields, "free_device_bytes", lambda: next(answers))
    one = Entry(Arm("a", "echo v=1; sleep 60"))
    with Field(Metric.of(V[1]), tmp_path, [Slot((), device)]) as field:
        field.start(one)
        field.turn([one], LIMIT_SECONDS, lambda each: bool(each.readings))
    assert one.device_bytes == (1 if device == "0" else 4)


def test_no_time_passes_while_a_race_is_suspended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither on the race's clock nor on the arm's."""
    one, kill, stopped = Entry(Arm("a", "echo v=1; sleep 60")), os.kill, list[int]()

    def stop(process: int, number: int) -> None:
        if process != os.getpid():
            return kill(process, number)
        stopped.append(number)
        return time.sleep(2.0)

    with Field(Metric.of(V[1]), tmp_path, [Slot()]) as field:
        field.start(one)
        field.suspended.set()
        monkeypatch.setattr(fields.os, "kill", stop)
        before = time.perf_counter(), field.seconds
        field.turn([one], 0.2, lambda _: False)
        spent, waited = field.seconds - before[1], time.perf_counter() - before[0]
        monkeypatch.undo()
    assert stopped == [signal.SIGSTOP]
    assert spent <= waited - 2.0
    assert one.running_seconds < 2.0


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGRTMIN + 1, f"signal {signal.SIGRTMIN + 1}"), (15, "SIGTERM")]
)
def test_an_arm_may_end_by_any_signal(tmp_path: Path, number: int, name: str) -> None:
    """Of real-time signals only the first and the last one have names."""
    one = Entry(Arm("a", f"echo v=1; kill -{number} $$"))
    with Field(Metric.of(V[1]), tmp_path, [Slot()]) as field:
        field.start(one)
        field.turn([one], LIMIT_SECONDS, lambda _: False)
    assert one.status is Status.FAILED
    assert one.reason.startswith(f"was ended by {name}, ")


@pytest.mark.parametrize(
    ("lines", "status", "reason"),
    [
        ([Reading(1.0, 0.5)], Status.ENDED, "by itself"),
        ([], Status.FAILED, "ended and printed no metric, it printed nothing"),
    ],
)
def test_a_resumed_arm_may_have_nothing_left(
    tmp_path: Path, lines: list[Reading], status: Status, reason: str
) -> None:
    """It ends without a line, and its lines from before count."""
    one = Entry(Arm("a", "true"))
    one.timeline.pieces[0] += lines
    with Field(Metric.of(V[1]), tmp_path, [Slot()], resume_flag="# on") as field:
        field.start(one)
        field.turn([one], LIMIT_SECONDS, lambda _: False)
    assert (one.status, one.reason) == (status, reason)
