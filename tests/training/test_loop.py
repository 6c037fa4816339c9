"""The timed loop and its feed: what is off the clock, and stops lose no batch."""

import itertools
import threading
from concurrent.futures import wait
from contextlib import closing

import jax
import pytest
from support.training import Trial

from ncfbench.errors import CheckFailedError
from ncfbench.models.towers import DeviceContent
from ncfbench.training.feed import Feed
from ncfbench.training.loop import TimedLoop
from ncfbench.training.step import IN_FLIGHT


def loop_for(dataset, *, slots=110, **settings):
    """A loop of free vectors, which compile soonest."""
    small = {"batch_size": 64, "dimension": 8, "filters": 8, "word_dimension": 8, "negatives": 2}
    usual = {"encoder": "mf", "sampler": "ns"}
    trial = Trial(dataset, small | usual | settings)
    return TimedLoop(trial.trainer, trial.state, trial.content, trial.sampler, slots)


def by_kind(loop, kind):
    return [sample for sample in loop.samples if sample.kind == kind]


def test_growth_is_compiled_off_the_clock(growing, monkeypatch):
    """By a clock that compilations alone move on, by a second each."""
    messages = []
    with loop_for(growing, slots=8) as loop:
        loop.say = messages.append
        monkeypatch.setattr("time.perf_counter_ns", lambda: loop.trainer.traces * 10**9)
        while len({len(batch.items) for batch in loop._recent}) < 2:
            assert loop.iteration < 40
            loop.full_block(3)
        loop.step_block(20)
        assert by_kind(loop, "step")[-1].iterations == 20
        loop.full_block(40 - loop.iteration)
        compiles, full = by_kind(loop, "compile"), by_kind(loop, "full")
        assert loop.trainer.traces == len(compiles) > 1
        assert sum(sample.iterations for sample in full) == 40
        assert sum(sample.seconds for sample in full) == 0, "a compilation is on the clock"
        assert sum(sample.seconds for sample in compiles) == loop.trainer.traces
        assert len(messages) == len(compiles) - 1
        assert f"{loop.item_slots} item slots" in messages[-1]


def test_any_other_compilation_is_an_error(tiny):
    with loop_for(tiny) as loop:
        loop.full_block(4)
        loop.content = DeviceContent(loop.content.tokens[:, :4], loop.content.lengths)
        with pytest.raises(CheckFailedError, match="compiled during timed work"):
            loop.step_block()
        loop.content = DeviceContent(loop.content.tokens[:, :3], loop.content.lengths)
        with pytest.raises(CheckFailedError, match="compiled during timed work"):
            loop.full_block(3)


def test_a_stop_is_soon_and_loses_no_batch(tiny, monkeypatch):
    """``stop`` is called once an iteration, and few are in flight."""
    with loop_for(tiny) as whole:
        expected = whole.full_block(60)
    with loop_for(tiny) as loop:
        loop.full_block(4)
        dispatched, in_flight = {}, []
        step, until_ready = loop.trainer.step, jax.block_until_ready

        def watched(*arguments):
            result = step(*arguments)
            dispatched[id(result[1])] = result[1].size
            return result

        def waited(value):
            dispatched.pop(id(value), None)
            return until_ready(value)

        def stop():
            in_flight.append(sum(dispatched.values()))
            return loop.iteration >= 38

        monkeypatch.setattr(loop.trainer, "step", watched)
        monkeypatch.setattr(jax, "block_until_ready", waited)
        actual = loop.full_block(100, stop=stop)
        assert loop.iteration == 38
        assert 0 < max(in_flight) < IN_FLIGHT
        assert expected[4:38] == actual
        assert loop.full_block(1, stop=lambda: True) == expected[38:39]
        assert loop.full_block(100, stop=lambda: True) == expected[39:40]
        assert loop.full_block(12) == expected[40:52]


def counting(log, go):
    """Yield the numbers from 0 on; what follows the fifth waits."""
    for number in itertools.count():
        if number == 5:
            go.wait()
        log.append(number)
        yield number


def test_the_order_is_kept_and_a_pause_stops_building(monkeypatch):
    log, go = [], threading.Event()
    monkeypatch.setattr("ncfbench.training.feed.wait", lambda ready: (go.set(), wait(ready)))
    with closing(Feed(counting(log, go), lambda item: item, depth=3)) as feed:
        feed._thread.submit(int).result()  # after all that was asked of the thread before
        assert log == [], "nothing is built before the clock runs"
        feed.resume()
        assert [feed.get() for _ in range(5)] == [0, 1, 2, 3, 4]
        feed.pause()
        built = len(log)
        go.set()
        feed._thread.submit(int).result()
        assert len(log) == built <= 5 + 1, "built off the clock"
        feed.resume()
        assert feed.get() == 5


@pytest.mark.parametrize("depth", [0, 8])
def test_an_error_of_a_batch_is_raised_by_get(depth):
    def broken():
        yield 1
        raise ValueError("planted")

    with closing(Feed(broken(), lambda item: item, depth)) as feed:
        feed.resume()
        assert feed.get() == 1
        with pytest.raises(ValueError, match="planted"):
            feed.get()


def test_a_direct_feed_builds_what_is_asked_for_and_times_it(monkeypatch):
    """A batch takes 1 s to build and 10 s to move."""
    log, moved = [], []
    monkeypatch.setattr("time.perf_counter", lambda: len(log) + 10 * len(moved))

    def move(item):
        moved.append(item)
        return -item

    with closing(Feed(counting(log, threading.Event()), move)) as feed:
        feed.resume()
        assert [feed.get() for _ in range(3)] == [0, -1, -2]
        feed.pause()
    assert log == [0, 1, 2]
    assert (feed.sampling_seconds, feed.transfer_seconds) == (3, 30)
