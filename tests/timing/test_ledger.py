"""The ledger: exclusive lines that add up, by a clock of the test's own; and delays planted in a
real run.
"""

import math
import threading
import time
from contextlib import suppress

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.training import skippable_clock

from ncfbench.config import Locations, complete
from ncfbench.runs.plan import RunPlan
from ncfbench.runs.recorder import Recorder
from ncfbench.sampling.shared import NegativeSharingSampler
from ncfbench.timing.ledger import LINES, Ledger
from ncfbench.training import run as training
from ncfbench.training.evaluation import Evaluators
from ncfbench.training.probe import Probe
from ncfbench.training.step import Trainer


class Clock:
    """Goes forward only when it is told to."""

    def __init__(self):
        self.now = 100.0

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
    found = ledger.seconds()
    assert (found["probe"], found["compile"]) == (1, 4)


def test_compilation_inside_a_line_is_noticed():
    ledger = Ledger()
    with ledger.turn(), ledger.line("probe"):
        jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x).T * 2.5)(jnp.ones((7, 5))).block_until_ready()
    compiled = ledger.seconds()["compile"]
    assert 0 < compiled <= sum(ledger.seconds().values())
    jax.jit(lambda x: jnp.sin(x) + 2.5)(jnp.ones(3))
    assert ledger.seconds()["compile"] == compiled, "no longer listening"


SETTINGS = {"dataset": "tiny", "sampler": "ns", "encoder": "cnn", "batch_size": 128, "epochs": 2}
SETTINGS |= {"dimension": 8, "filters": 8, "word_dimension": 8}
DELAY = 1000.0
"""Seconds planted in each batch or step, probe or evaluation, by the clock."""


def train(data_dir, runs_dir):
    ledger = Ledger()
    plan = RunPlan.of(complete(SETTINGS), Locations(data_dir, runs_dir), ledger=ledger)
    return training.run(plan, ledger=ledger)


def lines(record):
    return {row["line"]: row["seconds"] for row in record.ledger}


@pytest.fixture(scope="module")
def plain(data_dir, tmp_path_factory):
    """A run as it is, and the seconds until its records were written."""
    read, ends = Recorder.read, []

    def noted(recorder):
        ends.append(time.perf_counter())
        return read(recorder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recorder, "read", noted)
        begin = time.perf_counter()
        record = train(data_dir, tmp_path_factory.mktemp("plain"))
    return record, ends[0] - begin


def test_a_run_accounts_for_every_second(plain):
    record, wall = plain
    main = [row["seconds"] for row in record.ledger if row["thread"] == "main"]
    assert math.fsum(main) == pytest.approx(record.summary["wall_seconds"])
    # What is missing is the last write of ledger, summary and environment.
    assert 0.5 * wall < record.summary["wall_seconds"] <= wall
    assert lines(record)["other"] < 0.1 * record.summary["wall_seconds"]
    used = {"loading", "initialising", "step", "compile", "probe", "evaluation", "tables"}
    for line in used | {"checkpoint"}:
        assert lines(record)[line] > 0, line


def slow(patch, skip, owner, name):
    """Plant a delay in a method."""
    method = getattr(owner, name)

    def slowed(self, *arguments):
        skip(DELAY)
        return method(self, *arguments)

    patch.setattr(owner, name, slowed)


def slow_step(patch, skip):
    create = Trainer.create.__func__

    def create_slow(cls, *arguments):
        trainer, state = create(cls, *arguments)
        step = trainer.step

        def slowed(*arguments):
            skip(DELAY)
            return step(*arguments)

        trainer.step = slowed
        return trainer, state

    patch.setattr(Trainer, "create", classmethod(create_slow))


@pytest.mark.long_cases("off")
@pytest.mark.parametrize("where", ["sampler", "step", "off the clock"])
def test_a_planted_delay_moves_exactly_its_lines(data_dir, tmp_path, monkeypatch, plain, where):
    """In the sampler it shows as waiting and in full only; in the step in both accounts; in probe
    and evaluation in neither.
    """
    skip = skippable_clock(monkeypatch)
    if where == "sampler":
        slow(monkeypatch, skip, NegativeSharingSampler, "assemble")
    elif where == "step":
        slow_step(monkeypatch, skip)
    else:
        slow(monkeypatch, skip, Probe, "__call__")
        slow(monkeypatch, skip, Evaluators, "evaluate")
    summary, slowed = plain[0].summary, train(data_dir, tmp_path)
    before, after = lines(plain[0]), lines(slowed)
    more = {name: after[name] - before[name] for name in before}
    full = slowed.summary["full_iteration_seconds"] - summary["full_iteration_seconds"]
    step = slowed.summary["step_iteration_seconds"] - summary["step_iteration_seconds"]
    planted = DELAY * slowed.summary["iterations"]
    if where == "sampler":
        samples = [row for row in slowed.timing if row["kind"] == "full"]
        assert math.fsum(row["waiting_seconds"] for row in samples) > 0.9 * planted
        assert math.fsum(row["sampling_seconds"] for row in samples) >= planted
        assert after["waiting"] > 0.9 * planted
        assert more["step"] < 0.1 * planted
        assert full > 0.9 * DELAY
        assert step < 0.1 * DELAY
    elif where == "step":
        assert after["step"] > 0.9 * planted
        assert more["waiting"] < 0.1 * planted
        assert slowed.summary["full_iteration_seconds"] > 0.9 * DELAY
        assert slowed.summary["step_iteration_seconds"] > 0.9 * DELAY
    else:
        for line, column in (("probe", "probe_loss"), ("evaluation", "test_recall_at_50")):
            calls = sum(row[column] is not None for row in slowed.curve)
            assert calls >= 2
            assert after[line] > 0.9 * DELAY * calls
        assert more["step"] + more["waiting"] < 0.1 * planted
        assert abs(full) < 0.1 * DELAY
        assert abs(step) < 0.1 * DELAY
