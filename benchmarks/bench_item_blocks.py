"""A step with its items encoded in blocks beside the step that encodes them at once: memory by the
compiler's account, milliseconds, and how far the gradients differ.

    python benchmarks/bench_item_blocks.py --dataset citeulike --encoder gru --blocks 0,512,128

The memory is that of XLA's temporaries for the compiled step, without parameters and batch. Each
time is the median of ``--rounds`` steps, one way after the other in each round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from ncfbench.auditing.gradients import flat
from ncfbench.config import complete
from ncfbench.data import open_dataset
from ncfbench.models.dropout import Dropout
from ncfbench.models.towers import DeviceContent
from ncfbench.reporting.render.terminal import make_console
from ncfbench.reporting.render.terminal import show as print_table
from ncfbench.reporting.table import Table
from ncfbench.rng import Streams
from ncfbench.sampling import batches
from ncfbench.training.state import copy_state
from ncfbench.training.step import Trainer


def main() -> None:
    """Print a row for each size of the blocks."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dataset", default="synthetic")
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--encoder", default="gru")
    parser.add_argument("--sampler", default="ns")
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--blocks", default="0,512,128", help="the first is the reference")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    dataset = open_dataset(given.dataset, data_dir=given.data_dir)
    content, ways = DeviceContent.of(dataset), []
    settings = {"encoder": given.encoder, "sampler": given.sampler, "batch_size": given.batch_size}
    settings |= dict(each.split("=", 1) for each in given.set)
    for block in map(int, given.blocks.split(",")):
        config = complete({**settings, "dataset": given.dataset, "item_block": block})
        trainer, state = Trainer.create(config, dataset)
        batch = next(batches(dataset.graph, config, Streams(0)))
        compiled = trainer.trace(state, batch, content).lower().compile()
        memory = compiled.memory_analysis().temp_size_in_bytes
        dropout = Dropout(jnp.uint32(0), jnp.uint32(1))
        gradient = flat(jax.jit(trainer.gradient)(state.parameters, batch, content, dropout)[1])
        ways.append((block, trainer, state, batch, memory, gradient))
    seconds: list[list[float]] = [[] for _ in ways]
    for turn in range(given.rounds + 1):
        for times, (_, trainer, state, batch, *_) in zip(seconds, ways, strict=True):
            own = copy_state(state)
            jax.block_until_ready(own)
            begin = time.perf_counter()
            jax.block_until_ready(trainer.step(own, batch, content))
            if turn:  # the first round compiles
                times.append(time.perf_counter() - begin)
    reference = ways[0][-1]
    rows = [
        [
            "all" if block == 0 else f"{block:,}",
            f"{memory / 2**20:.1f}",
            f"{1e3 * statistics.median(times):.1f}",
            f"{np.linalg.norm(gradient - reference) / np.linalg.norm(reference):.1e}",
        ]
        for times, (block, *_, memory, gradient) in zip(seconds, ways, strict=True)
    ]
    items = int(ways[0][3].n_items)
    title = f"{given.dataset}, {given.encoder}, b = {given.batch_size:,}, {items:,} items"
    header = ["items in a block", "MiB of temporaries", "ms of a step", "gradient off by"]
    print_table(make_console(), Table(title, header, rows, labels=1, name="item-blocks"))


if __name__ == "__main__":
    main()
