"""The example in PyTorch beside our training: same data, same batches, same initial weights.

    python benchmarks/bench_torch.py [DATASET [BATCHES]]

Prints the probe loss of both after every hundred batches, and of ours with other seeds: the noise
that an agreement is to be seen against.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from ncfbench import open_dataset
from ncfbench.config import RunConfig, complete
from ncfbench.data import Dataset
from ncfbench.models.towers import DeviceContent
from ncfbench.rng import Streams
from ncfbench.sampling import batches
from ncfbench.torch import BatchLoader
from ncfbench.training.inference import Embedder
from ncfbench.training.probe import Probe
from ncfbench.training.state import Parameters, TrainState
from ncfbench.training.step import Trainer

sys.path.append(str(Path(__file__).parent.parent / "examples"))
from train_in_pytorch import TwoTower, train

SAMPLING = {"sampler": "strat-ns", "loss": "sg", "seed": 0}
PLAIN = {"encoder": "bow", "word_dropout": 0, "item_dropout": 0, "user_l2": 0}
"""The example's model: no dropout, no penalty."""
SEEDS = (1, 2, 3)
EVERY = 100


def settings(**other: Any) -> RunConfig:
    """Our settings of the example's training."""
    return complete({**SAMPLING, **PLAIN, **other})


PARAMETERS = {
    ("user_tower", "vectors", "embedding"): "users.weight",
    ("encoder", "words", "embedding"): "words.weight",
    ("encoder", "dense", "kernel"): "dense.weight",
    ("encoder", "dense", "bias"): "dense.bias",
}
"""Our parameters, and the example's; a kernel lies the other way round there."""


def load(model: TwoTower, parameters: Parameters) -> None:
    """Copy our parameters into the example's."""
    with torch.no_grad():
        for (tower, layer, name), theirs in PARAMETERS.items():
            value = torch.tensor(np.array(parameters[tower][layer][name][...]))
            model.get_parameter(theirs).copy_(value.T if name == "kernel" else value)


def loaded(model: TwoTower, parameters: Parameters) -> Parameters:
    """Return our parameters with the example's numbers."""
    found: dict[str, Any] = {tower: dict(layers) for tower, layers in parameters.items()}
    for (tower, layer, name), theirs in PARAMETERS.items():
        value = jnp.asarray(model.get_parameter(theirs).detach().numpy())
        own = {name: value.T if name == "kernel" else value}
        found[tower][layer] = {**found[tower][layer], **own}
    return found


def ours(
    trainer: Trainer, state: TrainState, config: RunConfig, dataset: Dataset
) -> Iterator[tuple[float, TrainState]]:
    """Each batch's loss and the state after it, batch by batch of the config's seed."""
    content = DeviceContent.of(dataset)
    for batch in batches(dataset.graph, config, Streams(config.seed)):
        state, loss = trainer.step(state, batch, content)
        yield float(loss), state


def main(name: str = "synthetic", count: str = "600") -> None:
    """Print the curves of the probe loss."""
    dataset, config = open_dataset(name), settings()
    trainer, state = Trainer.create(config, dataset)
    first, probe = state.parameters, make_probe(trainer, dataset)
    model = TwoTower(dataset, config.dimension)
    load(model, first)
    first = jax.tree.map(np.array, first)  # a step takes over its state
    loader = BatchLoader(dataset, batch_size=config.batch_size, **SAMPLING)
    stops = range(EVERY, int(count) + 1, EVERY)
    losses, curves = train(model, loader, config.learning_rate), []
    curves.append([(list(islice(losses, EVERY)), probe(loaded(model, first))) for _ in stops])
    for seed in (0, *SEEDS):
        own = settings(seed=seed)
        _, state = Trainer.create(own, dataset)
        steps, curve = ours(trainer, state, own, dataset), []
        for _ in stops:
            some = list(islice(steps, EVERY))
            curve.append(([loss for loss, _ in some], probe(some[-1][1].parameters)))
        curves.append(curve)
    theirs, same = (np.array(curve[0][0]) for curve in curves[:2])
    print(f"{name}: largest difference in the first {EVERY} losses, relative:", end=" ")
    print(f"{np.max(np.abs(theirs / same - 1)):.1e}")
    print("probe loss after   PyTorch   ours   ours with the seeds", *SEEDS)
    for stop, *rows in zip(stops, *curves, strict=True):
        print(f"{stop:16}", *(f"{loss:8.4f}" for _, loss in rows))


def make_probe(trainer: Trainer, dataset: Dataset) -> Probe:
    """The probe of the settings' objective."""
    return Probe(dataset.graph, trainer.config, Embedder(trainer.towers, DeviceContent.of(dataset)))


if __name__ == "__main__":
    main(*sys.argv[1:])
