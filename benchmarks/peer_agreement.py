"""Agreement of the peer with our program: its loss and gradients beside ours, before any timing.

Each program gets our parameters and one of our batches, without dropout, in full float32. They must
agree to 1e-4 of the gradient's norm.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import peer_loop

from ncfbench.auditing.gradients import flat
from ncfbench.data import Dataset
from ncfbench.errors import CheckFailedError
from ncfbench.models.towers import DeviceContent
from ncfbench.sampling.batch import Batch
from ncfbench.training.state import Parameters
from ncfbench.training.step import Trainer

TOLERANCE = 1e-4


def in_this_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call PyTorch in this process, where nothing is timed."""
    return function(*arguments)


def check(
    trainer: Trainer,
    parameters: Parameters,
    dataset: Dataset,
    batch: Batch,
    device: str = "cpu",
    ask: Callable[..., Any] = in_this_process,
) -> None:
    """Compare the peer's loss and gradients with ours, at some parameters of ours, without dropout,
    both in full float32.

    Args:
        ask: calls a function of :mod:`peer_loop` where PyTorch is.

    Raises:
        CheckFailedError: they differ.
    """
    config = dataclasses.replace(trainer.config, precision="float32")
    exact = dataclasses.replace(trainer, config=config)
    value, gradient = exact.gradient(parameters, batch, DeviceContent.of(dataset), None)
    loss, theirs = ask(peer_loop.gradient, config, dataset, on_host(parameters), batch, device)
    if not np.isclose(loss, float(value), rtol=TOLERANCE):
        raise CheckFailedError(f"{config.sampler}: PyTorch's loss is {loss}, ours {float(value)}.")
    ours: dict[str, np.ndarray] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        names = [str(getattr(entry, "key", getattr(entry, "name", entry))) for entry in path]
        ours[".".join(name for name in names if name != "value")] = np.asarray(leaf)
    if ours.keys() != theirs.keys():
        raise CheckFailedError(
            f"Other parameters: ours {sorted(ours)}, PyTorch's {sorted(theirs)}."
        )
    off = np.sqrt(sum(float(np.sum((ours[name] - theirs[name]) ** 2)) for name in ours))
    length = float(np.linalg.norm(flat(gradient)))
    if not off <= TOLERANCE * length:
        raise CheckFailedError(
            f"{config.sampler}: the gradients differ by {off / length:.1e} of their length."
        )


def on_host(parameters: Parameters) -> dict[str, Any]:
    """Return our parameters as NumPy arrays in plain dictionaries, for another process."""

    def plain(node: Any) -> Any:
        if isinstance(node, Mapping):
            return {key: plain(value) for key, value in node.items()}
        return np.array(node[...])

    found: dict[str, Any] = plain(parameters)
    return found
