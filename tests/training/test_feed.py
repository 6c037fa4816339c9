"""Where the training loop gets its batches: from a thread that builds ahead, or on demand."""

import itertools
import threading
from concurrent.futures import wait
from contextlib import closing

import pytest

from ncfbench.training.feed import Feed


def counting(log, go):
    """Yield the numbers from 0 on; what follows the fifth waits."""
    for number in itertools.count():
        if number == 5:
            go.wait()
        log.append(number)
        yield number


def test_the_order_is_kept_and_a_pause_stops_building(monkeypatch):
    log, go = list[int](), threading.Event()
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
    log, moved = list[int](), list[int]()
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
