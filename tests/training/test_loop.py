"""The timed loop: what is off the clock, and stops lose no batch."""

import jax
import pytest
from support.training import Trial

from ncfbench.errors import CheckFailedError
from ncfbench.models.towers import DeviceContent
from ncfbench.training import loop as timed
from ncfbench.training.loop import TimedLoop
from ncfbench.training.step import IN_FLIGHT, program_of


def loop_for(dataset, *, slots=110, **settings):
    """A loop of free vectors, which compile soonest."""
    small = {"batch_size": 64, "dimension": 8, "filters": 8, "word_dimension": 8, "negatives": 2}
    usual = {"encoder": "mf", "sampler": "ns"}
    trial = Trial(dataset, small | usual | settings)
    return TimedLoop(trial.trainer, trial.state, trial.content, trial.sampler, slots)


def by_kind(loop, kind):
    return [sample for sample in loop.samples if sample.kind == kind]


def only_compiling_takes_time(loop, monkeypatch):
    """A clock that each compilation moves on by a second, and nothing else."""
    monkeypatch.setattr("time.perf_counter_ns", lambda: loop.trainer.traces * 10**9)


def test_growth_is_compiled_off_the_clock(growing, monkeypatch):
    """And the *step* account takes batches of several capacities."""
    messages: list[str] = []
    with loop_for(growing, slots=8) as loop:
        loop.say = messages.append
        only_compiling_takes_time(loop, monkeypatch)
        while len({len(batch.items) for batch in loop._recent}) < 2:
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
        with pytest.raises(CheckFailedError, match="compiled during timed work"):
            loop.content = DeviceContent(loop.content.tokens[:, :3], loop.content.lengths)
            loop.full_block(3)


def test_a_stop_is_soon_and_loses_no_batch(tiny, monkeypatch):
    """``stop`` is called once for each iteration, and few iterations are in flight, however fast
    they were dispatched.
    """
    with loop_for(tiny) as whole:
        expected = whole.full_block(60)
    with loop_for(tiny) as loop:
        loop.full_block(4)
        dispatched: dict[int, int] = {}
        in_flight: list[int] = []
        step, wait = loop.trainer.step, jax.block_until_ready

        def watched(*arguments):
            result = step(*arguments)
            dispatched[id(result[1])] = result[1].size
            return result

        def waited(value):
            dispatched.pop(id(value), None)
            return wait(value)

        def stop():
            in_flight.append(sum(dispatched.values()))
            return loop.iteration >= 38

        monkeypatch.setattr(loop.trainer, "step", watched)
        monkeypatch.setattr(jax, "block_until_ready", waited)
        found = loop.full_block(100, stop=stop)
        assert loop.iteration == 38
        assert 0 < max(in_flight) < IN_FLIGHT
        assert expected[4:38] == found
        assert loop.full_block(1, stop=lambda: True) == expected[38:39]
        assert loop.full_block(100, stop=lambda: True) == expected[39:40]
        assert loop.full_block(12) == expected[40:52]


def test_a_large_state_is_not_copied_to_compile(tiny, monkeypatch):
    """Memory may hold no second state; the losses are the same, and no step is compiled twice."""
    with loop_for(tiny) as loop:
        expected = loop.full_block(7)
    program_of.cache_clear()
    monkeypatch.setattr(timed, "free_bytes", lambda: 0)
    monkeypatch.setattr(timed, "copy_state", None)
    with loop_for(tiny) as loop:
        assert loop.full_block(7) == expected
