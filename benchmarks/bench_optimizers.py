"""An iteration where tables are large: Adam over whole tables, and over a batch's rows.

    python benchmarks/bench_optimizers.py --users 20000,1000000,10000000 --json FILE

The links and texts are those of a data set; its users, or its words, are spread over a table of
each size. An iteration draws a batch of 512 links (strat-ns, bag of words, skip-gram loss,
D = 50) and takes a step; all arms of a cell take turns. Before they are timed, a few iterations of
both optimisers are compared. Target: with 10^6 rows updated by row at most 1.5 times the quickest
iteration of the smallest table, with 10^7 at most 2 times.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, ClassVar

import jax
import numpy as np
from harness import TINY, Benchmark, Found, machine
from measuring import Arm, block, interleaved, peak_bytes

from ncfbench.config import complete
from ncfbench.data.store import Dataset, load
from ncfbench.data.text import Texts, Vocabulary
from ncfbench.errors import CheckFailedError
from ncfbench.models.towers import DeviceContent
from ncfbench.reporting.formats import interval
from ncfbench.reporting.table import Col, Table
from ncfbench.timing import allocator
from ncfbench.training.loop import TimedLoop, timed_loops

SETTINGS = {"sampler": "strat-ns", "encoder": "bow", "loss": "sg", "batch_size": 512}
OPTIMIZERS = ("adam", "row-adam")
DENSE_ROWS = 10**6
"""Rows of the largest table that is updated whole."""
MOST_RATIO = {10**6: 1.5, 10**7: 2.0}
"""Targets, by the rows up to which they hold."""
CHECKED = 5
"""Iterations of both optimisers that are compared."""
BLOCK_SECONDS = 0.5
COLUMNS = [
    Col("table", "kind"),
    Col("rows", "rows", ","),
    Col("adam ms", "adam", ".2f"),
    Col("row-adam ms", "row-adam", ".2f"),
    Col("min..max", "range", interval(".2f")),
    Col("over the smallest", "ratio", ".2f"),
]


class Optimizers(Benchmark):
    """A cell for users and one for words, with all sizes in turn."""

    name = "optimizers"

    options: ClassVar = {
        "users": ("20000,1000000", "rows of tables by user"),
        "words": ("20000,1000000", "rows of tables by word"),
        "dataset": ("synthetic", "whose links and texts are spread"),
    }

    def cells(self, options: argparse.Namespace) -> Mapping[str, list[int]]:
        if options.quick:
            options.users, options.words, options.dataset = "200,5000", "200,5000", TINY
        return {
            kind: sorted(map(int, getattr(options, kind).split(","))) for kind in ("users", "words")
        }

    def measure(self, name: str, cell: list[int], options: argparse.Namespace) -> Found:
        dataset, arms = load(options.data_dir, options.dataset), dict[str, Arm]()
        with ExitStack() as stack:
            for rows in cell:
                spread = {"users": with_users, "words": with_words}[name](dataset, rows)
                configs = {each: complete({**SETTINGS, "optimizer": each}) for each in OPTIMIZERS}
                if rows > DENSE_ROWS:
                    del configs["adam"]
                content = DeviceContent.of(spread, [*configs.values()])
                loops = stack.enter_context(timed_loops(spread, content, configs))
                if rows == cell[0] <= DENSE_ROWS:
                    check_alike([*loops.values()])
                arms |= {f"{each} {rows}": partial(block, loops[each], "full") for each in loops}
            block_seconds = 0.0 if options.quick else BLOCK_SECONDS
            seconds = interleaved(arms, options.rounds, block_seconds)
        return {"seconds": seconds, "peak_bytes": peak_bytes()}

    def missed(self, cells: Sequence[Found]) -> list[str]:
        return [
            f"{row['rows']:,} {row['kind']}: {row['ratio']:.2f} times the smallest"
            for cell in cells
            for row in rows_of(cell)
            if row["ratio"]
            > next((most for rows, most in MOST_RATIO.items() if row["rows"] <= rows))
        ]

    def tables(self, cells: Sequence[Found], environments: Mapping[str, Any]) -> Iterator[Table]:
        where = environments[cells[0]["environment_key"]]
        peak = max(cell["peak_bytes"] for cell in cells) / 2**30
        notes = [
            f"Medians of {cells[0]['rounds']} rounds; peak {peak:.1f} GiB.",
            f"{machine(where, 'jax', 'optax')}, load {where['load_average'][0]:.1f}",
        ]
        title = "An iteration: strat-ns, bag of words, b = 512, D = 50"
        rows = [row for cell in cells for row in rows_of(cell)]
        yield Table.of(title, COLUMNS, rows, notes, labels=2, grouped=1)


def rows_of(cell: Found) -> Iterator[dict[str, Any]]:
    """Yield the rows of a cell's table, the smallest first, in milliseconds."""
    seconds = {tuple(name.split()): own for name, own in cell["seconds"].items()}
    sizes = sorted({int(rows) for _, rows in seconds})
    least = min(
        statistics.median(own) for (_, rows), own in seconds.items() if int(rows) == sizes[0]
    )
    for rows in sizes:
        by_row, whole = (seconds.get((name, str(rows))) for name in ("row-adam", "adam"))
        assert by_row is not None
        median = statistics.median(by_row)
        yield {
            "kind": cell["cell"],
            "rows": rows,
            "adam": None if whole is None else 1e3 * statistics.median(whole),
            "row-adam": 1e3 * median,
            "range": (1e3 * min(by_row), 1e3 * max(by_row)),
            "ratio": median / least,
        }


def with_users(dataset: Dataset, rows: int) -> Dataset:
    """Give each link a user at random, of so many; links that fall together are one."""
    drawn = np.random.default_rng(0).integers(0, rows, len(dataset.users))
    users, items = np.unique([drawn, dataset.items], axis=1).astype(np.int32)
    return dataclasses.replace(dataset, n_users=rows, users=users, items=items)


def with_words(dataset: Dataset, rows: int) -> Dataset:
    """Draw the words of all texts anew from so many, log-uniformly, as Zipf's law has it."""
    rng, words = np.random.default_rng(0), dataset.texts.words
    drawn = np.exp(rng.uniform(0, np.log(rows + 1), len(words))).astype(np.int32)
    texts = Texts(np.clip(drawn, 1, rows), dataset.texts.lengths)
    return dataclasses.replace(
        dataset, texts=texts, vocabulary=Vocabulary(("",) * rows, (1,) * rows)
    )


def check_alike(loops: Sequence[TimedLoop]) -> None:
    """Check that both optimisers lead to the same parameters, up to rounding.

    Raises:
        CheckFailedError: they do not.
    """
    for loop in loops:
        loop.full_block(CHECKED)
        loop.settle()
    after = [jax.tree.leaves(loop.state.parameters) for loop in loops]
    gaps = [float(np.abs(one - other).mean()) for one, other in zip(*after, strict=True)]
    if max(gaps) > 1e-4:
        raise CheckFailedError(f"row-adam and adam disagree: {max(gaps):.2g} on average.")


if __name__ == "__main__":
    allocator.restart()
    Optimizers().main()
