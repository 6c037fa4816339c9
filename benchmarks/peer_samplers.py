"""Negative samplers of other libraries, on the same graph, in turn with ours: one library and one size a process.

    python benchmarks/peer_samplers.py torch_geometric|recbole LINKS SECONDS

Prints JSON; where the library is not installed, that. Neither library needs its other dependencies for this:
pip install --no-deps --target DIR torch_geometric xxhash recbole, then PYTHONPATH=DIR.

Ours is Negative Sampling under the same noise: it draws, but also finds the batch's distinct items, masks linked pairs and
writes the weights, and makes the positive links itself. The peers are given theirs.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from big_graph import make_graph, resident_bytes

from ncfbench.config import complete
from ncfbench.graph import BipartiteGraph
from ncfbench.samplers import make_sampler
from ncfbench.streams import Streams

BATCH, NEGATIVES = 512, 10
ROUNDS = 5
Timed = Callable[[], int]
"""Draws NEGATIVES items for each of some positive links; says for how many."""


def main() -> None:
    peer, links, seconds = sys.argv[1], int(float(sys.argv[2])), float(sys.argv[3])
    try:
        importlib.import_module({"recbole": "recbole.sampler"}.get(peer, peer))
    except ImportError as error:
        print(json.dumps({"skipped": f"not installed ({error})"}))
        return
    graph = make_graph(links)
    arms = []
    for draws, noise, differs, set_up in PEERS[peer](graph):
        before, begin = resident_bytes(), time.perf_counter()
        theirs = set_up()
        setup_seconds = time.perf_counter() - begin
        held = (resident_bytes() - before) / graph.n_links
        times = in_turn(theirs, ours(graph, noise), seconds)
        arms.append(
            {
                "draws": draws,
                "differs": differs,
                "setup_seconds": setup_seconds,
                "resident_bytes": held,
                "seconds": times[0],
                "our_seconds": times[1],
            }
        )
        del theirs
    print(json.dumps({"version": importlib.metadata.version(peer), "arms": arms}))


def in_turn(theirs: Timed, ours: Timed, seconds: float) -> tuple[list[float], list[float]]:
    """Seconds of a positive link, ROUNDS each, one after the other; the first calls are not kept."""
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS + 1):
        for times, arm in zip(found, (theirs, ours), strict=True):
            begin, links = time.perf_counter(), 0
            while links == 0 or time.perf_counter() - begin < seconds / ROUNDS:
                links += arm()
                if number == 0:
                    break
            if number:
                times.append((time.perf_counter() - begin) / links)
    return found


def ours(graph: BipartiteGraph, noise: str) -> Timed:
    """Negative Sampling's next batch."""
    config = complete({"sampler": "neg", "batch_size": BATCH, "negatives": NEGATIVES, "noise": noise})
    stream = make_sampler(graph, config, Streams(0)).batches()

    def batch() -> int:
        return len(next(stream).pos_user)

    return batch


Arm = tuple[str, str, str, Callable[[], Timed]]


def torch_geometric_arms(graph: BipartiteGraph) -> Iterator[Arm]:
    """Both functions look at all links in each call, so they are called for all links at once: their cheapest use."""
    import torch
    from torch_geometric.utils import negative_sampling, structured_negative_sampling

    def edges() -> Any:
        return torch.from_numpy(np.stack([graph.link_user, graph.link_item]).astype(np.int64))

    def structured() -> Timed:
        edge_index = edges()

        def draw() -> int:
            structured_negative_sampling(edge_index, num_nodes=graph.n_items)
            # One item for each link, where the others draw NEGATIVES.
            return graph.n_links // NEGATIVES

        return draw

    def pairs() -> Timed:
        edge_index = edges()

        def draw() -> int:
            shape = (graph.n_users, graph.n_items)
            negative_sampling(edge_index, num_nodes=shape, num_neg_samples=graph.n_links, method="sparse")
            return graph.n_links // NEGATIVES

        return draw

    reject = "linked ones drawn again (ours: masked); for all links in one call"
    yield "an item for each user, uniform", "uniform", reject, structured
    yield "pairs, uniform", "uniform", "distinct unlinked pairs of any user and item, without positives", pairs


def recbole_arms(graph: BipartiteGraph) -> Iterator[Arm]:
    """Its sampler on a stand-in for its data set, a batch of users at a time. Its item 0 is padding."""
    import torch
    from recbole.sampler import Sampler

    class Links:
        uid_field, iid_field = "user", "item"
        user_num, item_num = graph.n_users, graph.n_items + 1
        inter_feat = {"user": torch.from_numpy(graph.link_user), "item": torch.from_numpy(graph.link_item + 1)}  # noqa: RUF012

    rng = np.random.default_rng(0)

    def set_up(distribution: str) -> Callable[[], Timed]:
        def make() -> Timed:
            sampler = Sampler("train", Links(), distribution=distribution).set_phase("train")

            def draw() -> int:
                links = rng.integers(graph.n_links, size=BATCH)
                sampler.sample_by_user_ids(graph.link_user[links], None, NEGATIVES)
                return BATCH

            return draw

        return make

    reject = "linked ones drawn again (ours: masked); a Python set of items for each user"
    yield "for each user, uniform", "uniform", reject, set_up("uniform")
    yield "for each user, by popularity", "unigram", reject, set_up("popularity")


PEERS: dict[str, Callable[[BipartiteGraph], Iterator[Arm]]] = {
    "torch_geometric": torch_geometric_arms,
    "recbole": recbole_arms,
}


if __name__ == "__main__":
    main()
