"""The thread that builds batches ahead."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from ncfbench.training.prefetch import Prefetcher


def counting(log: list[int]) -> Iterator[Any]:
    number = 0
    while True:
        log.append(number)
        yield number
        number += 1


def test_the_order_is_kept_and_a_pause_stops_building() -> None:
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


def test_an_error_of_the_thread_is_raised_by_get() -> None:
    def broken() -> Iterator[Any]:
        yield 1
        raise ValueError("planted")

    with Prefetcher(broken(), lambda item: item) as prefetcher:
        prefetcher.resume()
        assert prefetcher.get() == 1
        with pytest.raises(ValueError, match="planted"):
            prefetcher.get()
