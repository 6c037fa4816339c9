"""The timed loop: what is off the clock, and dispatches change no number."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from trial import Trial

from ncfbench.config import complete
from ncfbench.data.store import Dataset
from ncfbench.errors import CheckFailedError, UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.sampling.batch import Batch
from ncfbench.timing.clock import Sample
from ncfbench.training import loop as timed
from ncfbench.training.loop import IN_FLIGHT, TimedLoop
from ncfbench.training.step import Trainer


def loop_for(
    dataset: Dataset,
    per_dispatch: int = 1,
    *,
    slots: int = 110,
    **settings: Any,
) -> TimedLoop:
    """A loop of free vectors, which compile soonest."""
    small = {"batch_size": 64, "dimension": 8, "filters": 8, "word_dimension": 8, "negatives": 2}
    usual = {"encoder": "mf", "sampler": "ns", "iterations_per_dispatch": per_dispatch}
    trial = Trial(dataset, small | usual | settings)
    return TimedLoop(trial.trainer, trial.state, trial.content, trial.sampler, slots)


def by_kind(loop: TimedLoop, kind: str) -> list[Sample]:
    return [sample for sample in loop.samples if sample.kind == kind]


def count_dispatches(loop: TimedLoop, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Iterations of each dispatch from now on."""
    log: list[int] = []
    step = loop.trainer.step

    def counted(state: Any, batches: Any, content: DeviceContent) -> Any:
        log.append(1 if isinstance(batches, Batch) else len(batches))
        return step(state, batches, content)

    monkeypatch.setattr(loop.trainer, "step", counted)
    return log


def only_compiling_takes_time(loop: TimedLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that each compilation moves on by a second, and nothing else."""
    monkeypatch.setattr("time.perf_counter_ns", lambda: loop.trainer.traces * 10**9)


@pytest.mark.long_cases(r"1")
@pytest.mark.parametrize("per_dispatch", [1, 4])
def test_growth_is_compiled_off_the_clock(
    growing: Dataset, per_dispatch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the *step* account takes batches of several capacities."""
    messages: list[str] = []
    with loop_for(growing, per_dispatch, slots=8) as loop:
        loop.say = messages.append
        only_compiling_takes_time(loop, monkeypatch)
        while len({len(batch.items) for batch in loop._recent}) < 2:
            loop.full_block(3)
        log = count_dispatches(loop, monkeypatch)
        loop.step_block(20)
        assert sum(log) == 20
        assert set(log) == {1, per_dispatch}
        loop.full_block(40 - loop.iteration)
        compiles, full = by_kind(loop, "compile"), by_kind(loop, "full")
        programs = 1 if per_dispatch == 1 else 2
        assert loop.trainer.traces == programs * len(compiles) > programs
        assert sum(sample.iterations for sample in full) == 40
        assert sum(sample.seconds for sample in full) == 0, "a compilation is on the clock"
        assert sum(sample.seconds for sample in compiles) == loop.trainer.traces
        assert len(messages) == len(compiles) - 1
        assert f"{loop.item_slots} item slots" in messages[-1]


def test_any_other_compilation_is_an_error(tiny: Dataset) -> None:
    for count in (4, 3):  # of several iterations, of one
        with loop_for(tiny, 4) as loop:
            loop.full_block(4)
            loop.content = DeviceContent(loop.content.tokens[:, :4], loop.content.lengths)
            with pytest.raises(CheckFailedError, match="compiled during timed work"):
                loop.full_block(count)


@pytest.mark.long_cases(r"(mf-iid|lstm|cnn)")
@pytest.mark.parametrize(
    ("encoder", "sampler", "loss"),
    [
        ("mf", "iid", "sg"),
        ("mf", "strat-ns", "hinge"),
        ("cnn", "ns", "mse"),
        ("lstm", "neg", "log"),
    ],
)
def test_dispatches_change_no_number(tiny: Dataset, encoder: str, sampler: str, loss: str) -> None:
    """Blocks with remainders, for free vectors from a capacity that must grow; dropout on."""
    losses, leaves = [], []
    slots = 24 if encoder == "mf" else 400
    for per_dispatch in (1, 4):
        with loop_for(
            tiny, per_dispatch, encoder=encoder, sampler=sampler, loss=loss, slots=slots
        ) as loop:
            losses.append([value for count in (9, 1, 13) for value in loop.full_block(count)])
            assert loop.iteration == int(loop.state.iteration) == 23
            leaves.append(jax.tree.leaves(loop.state.parameters))
    assert len(losses[1]) == 23
    if encoder == "mf":
        assert losses[0] == losses[1]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)
    for one, many in zip(*leaves, strict=True):
        assert one.dtype == many.dtype
        np.testing.assert_allclose(many, one, atol=0 if encoder == "mf" else 2e-6)


