"""The step of cheap encoders over the machine's limit: bytes and flops at its measured rates.

The limit counts what an iteration cannot do without: it reads and writes the weights and both
moments of the distinct users and words of its batch once, and multiplies users by items three
times. Rates are the best of a copy of rows and of a product of the batch's shapes.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ncfbench.config import complete
from ncfbench.data import open_dataset
from ncfbench.models.towers import DeviceContent
from ncfbench.training.loop import timed_loops

TARGET, BLOCKS, ITERATIONS = 2.0, 40, 4
WIDTHS = 100, 300


def best_seconds(function: Callable[..., Any], *arguments: Any) -> float:
    """Return the least seconds of a compiled call."""
    call, seconds = jax.jit(function), []
    for _ in range(BLOCKS + 1):
        begin = time.perf_counter()
        jax.block_until_ready(call(*arguments))
        seconds.append(time.perf_counter() - begin)
    return min(seconds[1:])


def rows(datasets: Iterable[str]) -> Iterator[tuple[str, float, float]]:
    """Yield the least time of the step over the limit, for vectors of each length."""
    for name, width in itertools.product(datasets, WIDTHS):
        given = {"dataset": name, "encoder": "bow", "bare_bag": True, "features": "ignore"}
        given |= {"loss": "softmax", "sampler": "strat-ns"}
        config = complete(given | {"dimension": width, "word_dimension": width})
        dataset = open_dataset(name)
        content = DeviceContent.of(dataset, [config])
        with timed_loops(dataset, content, {name: config}) as loops:
            loop, times = loops[name], []
            loop.full_block(ITERATIONS)
            batch = next(loop.sampler.batches(0, loop.item_slots))
            for _ in range(BLOCKS):
                loop.take_samples()
                loop.step_block(ITERATIONS)
                times.append(loop.samples[-1].seconds / ITERATIONS)
        words = np.unique(dataset.tokens_IxL[batch.items[: batch.n_items]])
        distinct = len(np.unique(batch.users)) + np.count_nonzero(words)
        links, slots, table = len(batch.pos_user), len(batch.items), jnp.ones((2**14, width))
        rate = 2 * table.nbytes / best_seconds(lambda table: table + 1, table)
        users, items = jnp.ones((links, width)), jnp.ones((slots, width))
        product = best_seconds(lambda users, items: users @ items.T, users, items)
        limit = 6 * 4 * width * distinct / rate + 3 * product
        what = f"{name}, {width}: {1e3 * min(times):.2f} ms, limit {1e3 * limit:.2f} ms"
        yield what, float(min(times) / limit), TARGET
