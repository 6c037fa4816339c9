"""Measuring: arms in turn, times to a level, and functions and programs apart."""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar
from unittest.mock import patch

from ncfbench.errors import INTERRUPTED_EXIT_CODE, CheckFailedError
from ncfbench.statistics.curves import iterations_to
from ncfbench.timing import allocator

Key = TypeVar("Key")
MOST_CALLS = 2000
Arm: TypeAlias = Callable[[int], float]
"""Runs something so many times, and returns the seconds of all."""


def interleaved(
    arms: Mapping[Key, Arm], rounds: int, block_seconds: float = 0.0
) -> dict[Key, list[float]]:
    """Return the seconds of a call of each arm, round by round, in another order in each round.

    A first round, which does not count, compiles and says how many calls fill a block.

    Args:
        block_seconds: of a block of calls; one call at least.
    """
    counts = dict.fromkeys(arms, 1)
    seconds: dict[Key, list[float]] = {arm: [] for arm in arms}
    for number in range(rounds + 1):
        for arm in random.Random(number).sample(list(arms), len(arms)):
            if number == 0:
                arms[arm](1)
            taken = arms[arm](counts[arm]) / counts[arm]
            if number:
                seconds[arm].append(taken)
            else:
                counts[arm] = min(max(int(block_seconds / taken), 1), MOST_CALLS)
    return seconds


def time_to(level: float, points: Iterable[tuple[float, float]]) -> float:
    """Return when a value first comes up to a level, linear between two evaluations; infinity if it
    does not.

    Args:
        points: time and value of each evaluation.
    """
    times, values = zip(*points, strict=True)
    reached = iterations_to(-level, times, [-value for value in values])
    return math.inf if reached is None else reached


@contextmanager
def process() -> Iterator[Callable[..., Any]]:
    """Yield a function that calls functions in another process, one and the same for all calls,
    which has this one's allocator.

    Errors of a function are raised here; where the process ended, a CheckFailedError.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:

        def ask(function: Callable[..., Any], *arguments: Any) -> Any:
            try:
                return executor.submit(function, *arguments).result()
            except BrokenProcessPool as error:
                raise CheckFailedError(f"The process of {function.__name__} was ended.") from error

        library = allocator.find_library() if allocator.describe() == "jemalloc" else None
        preload = {"LD_PRELOAD": library, "MALLOC_CONF": allocator.SETTINGS} if library else {}
        with patch.dict(os.environ, preload):
            ask(os.getpid)
        yield ask


def ncfbench(
    words: Sequence[str], variables: Mapping[str, str] | None = None, *, shows: bool = False
) -> tuple[int, str]:
    """Run a command of ncfbench to its end, and return its exit code and output. Ctrl-C reaches it
    too, and gives it the time to save.

    Args:
        variables: of its environment, beside this one's.
        shows: print its output instead of returning it.

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    command, stdout = [sys.executable, "-m", "ncfbench", *words], None if shows else subprocess.PIPE
    environment = {**os.environ, **(variables or {})}
    with subprocess.Popen(command, stdout=stdout, text=True, env=environment) as child:
        try:
            output, _ = child.communicate()
        except KeyboardInterrupt:
            child.wait()
            raise
    if child.returncode == INTERRUPTED_EXIT_CODE:
        raise KeyboardInterrupt
    return child.returncode, output or ""
