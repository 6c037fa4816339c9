"""Memory of a GPU that arms of a race hold, by a GPU that is simulated.

Arms take memory when a file tells them to, so that nothing here hangs on the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from raced_commands import COUNT, V, by_name, race

from ncfbench.racing import field as fields
from ncfbench.racing.arms import Arm
from ncfbench.racing.entry import Entry, Status
from ncfbench.racing.field import Field, Slot
from ncfbench.racing.metric import Metric

pytestmark = pytest.mark.usefixtures("quick")
WAIT = "while [ ! -e {name} ]; do sleep 0.01; done; "
TAKE = "touch gpu-{name}; "
LINES = "while :; do echo v=1; sleep 0.01; done"
LIMIT_SECONDS = 60.0
LACK = "no GPU memory: paused arms hold theirs, one needs 7.2 GiB"


@pytest.fixture
def field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Field]:
    """A field on a GPU of 16 GiB, of which each arm takes 6 when it writes its file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        fields, "free_device_bytes", lambda: {"0": (16 - 6 * len([*tmp_path.glob("gpu-*")])) << 30}
    )
    with Field(Metric.of(V[1]), tmp_path, [Slot()]) as made:
        yield made


def entry(name: str, command: str) -> Entry:
    return Entry(Arm(name, command, {"name": name}))


def turn(field: Field, one: Entry, until: Callable[[], bool] = lambda: True) -> None:
    field.turn([one], LIMIT_SECONDS, lambda _: until())


def begin(field: Field, one: Entry) -> bool:
    """Start an entry and give it its first turn, until its line."""
    begun = field.start(one)
    turn(field, one, lambda: bool(one.readings))
    return begun


def test_memory_is_measured_until_the_first_line(tmp_path: Path, field: Field) -> None:
    """It takes none in the turn in which it begins."""
    one = entry("a", WAIT + TAKE + LINES)
    field.start(one)
    turn(field, one)
    assert one.device_bytes == 0
    (tmp_path / "a").touch()
    turn(field, one, lambda: bool(one.readings))
    assert one.device_bytes == 6 << 30


def test_a_line_before_training_shows_no_memory(tmp_path: Path, field: Field) -> None:
    """Step 0 is printed before the memory is taken."""
    line = 'echo \'{"v": 0, "step": %d}\'; '
    field.metric = Metric("v")
    one = entry("a", line % 0 + WAIT + TAKE + line % 1 + "sleep 60")
    begin(field, one)
    assert (len(one.readings), one.device_bytes) == (1, 0)
    (tmp_path / "a").touch()
    turn(field, one, lambda: len(one.readings) > 1)
    assert one.device_bytes == 6 << 30


def test_memory_that_is_taken_before_the_first_turn_counts(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine an arm can print its first line before it is paused."""

    class Late(fields.Process):
        def pause(self) -> None:
            while not self.readings and time.perf_counter() < self.began + LIMIT_SECONDS:
                time.sleep(0.01)
            super().pause()

    monkeypatch.setattr(fields, "Process", Late)
    one = entry("a", TAKE + LINES)
    begin(field, one)
    assert one.device_bytes == 6 << 30


def test_arms_that_start_will_need_memory_too(tmp_path: Path, field: Field) -> None:
    """The first holds 6 of 16 GiB; the second will, which leaves none for the third."""
    one, two, three = entry("a", TAKE + LINES), entry("b", WAIT + TAKE + LINES), entry("c", LINES)
    assert begin(field, one)
    assert field.start(two)
    turn(field, two)
    assert not field.start(three)
    assert (three.status, three.reason) == (Status.WAITING, LACK)


def test_an_arm_that_starts_anew_is_measured_anew(field: Field) -> None:
    one = entry("a", TAKE + LINES)
    begin(field, one)
    field.close([one])
    for file in Path().glob("gpu-*"):
        file.unlink()
    begin(field, one)
    assert one.device_bytes == 6 << 30


def test_a_gpu_that_does_not_answer_once_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([{}, {"0": 8 << 30}])
    monkeypatch.setattr(fields, "free_device_bytes", lambda: next(answers, {}))
    found = race(tmp_path, *V, "-L", "count", "5,6", COUNT)
    assert {arm["device_bytes"] for arm in by_name(found).values()} == {0}
