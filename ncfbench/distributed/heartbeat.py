"""The roll: connections between a run's first process and all others, by which each learns that
another is lost.

A collective operation waits for ever for a process that has died, and JAX's own runtime ends the
others with a trace of C++. So every process holds a connection to the first, over which both sides
say something every second. One that closes without a farewell, or is silent for too long, means
that its process is lost; the first passes that on. No JAX here.
"""

from __future__ import annotations

import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable

BEAT_SECONDS = 1.0
BACKLOG = 1024
"""Processes that may knock at once."""
TOKEN_BYTES = 8
"""Of what the run's processes know, and others that reach the first one's port do not."""
OWN_ERROR_SECONDS = 1.0
"""A process whose peer ended with an error has most likely met the same one, and is given this long
to say so itself.
"""


class Roll:
    """One process's view of the others.

    Args:
        index: of this process; the first has 0.
        count: of all processes.
        timeout: seconds of silence after which a process is lost.
        lost: called once, in a thread, with what has happened.
    """

    def __init__(self, index: int, count: int, timeout: float, lost: Callable[[str], None]) -> None:
        self.index, self.count, self.timeout, self._lost = index, count, timeout, lost
        self._peers: dict[int, socket.socket] = {}
        self._gone: set[int] = set()
        self._lock = threading.Lock()
        self._left = threading.Event()
        self.token = secrets.token_bytes(TOKEN_BYTES)
        """The first process's is that of the run."""

    def accept(self, server: socket.socket) -> None:
        """In the first process: wait for all others, and begin to watch them.

        Who connects and does not know the token, a scan of the machine's ports for example, is not
        heard.

        Raises:
            TimeoutError: not all have come.
        """
        deadline = time.monotonic() + self.timeout
        strangers: dict[socket.socket, bytearray] = {}
        with server, selectors.DefaultSelector() as waiting:
            server.setblocking(False)
            waiting.register(server, selectors.EVENT_READ)
            while len(self._peers) < self.count - 1:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError("not all have come")
                for key, _ in waiting.select(left):
                    try:
                        if key.fileobj is server:
                            stranger, _ = server.accept()
                            stranger.setblocking(False)
                            strangers[stranger] = bytearray()
                            waiting.register(stranger, selectors.EVENT_READ)
                        elif isinstance(peer := key.fileobj, socket.socket) and self._has_spoken(
                            peer, strangers[peer]
                        ):
                            waiting.unregister(peer)
                            del strangers[peer]
                            if peer not in self._peers.values():
                                peer.close()
                    except (BlockingIOError, InterruptedError, ConnectionError):
                        continue
            for peer in strangers:
                peer.close()
        self._watch()

    def _has_spoken(self, peer: socket.socket, said: bytearray) -> bool:
        """One byte more of a greeting; whether it is over, well or ill."""
        try:
            byte = peer.recv(1)
        except ConnectionError:
            byte = b""
        if byte and byte != b"\n":
            said += byte
            if len(said) <= len(self._greeting(self.count)):
                return False
        for index in range(1, self.count):
            if byte == b"\n" and said + byte == self._greeting(index) and index not in self._peers:
                self._peers[index] = peer
        return True

    def _greeting(self, index: int) -> bytes:
        return f"{self.token.hex()} {index}\n".encode()

    def connect(self, host: str, port: int) -> None:
        """In any other process, which has been given the run's token: reach the first, and begin to
        watch it.

        Raises:
            OSError: it cannot be reached.
        """
        peer = socket.create_connection((host, port), timeout=self.timeout)
        peer.sendall(self._greeting(self.index))
        self._peers[0] = peer
        self._watch()

    def settle(self) -> None:
        """Nothing is left to lose: whoever is lost from here on is not told of."""
        self._left.set()

    def leave(self, failure: str = "") -> None:
        """Say farewell; with the reason, where this process ends before the others do."""
        self._left.set()
        self._tell(f"failed {failure}" if failure else "bye")
        for peer in self._peers.values():
            peer.close()

    def _watch(self) -> None:
        for index, peer in self._peers.items():
            peer.settimeout(self.timeout)
            threading.Thread(
                target=self._read, args=(index, peer), name=f"roll {index}", daemon=True
            ).start()
        threading.Thread(target=self._beat, name="roll", daemon=True).start()

    def _beat(self) -> None:
        while not self._left.wait(BEAT_SECONDS):
            self._tell(".")

    def _read(self, index: int, peer: socket.socket) -> None:
        while not self._left.is_set():
            try:
                said = _line(peer)
            except TimeoutError:
                return self._report(
                    f"process {index} has said nothing for {self.timeout:g} s", index
                )
            except OSError:
                return self._report(f"process {index} has died: its connection was closed", index)
            word, _, text = said.partition(" ")
            if word == "bye":
                self._gone.add(index)
                return None
            if word == "lost":
                return self._report(text, index)
            if word == "failed":
                time.sleep(OWN_ERROR_SECONDS)
                return self._report(f"process {index} ended: {text}", index)
        return None

    def _report(self, what: str, index: int) -> None:
        with self._lock:
            if self._left.is_set() or index in self._gone:
                return
            self._left.set()
        self._tell(f"lost {what}", but=index)
        self._lost(what)

    def _tell(self, line: str, but: int = -1) -> None:
        for index, peer in self._peers.items():
            if index != but:
                try:
                    peer.sendall(line.replace("\n", " ").encode(errors="backslashreplace") + b"\n")
                except OSError:
                    continue  # its reader finds that out


def listening(port: int = 0) -> socket.socket:
    """A place where this process can be reached, at all its addresses; by default on a port that is
    free.

    Raises:
        OSError: there is none, or the port is in use.
    """
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    return socket.create_server(
        ("", port), family=family, backlog=BACKLOG, dualstack_ipv6=family == socket.AF_INET6
    )


def _line(peer: socket.socket) -> str:
    """The next line, without its end.

    Raises:
        ConnectionError: there is none.
    """
    found = bytearray()
    while (byte := peer.recv(1)) != b"\n":
        if not byte:
            raise ConnectionError("closed")
        found += byte
    return found.decode(errors="replace")
