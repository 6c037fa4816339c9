"""A step with its items encoded in blocks beside the step that encodes them at once: memory by the
compiler's account, milliseconds, and how far the gradients differ.

    python benchmarks/bench_item_blocks.py --dataset citeulike --encoder gru --blocks 0,512,128

The memory is that of XLA's temporaries for the compiled step, without parameters and batch. Each
time is the median of ``--rounds`` steps, in turn.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from harness import TINY, Benchmark, Found
from measuring import Arm, interleaved

from ncfbench.auditing.gradients import flat
from ncfbench.config import complete
from ncfbench.data import open_dataset
from ncfbench.models.dropout import Dropout
from ncfbench.models.towers import DeviceContent
from ncfbench.reporting.table import Col, Table
from ncfbench.rng import Streams
from ncfbench.sampling import batches
from ncfbench.training.state import copy_state
from ncfbench.training.step import Trainer

COLUMNS = [
    Col("items in a block", "block"),
    Col("MiB of temporaries", "bytes", ".1f", 2**-20),
    Col("ms of a step", "seconds", ".1f", 1e3),
    Col("gradient off by", "off", ".1e"),
]


class ItemBlocks(Benchmark):
    """One cell: a data set, an encoder, and blocks of several sizes."""

    name, rounds = "item-blocks", 3

    options: ClassVar = {
        "dataset": ("synthetic", "a prepared data set"),
        "encoder": ("gru", "any encoder"),
        "sampler": ("ns", "any sampler"),
        "batch_size": (2048, "links of a batch"),
        "blocks": ("0,512,128", "items of a block; 0 for all, the first is the reference"),
        "set": ([], "NAME=VALUE, any other setting"),
    }

    def cells(self, options: argparse.Namespace) -> Mapping[str, None]:
        if options.quick:
            options.dataset, options.batch_size, options.blocks = TINY, 64, "0,16"
        return {f"{options.dataset}/{options.encoder}": None}

    def measure(self, name: str, cell: None, options: argparse.Namespace) -> Found:
        dataset = open_dataset(options.dataset, data_dir=options.data_dir)
        content = DeviceContent.of(dataset)
        names = ("dataset", "encoder", "sampler", "batch_size")
        given = {name: getattr(options, name) for name in names}
        given |= dict(text.split("=", 1) for text in options.set)
        arms: dict[str, Arm] = {}
        memory, gradients = {}, {}
        for block in options.blocks.split(","):
            config = complete({**given, "item_block": int(block)})
            trainer, state = Trainer.create(config, dataset)
            batch = next(batches(dataset.graph, config, Streams(0)))
            compiled = trainer.trace(state, batch, content).lower().compile()
            memory[block] = compiled.memory_analysis().temp_size_in_bytes
            dropout = Dropout(jnp.uint32(0), jnp.uint32(1))
            gradient = jax.jit(trainer.gradient)(state.parameters, batch, content, dropout)[1]
            gradients[block] = flat(gradient)

            def step(
                count: int, trainer: Any = trainer, state: Any = state, batch: Any = batch
            ) -> float:
                own = jax.block_until_ready(copy_state(state))
                begin = time.perf_counter()
                jax.block_until_ready(trainer.step(own, batch, content))
                return time.perf_counter() - begin

            arms[block] = step
        seconds = interleaved(arms, options.rounds)
        reference = gradients[next(iter(arms))]
        off = {
            block: float(np.linalg.norm(gradient - reference) / np.linalg.norm(reference))
            for block, gradient in gradients.items()
        }
        items = int(batch.n_items)
        return {"items": items, "bytes": memory, "seconds": seconds, "off": off}

    def tables(self, cells: Sequence[Found], environments: Mapping[str, Any]) -> list[Table]:
        views = []
        for cell in cells:
            own = cell["settings"]
            rows = [
                {
                    "block": "all" if block == "0" else f"{int(block):,}",
                    "bytes": cell["bytes"][block],
                    "seconds": statistics.median(seconds),
                    "off": cell["off"][block],
                }
                for block, seconds in cell["seconds"].items()
            ]
            what = f"{own['dataset']}, {own['encoder']}, b = {own['batch_size']:,}"
            views.append(Table.of(f"{what}, {cell['items']:,} items", COLUMNS, rows))
        return views


if __name__ == "__main__":
    ItemBlocks().main()