def test_remainders_go_one_by_one(tiny: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    with loop_for(tiny, 4) as loop:
        loop.full_block(1)
        log = count_dispatches(loop, monkeypatch)
        loop.full_block(10)
        assert log == [4, 4, 1, 1]
        log.clear()
        loop.step_block(9)
        assert log == [4, 4, 1]
        log.clear()
        loop.step_block()
        assert log == [4, 4, 1, 1, 1], "the eleven batches so far"


@pytest.mark.parametrize("per_dispatch", [1, 4])
def test_a_stop_is_soon_and_loses_no_batch(
    tiny: Dataset, per_dispatch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``stop`` is called once for each iteration; the dispatch it falls into is done, and few
    iterations are in flight, however fast they were dispatched.
    """
    with loop_for(tiny, per_dispatch) as whole:
        expected = whole.full_block(60)
    with loop_for(tiny, per_dispatch) as loop:
        loop.full_block(4)
        dispatched: dict[int, int] = {}
        in_flight: list[int] = []
        step, wait = loop.trainer.step, jax.block_until_ready

        def watched(*arguments: Any) -> Any:
            result = step(*arguments)
            dispatched[id(result[1])] = result[1].size
            return result

        def waited(value: Any) -> Any:
            dispatched.pop(id(value), None)
            return wait(value)

        def stop() -> bool:
            in_flight.append(sum(dispatched.values()))
            return loop.iteration >= 38

        monkeypatch.setattr(loop.trainer, "step", watched)
        monkeypatch.setattr(jax, "block_until_ready", waited)
        found = loop.full_block(100, stop=stop)
        end = 4 + -(-34 // per_dispatch) * per_dispatch
        assert loop.iteration == end
        assert 0 < max(in_flight) < max(IN_FLIGHT, 2 * per_dispatch)
        assert expected[4:end] == found
        assert loop.full_block(1, stop=lambda: True) == expected[end : end + 1]
        assert loop.full_block(100, stop=lambda: True) == expected[end + 1 : end + 2]
        assert loop.full_block(12) == expected[end + 2 : end + 14]


def test_the_backend_chooses_the_dispatch(tiny: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"encoder": "mf", "dimension": 8}
    configs = [complete(small | {"iterations_per_dispatch": asked}) for asked in (0, 3)]
    trainers = [Trainer.create(config, tiny)[0] for config in configs]
    assert [trainer.per_dispatch for trainer in trainers] == [1, 3]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert [trainer.per_dispatch for trainer in trainers] == [8, 3]
    assert complete({"iterations_per_dispatch": "4"}).iterations_per_dispatch == 4
    with pytest.raises(UsageError, match="iterations_per_dispatch"):
        complete({"iterations_per_dispatch": -1})


@pytest.mark.parametrize("per_dispatch", [1, 3])
def test_a_large_state_is_not_copied_to_compile(
    tiny: Dataset, per_dispatch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory may hold no second state; the losses are the same, and no step is compiled twice."""
    with loop_for(tiny, per_dispatch) as loop:
        expected = loop.full_block(7)
    monkeypatch.setattr(timed, "LARGE_STATE", 0)
    monkeypatch.setattr(timed, "copy_state", None)
    with loop_for(tiny, per_dispatch) as loop:
        assert loop.full_block(7) == expected
