"""The sum over all users and its gradient, beside the matrix products that it cannot do without.

    python benchmarks/bench_all_users.py --users 5551 --items 160,495

The three products are the scores of all users and items, and the gradients of users and of items;
what the sum takes beyond them is the loss, its derivative and the weights. Each time is the median
of ``--rounds`` calls, in turn.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from harness import Benchmark, Found
from measuring import interleaved, timed

from ncfbench.models.all_users import fused_sum
from ncfbench.models.losses import SkipGram
from ncfbench.reporting.table import Col, Table
from ncfbench.sampling.batch import MetUsers

DIMENSION = 50
COLUMNS = [
    Col("items", "items", ","),
    Col("ms of the sum", "sum", ".2f"),
    Col("ms of three products", "products", ".2f"),
    Col("share %", "%", ".0f"),
]


class AllUsers(Benchmark):
    """A cell for each number of items."""

    name, rounds = "all-users", 100

    options: ClassVar = {"users": (5551, "users"), "items": ("160,495", "numbers of items")}

    def cells(self, options: argparse.Namespace) -> Mapping[str, int]:
        if options.quick:
            options.users, options.items = 50, "8"
        return {items: int(items) for items in options.items.split(",")}

    def measure(self, name: str, cell: int, options: argparse.Namespace) -> Found:
        arrays = example(options.users, cell, DIMENSION)
        ways = {
            "sum": jax.value_and_grad(lambda f, g, n: fused_sum(SkipGram(), f, g, n), (0, 1)),
            "products": products,
        }
        arms = {way: timed(jax.jit(function), *arrays) for way, function in ways.items()}
        return {"seconds": interleaved(arms, options.rounds)}

    def tables(self, cells: Sequence[Found], environments: Mapping[str, Any]) -> list[Table]:
        rows = []
        for cell in cells:
            whole, least = (1e3 * statistics.median(own) for own in cell["seconds"].values())
            share = 100 * least / whole
            rows.append({"items": int(cell["cell"]), "sum": whole, "products": least, "%": share})
        users = cells[0]["settings"]["users"]
        title = f"{users:,} users, D = {DIMENSION}, skip-gram loss, forward and backward"
        return [Table.of(title, COLUMNS, rows)]


def example(users: int, items: int, dimension: int) -> tuple[jax.Array, jax.Array, MetUsers]:
    """Return random vectors, and even weights with one linked pair in a hundred."""
    rng = np.random.default_rng(0)
    f, g = (jnp.asarray(rng.normal(size=(n, dimension)), jnp.float32) for n in (users, items))
    pairs = rng.choice(users * items, size=users * items // 100, replace=False)
    linked_user, linked_item = (jnp.asarray(side, jnp.int32) for side in divmod(pairs, items))
    of_users, of_items = (jnp.full(n, 1 / n, jnp.float32) for n in (users, items))
    return f, g, MetUsers(of_users, of_items, linked_user, linked_item)


def products(f: jax.Array, g: jax.Array, negatives: MetUsers) -> tuple[jax.Array, jax.Array]:
    """Return the gradients that equal derivatives of all scores would give."""
    scores = f @ g.T
    return scores @ g, scores.T @ f


if __name__ == "__main__":
    AllUsers().main()
