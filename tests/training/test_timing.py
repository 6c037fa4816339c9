"""Clocks: a planted delay shows where it belongs; the sampler holds still off the clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jax
import pytest

from ncfbench.config import complete
from ncfbench.data.store import Dataset
from ncfbench.errors import CheckFailedError
from ncfbench.models.towers import Content
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.sampling.batch import Batch
from ncfbench.training.interleave import interleave
from ncfbench.training.loop import IN_FLIGHT, TimedLoop
from ncfbench.training.prefetch import Prefetcher
from ncfbench.training.step import Trainer


def counting(log: list[int], pause: float = 0.0) -> Iterator[Any]:
    number = 0
    while True:
        time.sleep(pause)
        log.append(number)
        yield number
        number += 1


def test_prefetcher_keeps_the_order_and_builds_only_while_it_may() -> None:
    log: list[int] = []
    with Prefetcher(counting(log), lambda item: item, depth=3) as prefetcher:
        time.sleep(0.05)
        assert log == [], "nothing is built before the clock runs"
        prefetcher.resume()
        assert [prefetcher.get() for _ in range(5)] == [0, 1, 2, 3, 4]
        prefetcher.request_pause()
        prefetcher.wait_until_paused()
        built = len(log)
        assert built <= 5 + 3
        time.sleep(0.05)
        assert len(log) == built, "built off the clock"
        prefetcher.resume()
        assert prefetcher.get() == 5


def test_prefetcher_hands_over_the_error_of_its_thread() -> None:
    def broken() -> Iterator[Any]:
        yield 1
        raise ValueError("planted")

    with Prefetcher(broken(), lambda item: item) as prefetcher:
        prefetcher.resume()
        assert prefetcher.get() == 1
        with pytest.raises(ValueError, match="planted"):
            prefetcher.get()


class SlowSampler:
    """A sampler with a delay in every batch."""

    def __init__(self, sampler: Any, seconds: float) -> None:
        self.sampler, self.seconds = sampler, seconds

    def batches(self, start: int, capacity: int) -> Iterator[Batch]:
        for batch in self.sampler.batches(start, capacity):
            time.sleep(self.seconds)
            yield batch


def loop_for(
    dataset: Dataset, sampler: str = "ns", delay: float = 0.0, slots: int = 108, **settings: Any
) -> TimedLoop:
    config = complete(
        {"sampler": sampler, "batch_size": 64, "dimension": 8, "filters": 8, "word_dimension": 8}
        | settings
    )
    trainer, state = Trainer.create(config, dataset)
    made: Any = make_sampler(dataset.graph, config, Streams(0))
    if delay:
        made = SlowSampler(made, delay)
    return TimedLoop(trainer, state, Content.of(dataset), made, slots)


def by_kind(loop: TimedLoop, kind: str) -> list[Any]:
    return [sample for sample in loop.samples if sample.kind == kind]


def test_a_slow_sampler_shows_as_waiting_and_in_full_only(tiny: Dataset) -> None:
    with loop_for(tiny, delay=0.03) as loop:
        loop.full_block(20)
        loop.step_block()
    full, step = by_kind(loop, "full")[0], by_kind(loop, "step")[0]
    assert full.seconds >= 19 * 0.03
    assert full.waiting_seconds >= 0.8 * full.seconds
    assert full.sampling_seconds >= 20 * 0.03
    assert step.seconds / step.iterations < 0.02


def test_a_slow_step_shows_in_both_accounts(tiny: Dataset) -> None:
    with loop_for(tiny) as loop:
        loop.full_block(2)
        step = loop.trainer.step

        def slow(*arguments: Any) -> Any:
            time.sleep(0.03)
            return step(*arguments)

        loop.trainer.step = slow
        loop.samples.clear()
        loop.full_block(10)
        loop.step_block()
    for kind in ("full", "step"):
        sample = by_kind(loop, kind)[0]
        assert sample.seconds / sample.iterations >= 0.03
    full = by_kind(loop, "full")[0]
    assert full.waiting_seconds < 0.2 * full.seconds


def test_compilation_is_recorded_apart_and_growth_is_off_the_clock(growing: Dataset) -> None:
    messages: list[str] = []
    with loop_for(growing, slots=8) as loop:
        loop.say = messages.append
        loop.full_block(30)
    compiles, full = by_kind(loop, "compile"), by_kind(loop, "full")
    assert len(compiles) == loop.trainer.traces > 1
    assert len(full) == 1
    assert full[0].seconds < min(sample.seconds for sample in compiles), (
        "a compilation is on the clock"
    )
    assert len(messages) == len(compiles) - 1
    assert loop.item_slots == int(max(messages[-1].split()[i] for i in (3,)).replace(",", ""))


def test_little_is_in_flight_so_that_a_stop_is_soon(tiny: Dataset) -> None:
    """After ``stop`` no more than a few iterations are still to be done, however fast they were
    dispatched.
    """
    with loop_for(tiny) as loop:
        loop.full_block(2)
        pending: list[int] = []

        def stop() -> bool:
            pending.append(sum(not loss.is_ready() for loss in losses))
            return len(pending) == 50

        step, losses = loop.trainer.step, []

        def watched(*arguments: Any) -> Any:
            result = step(*arguments)
            losses.append(result[1])
            return result

        loop.trainer.step = watched
        assert len(loop.full_block(200, stop=stop)) == 50
    assert max(pending) <= IN_FLIGHT


def test_any_other_compilation_is_an_error(tiny: Dataset) -> None:
    with loop_for(tiny) as loop:
        loop.full_block(2)
        loop.content = Content(loop.content.tokens[:, :4], loop.content.lengths)
        with pytest.raises(CheckFailedError, match="compiled during timed work"):
            loop.full_block(2)


def test_the_step_account_leaves_the_training_state_alone(tiny: Dataset) -> None:
    with loop_for(tiny) as loop:
        loop.full_block(5)
        before = jax.tree.map(lambda leaf: leaf.copy(), loop.state)
        loop.step_block()
        for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(loop.state), strict=True):
            assert (old == new).all()


def test_interleaving_takes_turns_and_drops_the_first_block(tiny: Dataset) -> None:
    with loop_for(tiny) as one, loop_for(tiny, "strat-ns", slots=64) as two:
        interleave([one, two], rounds=3, block=lambda loop: 4)
        for loop in (one, two):
            assert [sample.kind for sample in loop.samples] == ["compile", *["full", "step"] * 3]
            assert [sample.first_iteration for sample in by_kind(loop, "full")] == [4, 8, 12]
