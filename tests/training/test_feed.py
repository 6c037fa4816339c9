"""Where the training loop gets its batches: from a thread that builds ahead, or on demand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from ncfbench.training.feed import Feed


def counting(log: list[int]) -> Iterator[Any]:
    number = 0
    while True:
        log.append(number)
        yield number
        number += 1


def test_the_order_is_kept_and_a_pause_stops_building() -> None:
    log: list[int] = []
    with closing(Feed(counting(log), lambda item: item, depth=3)) as feed:
        time.sleep(0.05)
        assert log == [], "nothing is built before the clock runs"
        feed.resume()
        assert [feed.get() for _ in range(5)] == [0, 1, 2, 3, 4]
        feed.pause()
        built = len(log)
        assert built <= 5 + 3
        time.sleep(0.05)
        assert len(log) == built, "built off the clock"
        feed.resume()
        assert feed.get() == 5


@pytest.mark.parametrize("depth", [0, 8])
def test_an_error_of_a_batch_is_raised_by_get(depth: int) -> None:
    def broken() -> Iterator[Any]:
        yield 1
        raise ValueError("planted")

    with closing(Feed(broken(), lambda item: item, depth)) as feed:
        feed.resume()
        assert feed.get() == 1
        with pytest.raises(ValueError, match="planted"):
            feed.get()


def test_a_direct_feed_builds_what_is_asked_for_and_times_it() -> None:
    log: list[int] = []

    def slow(item: Any) -> Any:
        time.sleep(0.02)
        return -item

    with closing(Feed(counting(log), slow)) as feed:
        feed.resume()
        assert [feed.get() for _ in range(3)] == [0, -1, -2]
        feed.pause()
    assert log == [0, 1, 2]
    assert feed.transfer_seconds >= 0.06 > feed.sampling_seconds
