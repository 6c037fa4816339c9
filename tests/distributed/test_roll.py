"""The roll by itself: three processes as three objects, over real connections."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from ncfbench.distributed import heartbeat
from ncfbench.distributed.heartbeat import Roll


class Three:
    """The first, and two others; what each was told of a loss."""

    def __init__(self, timeout: float) -> None:
        self.told: list[list[str]] = [[], [], []]
        self.rolls = [Roll(index, 3, timeout, self.told[index].append) for index in range(3)]
        server = heartbeat.listening()
        port = server.getsockname()[1]
        first = threading.Thread(target=self.rolls[0].accept, args=(server,))
        first.start()
        for other in self.rolls[1:]:
            other.token = self.rolls[0].token
            other.connect("127.0.0.1", port)
        first.join()

    def wait(self, *indices: int) -> None:
        deadline = time.monotonic() + 10
        while not all(self.told[index] for index in indices) and time.monotonic() < deadline:
            time.sleep(0.005)


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> Iterator[Three]:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(heartbeat, "OWN_ERROR_SECONDS", 0.05)
    made = Three(timeout=0.5)
    yield made
    for each in made.rolls:
        each.leave()


def test_a_death_is_told_to_all(three: Three) -> None:
    three.rolls[1]._left.set()
    three.rolls[1]._peers[0].shutdown(
        socket.SHUT_RDWR
    )  # as the system does for a process that was killed
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
    three.rolls[1].leave("No such data set: n\udcffata.\nMore lines.")
    three.wait(0, 2)
    assert three.told == [
        ["process 1 ended: No such data set: n\\udcffata. More lines."],
        [],
        ["process 1 ended: No such data set: n\\udcffata. More lines."],
    ]


def test_a_farewell_is_no_loss_in_any_order(three: Three) -> None:
    for each in (1, 0, 2):
        three.rolls[each].leave()
        time.sleep(0.2)
    assert three.told == [[], [], []]


def test_who_does_not_come_is_waited_for_so_long() -> None:
    lonely = Roll(0, 2, 0.1, pytest.fail)
    with pytest.raises(TimeoutError):
        lonely.accept(heartbeat.listening())


def test_who_does_not_know_the_token_is_not_heard() -> None:
    """Silent ones, ones that close at once, and ones that say too much or the wrong thing, before
    and between the others.
    """
    rolls = [Roll(index, 3, 5.0, pytest.fail) for index in range(3)]
    server = heartbeat.listening()
    address = ("127.0.0.1", server.getsockname()[1])
    first = threading.Thread(target=rolls[0].accept, args=(server,))
    first.start()
    strangers = []
    for said in (
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"x" * 10_000,
        b"1\n",
        rolls[1].token.hex().encode() + b" 1\n",
    ):
        strangers.append(socket.create_connection(address))
        strangers[-1].sendall(said)
    socket.create_connection(address).close()
    for other in rolls[1:]:
        other.token = rolls[0].token
        if other.index == 2:
            strangers.append(socket.create_connection(address))
            strangers[-1].sendall(
                rolls[0].token.hex().encode() + b" 1\n"
            )  # who has come comes no more
        other.connect(*address)
    first.join(timeout=5)
    assert not first.is_alive()
    assert sorted(rolls[0]._peers) == [1, 2]
    for each in rolls:
        each.leave()
    for stranger in strangers:
        stranger.close()
