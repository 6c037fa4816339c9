"""Ctrl-C and termination as a flag that a long computation looks at, so that nothing is cut in
two.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def noted(say: Callable[[str], None], text: str) -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or termination into a flag; the second raises KeyboardInterrupt.

    Outside the main thread, where Python takes no signals, the flag is never set.

    Args:
        say: tells the user ``text`` when the flag is set.
    """
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag.is_set
        return

    def note(number: int, frame: object) -> None:
        if flag.is_set():
            raise KeyboardInterrupt
        flag.set()
        say(text)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
