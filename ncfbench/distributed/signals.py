"""Ctrl-C and SIGTERM as a flag, so that a computation stops at a point of its own choice."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def deferred_signals(say: Callable[[str], None], text: str) -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a flag; the second raises KeyboardInterrupt.

    Python delivers signals to the main thread only; in another thread the flag is never set.

    Args:
        say: prints ``text`` when the flag is set.

    Yields:
        A function that returns the flag.
    """
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag.is_set
        return

    def defer(number: int, frame: object) -> None:
        if flag.is_set():
            raise KeyboardInterrupt
        flag.set()
        say(text)

    before = {number: signal.signal(number, defer) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
