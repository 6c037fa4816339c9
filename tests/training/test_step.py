"""The training step, Adam on the sampled objective for every sampler, loss and encoder; and the
loop and feed: what is off the clock, and stops lose no batch.
"""

import itertools
import threading
from concurrent.futures import wait
from contextlib import closing
from functools import partial
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.processes import SMALL
from support.training import FROM_SCRATCH, Trial

from ncfbench.auditing.gradients import flat
from ncfbench.catalog import SAMPLERS, find_sampler, losses_for
from ncfbench.config import complete
from ncfbench.errors import CheckFailedError
from ncfbench.models.dropout import Dropout, rates_of
from ncfbench.models.towers import DeviceContent
from ncfbench.training.feed import Feed
from ncfbench.training.loop import TimedLoop
from ncfbench.training.probe import Probe
from ncfbench.training.state import copy_state
from ncfbench.training.step import IN_FLIGHT, Program, Trainer


def settings(**more):
    return complete(SMALL | more)


def test_the_step_is_adam_on_the_gradient(tiny):
    """With bias correction the first update is lr g / (|g| + eps); weight decay spares biases."""
    more = {"sampler": "ns", "encoder": "bow", "word_dropout": 0.0, "item_dropout": 0.0}
    trial = Trial(tiny, settings(**more, learning_rate=0.05, weight_decay=0.5))
    trial.add_noise(0.1)
    batch = next(trial.batches())
    _, gradient = trial.gradient(batch)
    state = copy_state(trial.state._replace(parameters=trial.parameters))
    after, _ = trial.trainer.step(state, batch, trial.content)
    leaves = map(jax.tree.leaves, (trial.parameters, gradient, after.parameters))
    for before, g, actual in zip(*leaves, strict=True):
        step = g / (np.abs(g) + 1e-8) + 0.5 * np.asarray(before) * (before.ndim > 1)
        np.testing.assert_allclose(actual, before - 0.05 * step, atol=2e-6)


def test_padding_slots_change_nothing(tiny):
    """More capacity: the same loss and gradient, dropout included."""
    trial = Trial(tiny, settings(sampler="strat-ns", encoder="bow"))
    dropout = Dropout(jnp.uint32(0), jnp.uint32(3), rates_of(trial.config))
    value, gradient = trial.gradient(trial.batch(0), dropout)
    more, same = trial.gradient(trial.batch(0, 150), dropout)
    assert value == pytest.approx(more, rel=1e-6)
    gradient, same = flat(gradient), flat(same)
    assert np.linalg.norm(gradient - same) < 1e-6 * np.linalg.norm(gradient)


COMBINATIONS = [(s, loss, "mf") for s in SAMPLERS for loss in losses_for(find_sampler(s))]
COMBINATIONS += [("ns", "sg", encoder) for encoder in FROM_SCRATCH if encoder != "mf"]


@pytest.mark.long_cases(r"(?!strat-ns-(hinge|mse|softmax)-mf|neg-sg-mf|ns-sg-bow)")
@pytest.mark.parametrize(("sampler", "loss", "encoder"), COMBINATIONS)
def test_every_combination_lowers_the_probe(tiny, sampler, loss, encoder):
    """The paper's learning rates, dropout on, one compilation; the probe is exact."""
    trial = Trial(tiny, settings(sampler=sampler, loss=loss, encoder=encoder))
    trainer, state = trial.trainer, trial.state
    probe = Probe(tiny.graph, trial.config, trial.embedder)
    assert len(probe.links.user) == tiny.graph.n_links, "exact"
    before = probe(state.parameters)
    # Free vectors, which begin near zero, leave it slowest with these losses.
    is_slow = encoder == "mf" and loss in ("mse", "softmax", "softmax-logq")
    count = (120 if loss == "mse" else 40) * (5 if is_slow else 1)
    for batch in islice(trial.batches(), count):
        state, _ = trainer.step(state, batch, trial.content)
    assert trainer.traces == 1
    assert int(state.iteration) == count
    assert probe(state.parameters) < 0.97 * before


@pytest.mark.parametrize(
    "more",
    [
        {"encoder": "bow"},
        {"encoder": "bow", "optimizer": "row-adam"},
        {"encoder": "bow", "optimizer": "adagrad", "user_tower": "history"},
    ],
    ids=lambda more: "-".join(more.values()),
)
def test_runs_that_differ_in_numbers_share_a_program(tiny, more):
    """It trains each as a program of its own does, to the last bit; others have another one."""
    small = {"sampler": "ns", "loss": "softmax", "batch_size": 48} | more
    first = Trial(tiny, settings(**small, weight_decay=0.1, word_dropout=0.4))
    first.trainer.step(copy_state(first.state), first.batch(0, 150), first.content)
    numbers = {"learning_rate": 0.03, "weight_decay": 0.5, "word_dropout": 0.2, "seed": 3}
    other = Trial(tiny, settings(**small, **numbers, item_dropout=0.3))
    assert other.trainer.towers == first.trainer.towers
    own = Program(other.trainer)
    for number in range(3):
        batch, before = other.batch(number, 150), copy_state(other.state)
        expected, loss = own.step(before, batch, other.content, other.trainer.scalars)
        other.state, same = other.trainer.step(other.state, batch, other.content)
        assert same == loss
        for one, two in zip(*map(jax.tree.leaves, (expected, other.state)), strict=True):
            np.testing.assert_array_equal(one, two)
    assert other.trainer.traces == first.trainer.traces == 1
    for more in ({"item_dropout": 0.0}, {"gamma": 3.0}, {"dimension": 5}, {"batch_size": 40}):
        different = Trial(tiny, settings(**(small | numbers | more)))
        assert different.trainer.traces == 0, more


def test_a_state_is_copied_by_one_program(tiny, caplog):
    """Not by one for each shape: a short run would mostly compile."""
    _, state = Trainer.create(complete({"encoder": "cnn", "dimension": 7, "filters": 9}), tiny)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        copied = copy_state(state)
    assert sum(text.startswith("Finished XLA compilation") for text in caplog.messages) == 1
    for one, other in zip(jax.tree.leaves(copied), jax.tree.leaves(state), strict=True):
        assert one is not other
        assert np.array_equal(one, other)


# The timed loop and its feed


def loop_for(dataset, slots=110):
    """A loop of free vectors, which compile soonest."""
    trial = Trial(dataset, settings(encoder="mf", sampler="ns"))
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
        for words, work in ((4, loop.step_block), (3, partial(loop.full_block, 3))):
            loop.content = DeviceContent(loop.content.tokens[:, :words], loop.content.lengths)
            with pytest.raises(CheckFailedError, match="compiled during timed work"):
                work()


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
