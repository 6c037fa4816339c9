"""Draw docs/batches.svg: one batch of each sampler on a small graph, as the links that it scores.

Repeat with ``python docs/draw_batches.py`` (needs the ``plots`` extra).
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("svg")
import matplotlib.pyplot as plt

from ncfbench.catalog import find_sampler
from ncfbench.config import complete
from ncfbench.data.graph import BipartiteGraph
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.sampling.batch import Batch, Shared

SAMPLERS = ("iid", "neg", "strat", "ns", "strat-ns")
USERS, ITEMS, LINKS = 24, 26, 110
SETTINGS = {"batch_size": 8, "stratum_size": 4, "negatives": 3, "loss": "sg"}
POSITIVE, NEGATIVE, LINE = "#1b6ca8", "#f2a65a", "#d0d0d0"


def graph(seed: int = 3) -> BipartiteGraph:
    """Return a graph in which a few items have most links."""
    rng = np.random.default_rng(seed)
    popularity = 1 / np.sqrt(np.arange(1, ITEMS + 1))
    items = rng.choice(ITEMS, size=4 * LINKS, p=popularity / popularity.sum())
    pairs = np.unique(np.stack([rng.integers(USERS, size=4 * LINKS), items]), axis=1)
    links = rng.permutation(pairs, axis=1)[:, :LINKS]
    return BipartiteGraph.from_links(links[0], links[1], USERS, ITEMS)


def scored(batch: Batch) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Return the positive and the negative links of a batch as pairs of user and item ids."""
    users, items = batch.users, batch.items
    positive = set(zip(users[batch.pos_user], items[batch.pos_item], strict=True))
    negatives = batch.negatives
    if isinstance(negatives, Shared):
        rows, columns = np.nonzero(negatives.weight)
        negative = set(zip(users[batch.pos_user[rows]], items[columns], strict=True))
    else:
        used = negatives.weight > 0
        negative = set(zip(users[negatives.user[used]], items[negatives.item[used]], strict=True))
    return positive, negative - positive


def main() -> None:
    """Draw all samplers beside each other and write the file."""
    plt.rcParams |= {"font.size": 8, "svg.fonttype": "none", "svg.hashsalt": "ncfbench"}
    figure, axes = plt.subplots(1, len(SAMPLERS), figsize=(12, 2.9), layout="constrained")
    links = graph()
    for axis, name in zip(axes, SAMPLERS, strict=True):
        sampler = make_sampler(links, complete(SETTINGS | {"sampler": name}), Streams(1))
        positive, negative = scored(next(sampler.batches()))
        cells = np.full((USERS, ITEMS), np.nan)
        for pairs, value in ((negative, 0.0), (positive, 1.0)):
            for user, item in pairs:
                cells[user, item] = value
        colours = matplotlib.colors.ListedColormap([NEGATIVE, POSITIVE])
        axis.imshow(cells, cmap=colours, vmin=0, vmax=1)
        axis.set_xticks(np.arange(-0.5, ITEMS), minor=True)
        axis.set_yticks(np.arange(-0.5, USERS), minor=True)
        axis.grid(which="minor", color=LINE, linewidth=0.5)
        axis.tick_params(which="both", length=0, labelbottom=False, labelleft=False)
        items = len({item for _, item in positive | negative})
        users = len({user for user, _ in positive | negative})
        axis.set_title(find_sampler(name).title)
        axis.set_xlabel(
            f"{users} users, {items} items encoded\n"
            f"{len(positive)} positive, {len(negative)} negative links"
        )
    axes[0].set_ylabel("users")
    figure.savefig(Path(__file__).with_name("batches.svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
