"""Negative samplers of other libraries, on the same graph, in turn with ours.

Neither library needs its other dependencies for this: pip install --no-deps --target DIR
torch_geometric xxhash recbole, then PYTHONPATH=DIR.

Ours is Negative Sampling under the same noise: it draws, but also finds the batch's distinct items,
masks linked pairs and writes the weights, and makes the positive links itself. The peers are given
theirs.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from measuring import interleaved, on_processor, resident_bytes
from scale_steps import NAME

from ncfbench.config import complete
from ncfbench.data import store
from ncfbench.data.graph import BipartiteGraph
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler

BATCH, NEGATIVES = 512, 10
ROUNDS = 5
Draw = Callable[[], object]
"""Draws items for some positive links."""


class Peer(NamedTuple):
    """A function of another library.

    Attributes:
        drawn: links of a call, of ``NEGATIVES`` items each; 0 for one item of each link.
        noise: of ours beside it.
        set_up: returns what is timed, for a graph.
    """

    package: str
    module: str
    drawn: int
    draws: str
    noise: str
    differs: str
    set_up: Callable[[BipartiteGraph], Draw]


def measure_peer(name: str, scratch: Path, seconds: float) -> dict[str, Any]:
    """Return processor seconds of a link of a peer and of ours, round by round, in turn.

    Raises:
        ImportError: the library is not installed.
    """
    peer = PEERS[name]
    importlib.import_module(peer.module)
    graph = store.load(scratch, NAME).graph
    before, begin = resident_bytes(), time.process_time()
    theirs = peer.set_up(graph)
    facts = {
        "version": importlib.metadata.version(peer.package),
        "draws": peer.draws,
        "differs": peer.differs,
        "setup_seconds": time.process_time() - begin,
        "resident_bytes": (resident_bytes() - before) / graph.n_links,
    }
    config = complete(
        {"sampler": "neg", "batch_size": BATCH, "negatives": NEGATIVES, "noise": peer.noise}
    )
    stream = make_sampler(graph, config, Streams(0)).batches()
    arms = {"seconds": on_processor(theirs), "our_seconds": on_processor(lambda: next(stream))}
    drawn = {"seconds": peer.drawn or graph.n_links // NEGATIVES, "our_seconds": BATCH}
    times = interleaved(arms, ROUNDS, seconds / ROUNDS)
    return facts | {arm: [each / drawn[arm] for each in own] for arm, own in times.items()}


def structured(graph: BipartiteGraph) -> Draw:
    """Set up torch_geometric's function for links.

    Its functions look at all links in each call, so they are called for all links at once: their
    cheapest use. They draw one item for each link, where the others draw NEGATIVES.
    """
    import torch
    from torch_geometric.utils import structured_negative_sampling

    edges = torch.from_numpy(np.stack([graph.link_user, graph.link_item]).astype(np.int64))

    return lambda: structured_negative_sampling(edges, num_nodes=graph.n_items)


def pairs(graph: BipartiteGraph) -> Draw:
    """Set up torch_geometric's function for pairs; see :func:`structured`."""
    import torch
    from torch_geometric.utils import negative_sampling

    edges = torch.from_numpy(np.stack([graph.link_user, graph.link_item]).astype(np.int64))
    shape, count = (graph.n_users, graph.n_items), graph.n_links
    return lambda: negative_sampling(edges, num_nodes=shape, num_neg_samples=count, method="sparse")


def recbole(distribution: str) -> Callable[[BipartiteGraph], Draw]:
    """Return what sets up RecBole's sampler on a stand-in for its data set, a batch of users at a
    time. Its item 0 is padding.
    """

    def set_up(graph: BipartiteGraph) -> Draw:
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
        sampler = Sampler("train", Links(), distribution=distribution).set_phase("train")

        def draw() -> None:
            links = rng.integers(graph.n_links, size=BATCH)
            sampler.sample_by_user_ids(graph.link_user[links], None, NEGATIVES)

        return draw

    return set_up


GEOMETRIC = ("torch_geometric", "torch_geometric", 0)
RECBOLE = ("recbole", "recbole.sampler", BATCH)
REDRAWN = "linked ones drawn again"
SETS = f"{REDRAWN}; a Python set for each user"
PEERS = {
    "torch_geometric": Peer(
        *GEOMETRIC,
        "items of each user, uniform",
        "uniform",
        f"{REDRAWN}; all links in one call",
        structured,
    ),
    "torch_geometric-pairs": Peer(
        *GEOMETRIC,
        "pairs, uniform",
        "uniform",
        "distinct unlinked pairs of any user and item; all in one call",
        pairs,
    ),
    "recbole": Peer(*RECBOLE, "items of each user, uniform", "uniform", SETS, recbole("uniform")),
    "recbole-popularity": Peer(
        *RECBOLE, "items of each user, popularity", "unigram", SETS, recbole("popularity")
    ),
}
