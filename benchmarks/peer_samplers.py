"""Negative samplers of other libraries, on the same graph, in turn with ours: one function and one
size a process.

    python benchmarks/peer_samplers.py
    torch_geometric|torch_geometric-pairs|recbole|recbole-popularity LINKS SECONDS

Prints JSON, of processor seconds; where the library is not installed, that. Neither library needs
its other dependencies for this: pip install --no-deps --target DIR torch_geometric xxhash recbole,
then PYTHONPATH=DIR.

Ours is Negative Sampling under the same noise: it draws, but also finds the batch's distinct items,
masks linked pairs and writes the weights, and makes the positive links itself. The peers are given
theirs.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from big_graph import make_graph, resident_bytes

from ncfbench.config import complete
from ncfbench.data.graph import BipartiteGraph
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler

BATCH, NEGATIVES = 512, 10
ROUNDS = 5
Timed = Callable[[], int]
"""Draws NEGATIVES items for each of some positive links; says for how many."""


def main() -> None:
    peer, links, seconds = sys.argv[1], int(float(sys.argv[2])), float(sys.argv[3])
    library = peer.partition("-")[0]
    try:
        importlib.import_module({"recbole": "recbole.sampler"}.get(library, library))
    except ImportError as error:
        print(json.dumps({"skipped": f"not installed ({error})"}))
        return
    graph = make_graph(links)
    draws, noise, differs, set_up = PEERS[peer](graph)
    before, begin = resident_bytes(), time.process_time()
    theirs = set_up()
    found = {
        "version": importlib.metadata.version(library),
        "draws": draws,
        "differs": differs,
        "setup_seconds": time.process_time() - begin,
        "resident_bytes": (resident_bytes() - before) / graph.n_links,
    }
    found["seconds"], found["our_seconds"] = in_turn(theirs, ours(graph, noise), seconds)
    print(json.dumps(found))


def in_turn(theirs: Timed, ours: Timed, seconds: float) -> tuple[list[float], list[float]]:
    """Seconds of a positive link, ROUNDS each, one after the other; the first calls are not
    kept.
    """
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS + 1):
        for times, arm in zip(found, (theirs, ours), strict=True):
            begin, links = time.process_time(), 0
            while links == 0 or time.process_time() - begin < seconds / ROUNDS:
                links += arm()
                if number == 0:
                    break
            if number:
                times.append((time.process_time() - begin) / links)
    return found


def ours(graph: BipartiteGraph, noise: str) -> Timed:
    """Negative Sampling's next batch."""
    config = complete(
        {"sampler": "neg", "batch_size": BATCH, "negatives": NEGATIVES, "noise": noise}
    )
    stream = make_sampler(graph, config, Streams(0)).batches()

    def batch() -> int:
        return len(next(stream).pos_user)

    return batch


Arm = tuple[str, str, str, Callable[[], Timed]]
"""Its draws, the noise of ours beside it, the differences, and the function that sets it up."""


def torch_geometric_arm(graph: BipartiteGraph, *, pairs: bool) -> Arm:
    """Its functions look at all links in each call, so they are called for all links at once: their
    cheapest use.
    """
    import torch
    from torch_geometric.utils import negative_sampling, structured_negative_sampling

    def set_up() -> Timed:
        edge_index = torch.from_numpy(np.stack([graph.link_user, graph.link_item]).astype(np.int64))
        shape = (graph.n_users, graph.n_items)

        def draw() -> int:
            if pairs:
                negative_sampling(
                    edge_index, num_nodes=shape, num_neg_samples=graph.n_links, method="sparse"
                )
            else:
                structured_negative_sampling(edge_index, num_nodes=graph.n_items)
            # One item for each link, where the others draw NEGATIVES.
            return graph.n_links // NEGATIVES

        return draw

    if pairs:
        return (
            "pairs, uniform",
            "uniform",
            "distinct unlinked pairs of any user and item; all in one call",
            set_up,
        )
    return (
        "items of each user, uniform",
        "uniform",
        "linked ones drawn again; all links in one call",
        set_up,
    )


def recbole_arm(graph: BipartiteGraph, *, distribution: str) -> Arm:
    """Its sampler on a stand-in for its data set, a batch of users at a time. Its item 0 is
    padding.
    """
    import torch
    from recbole.sampler import Sampler

    class Links:
        uid_field, iid_field = "user", "item"
        user_num, item_num = graph.n_users, graph.n_items + 1
        inter_feat = {  # noqa: RUF012
            "user": torch.from_numpy(graph.link_user),
            "item": torch.from_numpy(graph.link_item + 1),
        }

    rng = np.random.default_rng(0)

    def set_up() -> Timed:
        sampler = Sampler("train", Links(), distribution=distribution).set_phase("train")

        def draw() -> int:
            links = rng.integers(graph.n_links, size=BATCH)
            sampler.sample_by_user_ids(graph.link_user[links], None, NEGATIVES)
            return BATCH

        return draw

    noise = {"uniform": "uniform", "popularity": "unigram"}[distribution]
    return (
        f"items of each user, {distribution}",
        noise,
        "linked ones drawn again; a Python set for each user",
        set_up,
    )


PEERS: dict[str, Callable[[BipartiteGraph], Arm]] = {
    "torch_geometric": partial(torch_geometric_arm, pairs=False),
    "torch_geometric-pairs": partial(torch_geometric_arm, pairs=True),
    "recbole": partial(recbole_arm, distribution="uniform"),
    "recbole-popularity": partial(recbole_arm, distribution="popularity"),
}


if __name__ == "__main__":
    main()
