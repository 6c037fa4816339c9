"""The ledger: exclusive lines that add up, by a clock of the test's own; and delays planted in a
real run.
"""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncfbench.config import Locations, complete
from ncfbench.runs.folder import RunRecord
from ncfbench.timing.ledger import LINES, Ledger
from ncfbench.training import run as training


class Clock:
    """Goes forward only when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_inner_lines_are_taken_out_of_outer_ones() -> None:
    clock = Clock()
    ledger = Ledger(clock)
    clock.now += 1
    with ledger.line("step"):
        clock.now += 2
        with ledger.line("waiting"):
            clock.now += 4
        clock.now += 8
        with pytest.raises(KeyError), ledger.line("compile"):
            clock.now += 16
            raise KeyError
    clock.now += 32
    assert {line: value for line, value in ledger.seconds().items() if value} == {
        "other": 33,
        "step": 10,
        "waiting": 4,
        "compile": 16,
    }


Tree = st.recursive(
    st.just([]),
    lambda inner: st.lists(
        st.tuples(st.sampled_from(sorted(LINES)), st.integers(0, 9), inner), max_size=4
    ),
    max_leaves=12,
)


@given(tree=Tree)
@settings(max_examples=60)
def test_lines_add_up_to_the_wall_time(tree: Any) -> None:
    clock, expected = Clock(), dict.fromkeys(LINES, 0)
    ledger = Ledger(clock)

    def walk(nodes: Any) -> None:
        for line, seconds, inner in nodes:
            with ledger.line(line):
                clock.now += seconds
                expected[line] += seconds
                walk(inner)

    walk(tree)
    assert ledger.seconds() == expected
    assert sum(ledger.seconds().values()) == clock.now - 100


def test_compilation_is_moved_and_never_more_than_there_was() -> None:
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


def test_compilation_inside_a_line_is_noticed() -> None:
    ledger = Ledger()
    with ledger.noticing_compilation(), ledger.line("probe"):
        jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x).T * 2.5)(jnp.ones((7, 5))).block_until_ready()
    compiled = ledger.seconds()["compile"]
    assert 0 < compiled <= sum(ledger.seconds().values())
    jax.jit(lambda x: jnp.sin(x) + 2.5)(jnp.ones(3))
    assert ledger.seconds()["compile"] == compiled, "no longer listening"


SETTINGS = {
    "dataset": "tiny",
    "sampler": "ns",
    "encoder": "cnn",
    "batch_size": 128,
    "epochs": 2,
    "dimension": 8,
    "filters": 8,
    "word_dimension": 8,
}
DELAY = 0.05
"""Seconds planted in each batch or step; ten times that in a probe or an evaluation."""


def train(data_dir: Path, runs_dir: Path, **more: Any) -> RunRecord:
    return training.run(complete(SETTINGS | more), Locations(data_dir, runs_dir))


def lines(record: RunRecord) -> dict[str, float]:
    return {row["line"]: row["seconds"] for row in record.ledger}


def test_a_run_accounts_for_every_second(data_dir: Path, tmp_path: Path) -> None:
    begin = time.perf_counter()
    record = train(data_dir, tmp_path, encoder="cnn", epochs=4)
    wall = time.perf_counter() - begin
    main = [row["seconds"] for row in record.ledger if row["thread"] == "main"]
    assert math.fsum(main) == pytest.approx(record.summary["wall_seconds"])
    # What is missing is the last write of the tables itself, and reading the record back.
    assert record.summary["wall_seconds"] == pytest.approx(wall, rel=0.15)
    assert record.summary["wall_seconds"] <= wall
    assert lines(record)["other"] < 0.03 * record.summary["wall_seconds"]
    for line in (
        "loading",
        "initialising",
        "step",
        "compile",
        "probe",
        "evaluation",
        "tables",
        "checkpoint",
    ):
        assert lines(record)[line] > 0, line


@pytest.mark.parametrize("where", ["sampler", "step", "probe", "evaluation"])
def test_a_planted_delay_moves_exactly_its_lines(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """In the sampler it shows as waiting and in full only; in the step in both accounts; in probe
    and evaluation in neither.
    """
    plain = train(data_dir, tmp_path / "plain")
    if where == "sampler":
        from ncfbench.sampling.shared import NegativeSharingSampler

        assemble = NegativeSharingSampler.assemble

        def slow(self: Any, *arguments: Any) -> Any:
            time.sleep(DELAY)
            return assemble(self, *arguments)

        monkeypatch.setattr(NegativeSharingSampler, "assemble", slow)
    elif where == "step":
        from ncfbench.training.step import Trainer

        create = Trainer.create.__func__

        def create_slow(cls: Any, *arguments: Any) -> Any:
            trainer, state = create(cls, *arguments)
            step = trainer.step

            def slow_step(*arguments: Any) -> Any:
                time.sleep(DELAY)
                return step(*arguments)

            trainer.step = slow_step
            return trainer, state

        monkeypatch.setattr(Trainer, "create", classmethod(create_slow))
    else:
        from ncfbench.training.probe import Probe
        from ncfbench.training.recall import RecallEvaluator

        slowed_class: Any = Probe if where == "probe" else RecallEvaluator
        call = slowed_class.__call__

        def slow_call(self: Any, parameters: Any) -> Any:
            time.sleep(10 * DELAY)
            return call(self, parameters)

        monkeypatch.setattr(slowed_class, "__call__", slow_call)
    slowed = train(data_dir, tmp_path / "slowed")
    before, after = lines(plain), lines(slowed)
    more = {name: after[name] - before[name] for name in before}
    full = slowed.summary["full_iteration_seconds"] - plain.summary["full_iteration_seconds"]
    step = slowed.summary["step_iteration_seconds"] - plain.summary["step_iteration_seconds"]
    iterations = slowed.summary["iterations"]
    planted = DELAY * iterations
    if where == "sampler":
        assert after["waiting"] > 0.7 * planted
        assert more["step"] < 0.4 * planted
        assert full > 0.7 * DELAY
        assert step < 0.4 * DELAY
    elif where == "step":
        assert after["step"] > 0.9 * planted
        assert more["waiting"] < 0.4 * planted
        assert slowed.summary["full_iteration_seconds"] > 0.9 * DELAY
        assert slowed.summary["step_iteration_seconds"] > 0.9 * DELAY
    else:
        calls = sum(
            row[{"probe": "probe_loss", "evaluation": "test_recall_at_50"}[where]] is not None
            for row in slowed.curve
        )
        assert calls >= 2
        assert after[where] > 0.9 * 10 * DELAY * calls
        assert more["step"] + more["waiting"] < 0.4 * planted
        assert abs(full) < 0.4 * DELAY
        assert abs(step) < 0.4 * DELAY
