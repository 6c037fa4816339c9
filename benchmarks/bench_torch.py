"""The example in PyTorch beside our training: same data, same batches, same initial weights.

    python benchmarks/bench_torch.py [DATASET [BATCHES]]

Prints the mean loss of every hundred batches of both, and of ours from the weights of other seeds
on the same batches: the noise that an agreement is to be seen against.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from peer_torch import torch

from ncfbench import open_dataset
from ncfbench.config import RunConfig, complete
from ncfbench.data import Dataset
from ncfbench.models.towers import Content
from ncfbench.rng import Streams
from ncfbench.sampling import batches
from ncfbench.torch import BatchLoader
from ncfbench.training.step import Parameters, Trainer, TrainState

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


def weights(model: TwoTower) -> dict[tuple[str, str, str], torch.Tensor]:
    """The example's parameters by our names, in our layout."""
    return {
        ("user_tower", "vectors", "embedding"): model.users.weight,
        ("encoder", "words", "embedding"): model.words.weight,
        ("encoder", "dense", "kernel"): model.dense.weight.T,
        ("encoder", "dense", "bias"): model.dense.bias,
    }


def load(model: TwoTower, parameters: Parameters) -> None:
    """Copy our parameters into the example's."""
    with torch.no_grad():
        for (tower, layer, name), tensor in weights(model).items():
            tensor.copy_(torch.tensor(np.array(parameters[tower][layer][name][...])))


def loaded(model: TwoTower, parameters: Parameters) -> Parameters:
    """Our parameters with the example's numbers."""
    found: dict[str, Any] = {tower: dict(layers) for tower, layers in parameters.items()}
    for (tower, layer, name), tensor in weights(model).items():
        value = jnp.asarray(tensor.detach().numpy())
        found[tower][layer] = {**found[tower][layer], name: value}
    return found


def ours(
    trainer: Trainer, state: TrainState, config: RunConfig, dataset: Dataset
) -> Iterator[tuple[float, TrainState]]:
    """Each batch's loss and the state after it, batch by batch of the config's seed."""
    content = Content.of(dataset)
    for batch in batches(dataset.graph, config, Streams(config.seed)):
        state, loss = trainer.step(state, batch, content)
        yield float(loss), state


def main(name: str = "synthetic", count: str = "600") -> None:
    """Print both curves."""
    dataset, config = open_dataset(name), settings()
    trainer, state = Trainer.create(config, dataset)
    model = TwoTower(dataset, config.dimension)
    load(model, state.parameters)
    loader = BatchLoader(dataset, batch_size=config.batch_size, **SAMPLING)
    curves = [list(islice(train(model, loader, config.learning_rate), int(count)))]
    for seed in (0, *SEEDS):
        _, state = Trainer.create(settings(seed=seed), dataset)
        curve = islice(ours(trainer, state, config, dataset), int(count))
        curves.append([loss for loss, _ in curve])
    print(f"{name}: largest difference in the first {EVERY} losses, relative:", end=" ")
    first = np.array([curve[:EVERY] for curve in curves])
    print(f"{np.max(np.abs(first[0] / first[1] - 1)):.1e}")
    print("batches up to   PyTorch   ours   ours from the weights of seeds", *SEEDS)
    for stop in range(EVERY, int(count) + 1, EVERY):
        means = (f"{np.mean(curve[stop - EVERY : stop]):8.3f}" for curve in curves)
        print(f"{stop:13}", *means)


if __name__ == "__main__":
    main(*sys.argv[1:])
