"""The sum over all users and its gradient, beside the matrix products that it cannot do without.

    python benchmarks/bench_all_users.py --users 5551 --items 160,495

The three products are the scores of all users and items, and the gradients of users and of items;
what the sum takes beyond them is the loss, its derivative and the weights. Each time is the median
of ``--rounds`` calls, one way after the other in each round.
"""

from __future__ import annotations

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from ncfbench.models.all_users import fused_sum
from ncfbench.models.losses import SkipGram
from ncfbench.reporting.render.terminal import make_console
from ncfbench.reporting.render.terminal import show as print_table
from ncfbench.reporting.table import Table
from ncfbench.sampling.batch import MetUsers


def main() -> None:
    """Print a row for each number of items."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=5551)
    parser.add_argument("--items", default="160,495")
    parser.add_argument("--dimension", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=100)
    given = parser.parse_args()
    ways = {
        "sum": jax.jit(jax.value_and_grad(lambda f, g, n: fused_sum(SkipGram(), f, g, n), (0, 1))),
        "products": jax.jit(products),
    }
    rows = []
    for items in map(int, given.items.split(",")):
        arrays = example(given.users, items, given.dimension)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(given.rounds + 1):
            for name, way in ways.items():
                begin = time.perf_counter()
                jax.block_until_ready(way(*arrays))
                if turn:  # the first round compiles
                    times[name].append(time.perf_counter() - begin)
        found = {name: 1e3 * statistics.median(each) for name, each in times.items()}
        share = found["products"] / found["sum"]
        rows.append(
            [f"{items:,}", *(f"{each:.2f}" for each in found.values()), f"{100 * share:.0f}"]
        )
    title = f"{given.users:,} users, D = {given.dimension}, skip-gram loss, forward and backward"
    header = ["items", "ms of the sum", "ms of three products", "share %"]
    print_table(make_console(), Table(title, header, rows, labels=1, name="all-users"))


def example(users: int, items: int, dimension: int) -> tuple[jax.Array, jax.Array, MetUsers]:
    """Return random vectors, and even weights with one linked pair in a hundred."""
    rng = np.random.default_rng(0)
    f, g = (jnp.asarray(rng.normal(size=(n, dimension)), jnp.float32) for n in (users, items))
    pairs = rng.choice(users * items, size=users * items // 100, replace=False)
    linked_user, linked_item = (jnp.asarray(each, jnp.int32) for each in divmod(pairs, items))
    of_users, of_items = (jnp.full(n, 1 / n, jnp.float32) for n in (users, items))
    return f, g, MetUsers(of_users, of_items, linked_user, linked_item)


def products(f: jax.Array, g: jax.Array, negatives: MetUsers) -> tuple[jax.Array, jax.Array]:
    """Return the gradients that equal derivatives of all scores would give."""
    scores = f @ g.T
    return scores @ g, scores.T @ f


if __name__ == "__main__":
    main()
