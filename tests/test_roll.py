"""The roll by itself: three processes as three objects, over real connections."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from ncfbench import roll
from ncfbench.roll import Roll


class Three:
    """The first, and two others; what each was told of a loss."""

    def __init__(self, timeout: float) -> None:
        self.told: list[list[str]] = [[], [], []]
        self.rolls = [Roll(index, 3, timeout, self.told[index].append) for index in range(3)]
        server = self.rolls[0].listen()
        port = server.getsockname()[1]
        first = threading.Thread(target=self.rolls[0].accept, args=(server,))
        first.start()
        for other in self.rolls[1:]:
            other.connect("127.0.0.1", port)
        first.join()

    def wait(self, *indices: int) -> None:
        deadline = time.monotonic() + 10
        while not all(self.told[index] for index in indices) and time.monotonic() < deadline:
            time.sleep(0.005)


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> Iterator[Three]:
    monkeypatch.setattr(roll, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(roll, "OWN_ERROR_SECONDS", 0.05)
    made = Three(timeout=0.5)
    yield made
    for each in made.rolls:
        each.leave()


def test_a_death_is_told_to_all(three: Three) -> None:
    three.rolls[1]._left.set()
    three.rolls[1]._peers[0].shutdown(socket.SHUT_RDWR)  # as the system does for a process that was killed
    three.wait(0, 2)
    assert three.told == [
        ["process 1 has died: its connection was closed"],
        [],
        ["process 1 has died: its connection was closed"],
    ]


def test_silence_is_a_loss(three: Three) -> None:
    three.rolls[2]._left.set()  # says nothing any more, and its connection stays
    three.wait(0, 1)
    assert three.told[0] == three.told[1] == ["process 2 has said nothing for 0.5 s"]


def test_a_failure_is_passed_on_with_its_reason(three: Three) -> None:
    three.rolls[1].leave("No such data set.\nMore lines.")
    three.wait(0, 2)
    assert three.told == [
        ["process 1 ended: No such data set. More lines."],
        [],
        ["process 1 ended: No such data set. More lines."],
    ]


def test_a_farewell_is_no_loss_in_any_order(three: Three) -> None:
    for each in (1, 0, 2):
        three.rolls[each].leave()
        time.sleep(0.2)
    assert three.told == [[], [], []]


def test_who_does_not_come_is_waited_for_so_long() -> None:
    lonely = Roll(0, 2, 0.1, pytest.fail)
    with pytest.raises(TimeoutError):
        lonely.accept(lonely.listen())
