"""A time does not depend on what else runs in the process, before it or after it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from ncfbench.data import prepare
from ncfbench.data.sources import synthetic
from ncfbench.timing import allocator

WORKER = Path(__file__).parents[1] / "timed_order.py"
ORDERS = {
    "g alone": "g",
    "strat-ns alone": "strat-ns",
    "before the others": "g,strat-ns,others",
    "behind the others": "others,strat-ns,g",
}
REPETITIONS = 21
TOLERANCE = 0.1


@contextmanager
def process(data_dir: Path, programs: str) -> Iterator[subprocess.Popen[str]]:
    """A process that times programs; see :mod:`timed_order`."""
    variables = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    with subprocess.Popen(
        [sys.executable, str(WORKER), str(data_dir), programs],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=variables,
    ) as started:
        assert started.stdout is not None
        assert started.stdin is not None
        assert started.stdout.readline() == "ready\n"
        try:
            yield started
        finally:
            started.stdin.close()


def ask(started: subprocess.Popen[str]) -> dict[str, float]:
    """Seconds of a call of each program."""
    assert started.stdin is not None
    assert started.stdout is not None
    started.stdin.write("again\n")
    started.stdin.flush()
    found: dict[str, float] = json.loads(started.stdout.readline())
    return found


@pytest.mark.long
def test_order_does_not_matter(tmp_path: Path) -> None:
    """g of 3,000 items of 300 words and the step of strat-ns: alone in a process, and before and
    behind programs of other sizes. Medians of ratios within repetitions, in which the processes
    take turns.
    """
    if "LD_PRELOAD" not in allocator.variables(os.environ) and not os.environ.get("LD_PRELOAD"):
        pytest.skip("jemalloc is not installed; glibc disturbs other programs")
    options = synthetic.Options(
        users=3000,
        items=8000,
        links=80_000,
        vocabulary_size=20_000,
        min_words=90,
        max_length=300,
    )
    prepare("synthetic", options, tmp_path, "long", say=lambda text: None)
    ratios: dict[tuple[str, str], list[float]] = {}
    rng = np.random.default_rng(0)
    with ExitStack() as stack:
        started = {
            name: stack.enter_context(process(tmp_path, programs))
            for name, programs in ORDERS.items()
        }
        for _ in range(REPETITIONS):
            found = {name: ask(started[name]) for name in rng.permutation(list(started))}
            for program in ("g", "strat-ns"):
                for order in ("before the others", "behind the others"):
                    ratio = found[order][program] / found[f"{program} alone"][program]
                    ratios.setdefault((program, order), []).append(ratio)
    medians = {name: round(float(np.median(values)), 3) for name, values in ratios.items()}
    print(medians)
    assert all(abs(median - 1) <= TOLERANCE for median in medians.values()), medians
