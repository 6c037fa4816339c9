"""Ctrl-C and SIGTERM as a flag, so that a computation stops at a point of its own choice."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def handled_by(handler: Any, *numbers: signal.Signals) -> Iterator[None]:
    """Give signals a handler, in the main thread, which alone Python delivers signals to."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in numbers if is_main}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def deferred_signals(say: Callable[[str], None], text: str) -> Iterator[Callable[[], bool]]:
    """Yield a flag that the first Ctrl-C or SIGTERM sets; the second raises KeyboardInterrupt.

    Args:
        say: prints ``text`` when the flag is set.
    """
    flag, unsaid = threading.Event(), list[str]()

    def defer(number: int, frame: object) -> None:
        if flag.is_set():
            raise KeyboardInterrupt
        flag.set()
        try:
            say(text)
        except RuntimeError:  # it came while a line was being written
            unsaid.append(text)

    def is_set() -> bool:
        while unsaid:
            say(unsaid.pop())
        return flag.is_set()

    with handled_by(defer, *STOPPING):
        yield is_set
