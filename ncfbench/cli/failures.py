"""Errors of commands as messages and exit codes, and the command line that was typed."""

from __future__ import annotations

import functools
import os
import select
import shlex
import sys
from collections.abc import Callable
from typing import IO, ParamSpec, TypeVar

import typer

from ncfbench.cli.output import say
from ncfbench.errors import (
    CLOSED_PIPE_EXIT_CODE,
    INTERRUPTED_EXIT_CODE,
    DataError,
    NcfbenchError,
    reason,
)

P = ParamSpec("P")
R = TypeVar("R")
STREAMS = (1, 2)
"""Descriptors of standard output and error."""
typed: list[str] = []
"""The words of the command line, without the program's name."""


def typed_without(*flags: str) -> str:
    """Return the command line that was typed, with some flags left out."""
    return shlex.join(["ncfbench", *(word for word in typed if word not in flags)])


def reporting(command: Callable[P, R]) -> Callable[P, R]:
    """Print the errors that logic raises, and exit with their code."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except NcfbenchError as error:
            say(f"Error: {error}")
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as error:
            say(f"Interrupted.{_after_interrupt(command.__name__, error)}")
            raise typer.Exit(INTERRUPTED_EXIT_CODE) from error

    return wrapped


def forget_unknown_size() -> None:
    """Remove an impossible size of the terminal from the environment: containers and CI set 0.

    Rich fills lines up to the width, so millions of columns are impossible too.
    """
    for name in ("COLUMNS", "LINES"):
        value = os.environ.get(name, "")
        if not (value.isascii() and value.isdecimal() and 0 < len(value.lstrip("0")) <= 5):
            os.environ.pop(name, None)


def report_system_error(error: OSError) -> int:
    """Say which output or file the system refused, and return the exit code. Where the reader of a
    pipe has closed it, as ``head`` does, nothing is said.

    A stream that cannot be written is sent to the null device, so that the interpreter's own end
    does not fail on it again.
    """
    is_output = error.filename is None
    is_closed = isinstance(error, BrokenPipeError) and any(map(_has_no_reader, STREAMS))
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            is_output = True
            _discard(stream)
    if is_closed:
        return CLOSED_PIPE_EXIT_CODE
    what = "write the output" if is_output else f"use {error.filename}"
    try:
        say(f"Error: Cannot {what}: {reason(error)}.")
    except OSError:
        _discard(sys.stderr)
    return DataError.exit_code


def _has_no_reader(descriptor: int) -> bool:
    """Return whether a descriptor is the end of a pipe that nothing reads any more."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _discard(stream: IO[str]) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def _after_interrupt(name: str, error: KeyboardInterrupt) -> str:
    """Return what to do next; nothing where that was said, or another process says it."""
    folder = getattr(error, "folder", None)
    command = typed_without("--again")
    if name == "run" and folder is not None:
        return f" The run so far is in {folder}. To continue it: {command}"
    advice = {
        "run": f" To continue from the last checkpoint, or begin where there is none: {command}",
        "floor": f" Floors that were done are kept. To go on: {command}",
        "sweep": "",
    }
    nothing = " Repeat the command to begin again."
    return "" if hasattr(error, "folder") else advice.get(name, nothing)
