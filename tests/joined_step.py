"""One of several processes that compute steps together, and write losses, gradients and links.

python joined_step.py HOST:PORT PROCESSES INDEX DATA_DIR OUT_DIR CASE...
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from ncfbench.catalog import SAMPLERS
from ncfbench.config import RunConfig, complete
from ncfbench.distributed.simulation import simulate

DATASET = "odd"
DEVICES = 4
SMALL: dict[str, Any] = {
    "dataset": DATASET,
    "batch_size": 32,
    "negatives": 3,
    "dimension": 8,
    "word_dimension": 8,
    "filters": 8,
    "user_l2": 0.01,
}
CASES: dict[str, dict[str, Any]] = {
    **{name: {"sampler": name, "encoder": "mf"} for name in SAMPLERS if name != "xbm"},
    "ns-distinct": {"sampler": "ns-distinct", "encoder": "mf", "batch_size": 16},
    "by user": {"sampler": "strat", "strata": "user", "encoder": "mf", "loss": "hinge"},
    "tables": {"sampler": "ns", "encoder": "mf", "shard_tables": True, "loss": "log"},
    "words": {"sampler": "strat-ns", "encoder": "cnn", "shard_tables": True},
}


def settings(case: str, **more: Any) -> RunConfig:
    return complete(SMALL | CASES[case] | more)


def main(
    coordinator: str, processes: int, index: int, data_dir: Path, out_dir: Path, cases: list[str]
) -> None:
    simulate(DEVICES // processes)
    from devices import on_devices
    from jax.experimental.multihost_utils import process_allgather

    from ncfbench.data.store import load
    from ncfbench.distributed.layout import make_layout
    from ncfbench.distributed.process_group import joined
    from ncfbench.distributed.supervisor import Cluster
    from ncfbench.rng import Streams
    from ncfbench.sampling import make_sampler, plan_capacity

    dataset, found = load(data_dir, DATASET), {}
    with joined(Cluster(coordinator, processes, index), lambda code: None, lambda text: None):
        for case in cases:
            config = settings(case, devices=DEVICES)
            value, gradient, _ = on_devices(dataset, config)
            layout = make_layout(config)
            made, b = make_sampler(dataset.graph, config, Streams(0)), config.batch_size
            batches = layout.shard(made).batches(0, plan_capacity(dataset.graph, config))
            epoch, per, links = made.positives.epoch_length, b // DEVICES, []
            for _ in range(-(-2 * epoch // b)):
                batch = next(batches)
                own = np.arange(len(batch.pos_user)) // per * (len(batch.users) // len(layout.own))
                items = process_allgather(batch.items, tiled=True)
                links.append(np.stack([batch.users[own + batch.pos_user], items[batch.pos_item]]))
            found |= {
                f"{case}/loss": value,
                f"{case}/gradient": gradient,
                f"{case}/links": np.stack(links),
                f"{case}/epoch": epoch,
            }
    np.savez(out_dir / f"{index}.npz", **found)


if __name__ == "__main__":
    address, count, own, data, out, *named = sys.argv[1:]
    main(address, int(count), int(own), Path(data), Path(out), named)
