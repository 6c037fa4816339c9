"""How this process ends where threads of JAX's runtime, or of ours, have the last word."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
from typing import Literal, NoReturn

from ncfbench.errors import INTERRUPTED_EXIT_CODE


def end_now(code: int) -> NoReturn:
    """From any thread, whatever the main one waits for, which may be standard output."""
    sys.stderr.flush()
    os._exit(code)


def exit_at_the_end(code: int) -> None:
    """At exit JAX would wait for processes that never come: leave before it."""

    def leave() -> None:
        sys.stdout.flush()
        end_now(code)

    atexit.register(leave)


def exit_code(error: BaseException) -> int:
    """Of a process that ends with this error."""
    return (
        INTERRUPTED_EXIT_CODE
        if isinstance(error, KeyboardInterrupt)
        else int(getattr(error, "exit_code", 1))
    )


def when_aborted(function: Literal["sleep", "pause"]) -> None:
    """Give this process time to end by itself where JAX's runtime aborts it, from a thread of its
    own.

    It does so at once where the first process dies. The signal's handler is made a function of the
    C library: ``sleep`` takes the signal's number, 6, for seconds, in which the reason can be said,
    and then the abort goes on; ``pause`` stops that thread.
    """
    try:
        libc = ctypes.CDLL(None)
        libc.signal.restype = ctypes.c_void_p
        libc.signal(signal.SIGABRT, ctypes.cast(getattr(libc, function), ctypes.c_void_p))
    except (OSError, AttributeError):  # no such library: the trace is all there is
        return
