"""The ledger: exclusive lines that add up, by a clock of the test's own; and delays planted in a
real run.
"""

import math
import threading
from contextlib import suppress

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.training import SMALL, skippable_clock

from ncfbench.config import Locations, complete
from ncfbench.runs.plan import RunPlan
from ncfbench.sampling.shared import NegativeSharingSampler
from ncfbench.timing.ledger import LINES, Ledger
from ncfbench.training import run as training
from ncfbench.training import train as loops
from ncfbench.training.evaluation import Evaluators
from ncfbench.training.probe import Probe

SETTINGS = SMALL | {"sampler": "ns", "epochs": 2}


class Clock:
    """Goes forward only when it is told to."""

    now = 100.0

    def __call__(self):
        return self.now


Tree = st.recursive(
    st.just([]),
    lambda inner: st.lists(
        st.tuples(st.sampled_from(sorted(LINES)), st.integers(0, 9), inner), max_size=4
    ),
    max_leaves=12,
)


@given(tree=Tree)
@settings(max_examples=40, deadline=None)
def test_lines_are_exclusive_and_add_up_to_the_wall_time(tree):
    """Also where an exception ends a line."""
    clock, expected = Clock(), dict.fromkeys(LINES, 0)
    ledger = Ledger(clock)

    def walk(nodes):
        for line, seconds, inner in nodes:
            with suppress(KeyError), ledger.line(line):
                clock.now += seconds
                expected[line] += seconds
                walk(inner)
                clock.now += 1
                expected[line] += 1
                if seconds % 2:
                    raise KeyError

    walk(tree)
    assert ledger.seconds() == expected
    assert sum(ledger.seconds().values()) == clock.now - 100


def test_compilation_is_moved_and_never_more_than_there_was():
    clock = Clock()
    ledger = Ledger(clock)
    with ledger.line("probe"):
        clock.now += 3
        ledger.move_to_compile(2)
        ledger.move_to_compile(5)
        clock.now += 1
        with ledger.line("compile"):
            clock.now += 1
            ledger.move_to_compile(1)
    thread = threading.Thread(target=ledger.move_to_compile, args=(1,))
    thread.start()
    thread.join()
    seconds = ledger.seconds()
    assert (seconds["probe"], seconds["compile"]) == (1, 4)


def test_compilation_inside_a_line_is_noticed():
    ledger = Ledger()
    with ledger.turn(), ledger.line("probe"):
        jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x).T * 2.5)(jnp.ones((7, 5))).block_until_ready()
    compiled = ledger.seconds()["compile"]
    assert 0 < compiled <= sum(ledger.seconds().values())
    jax.jit(lambda x: jnp.sin(x) + 2.5)(jnp.ones(3))
    assert ledger.seconds()["compile"] == compiled, "no longer listening"


DELAY = 1000.0
"""Seconds planted in each batch or step, probe or evaluation, by the clock."""
DELAYED = {
    "sampler": [(NegativeSharingSampler, "assemble")],
    "step": [],
    "off the clock": [(Probe, "__call__"), (Evaluators, "evaluate"), (loops, "plan_capacity")],
}


@pytest.mark.parametrize("where", DELAYED)
def test_a_planted_delay_moves_exactly_its_lines(data_dir, tmp_path, monkeypatch, where):
    """Nothing else takes time. In the sampler it shows as waiting and in full only; in the step in
    both accounts; off the clock in neither. Lines add up to the time of the run.
    """
    skip = skippable_clock(monkeypatch, lambda config: DELAY * (where == "step"))
    for owner, name in DELAYED[where]:
        method = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *args, method=method: (skip(DELAY), method(*args))[1]
        )
    begin, ledger = skip(), Ledger(skip)
    plan = RunPlan.of(complete(SETTINGS), Locations(data_dir, tmp_path), ledger=ledger)
    record = training.run(plan, ledger=ledger)
    wall, summary = skip() - begin, record.summary
    main = {row["line"]: row["seconds"] for row in record.ledger if row["thread"] == "main"}
    assert math.fsum(main.values()) == pytest.approx(summary["wall_seconds"])
    assert summary["wall_seconds"] == pytest.approx(wall, abs=0.1)
    used = {"loading", "initialising", "step", "compile", "probe", "evaluation", "tables"}
    assert all(main[line] > 0 for line in used | {"checkpoint"})
    planted = DELAY * summary["iterations"]
    full, step = (summary[f"{kind}_iteration_seconds"] for kind in ("full", "step"))
    waiting, sampling = (
        math.fsum(row[f"{name}_seconds"] for row in record.timing if row["kind"] == "full")
        for name in ("waiting", "sampling")
    )
    if where == "sampler":
        assert sampling >= planted
        assert min(waiting, main["waiting"]) > 0.9 * planted
        assert full > 0.9 * DELAY
        assert max(main["step"] / planted, step / DELAY) < 0.1
    elif where == "step":
        assert (full, step) == pytest.approx((DELAY, DELAY), rel=1e-3)
        assert main["step"] == pytest.approx(planted, rel=0.1), "the first one compiles"
        assert waiting < 0.1
    else:
        for line, column in (("probe", "probe_loss"), ("evaluation", "test_recall_at_50")):
            count = sum(row[column] is not None for row in record.curve)
            assert count >= 2
            assert main[line] == pytest.approx(DELAY * count, abs=0.1)
        assert main["initialising"] > DELAY
        assert max(full, step, *(main[line] for line in ("step", "waiting", "checkpoint"))) < 0.1
