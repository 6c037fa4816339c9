"""PyTorch's side of the comparison, in a process of its own: its loops, and one loss and gradient
for the check.

Two programs in one process share a heap, and a pool of threads each: beside PyTorch our iterations
took up to twice as long there as alone. The functions here are called in the other process; what
they prepare stays there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from typing import Any

import numpy as np
from peer_model import Peer, Tensors, set_precision
from peer_torch import torch

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.sampling.batch import Batch

WARM_UP = 3
"""Iterations before any block, for each shape: a CUDA graph is compiled, then recorded, then
replayed.
"""
PROGRAMS = 64
"""Programs that torch.compile may make of one function; by its own limit of 8 it would go on
without compiling.
"""


class PeerLoop:
    """A training loop of the peer over some batches.

    Args:
        peer: on the device.
        mode: of torch.compile; None for eager.
    """

    def __init__(self, peer: Peer, batches: Sequence[Tensors], mode: str | None) -> None:
        self.peer, self.batches = peer.train(), batches
        trained = [parameter for parameter in peer.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.Adam(trained, lr=peer.config.learning_rate, fused=True)
        compiled: Any = peer if mode is None else torch.compile(peer, mode=mode, dynamic=False)
        self.objective: Callable[[Tensors], torch.Tensor] = compiled
        self.on_gpu = batches[0].links.users.device.type == "cuda"
        self.replays = mode == "reduce-overhead"

    def run(self, iterations: int) -> float:
        """Seconds of some iterations, from an idle device to an idle device (on a CPU operations
        end when they return).
        """
        self._wait()
        begin = time.perf_counter()
        for batch in islice(cycle(self.batches), iterations):
            if self.replays:
                torch.compiler.cudagraph_mark_step_begin()
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.objective(batch)
            loss.backward()
            self.optimizer.step()
        self._wait()
        return time.perf_counter() - begin

    def _wait(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()


_loops: dict[tuple[str, str], PeerLoop] = {}
"""Loops by sampler and arm."""


def prepare(
    config: RunConfig,
    dataset: Dataset,
    parameters: Mapping[str, Any],
    batches: Sequence[Batch],
    modes: Mapping[str, Any],
    device: str,
) -> dict[str, str]:
    """Make a sampler's loops, one for each arm, and warm them up; the messages of the arms that
    PyTorch cannot run.
    """
    if any(modes.values()) and not _loops:
        torch._dynamo.config.recompile_limit = PROGRAMS
        torch._dynamo.config.accumulated_recompile_limit = 4 * PROGRAMS
    tensors = [Tensors.of(batch, config.family, dataset, device) for batch in batches]
    set_precision(config.precision)
    one_shape = len({len(batch.links.items) for batch in tensors}) == 1
    failed = {}
    for arm, mode in modes.items():
        peer = Peer(config, dataset).to(device)
        peer.load(parameters)
        made = PeerLoop(peer, tensors, mode)
        try:
            made.run(WARM_UP if one_shape else WARM_UP * len(tensors))
        except RuntimeError as error:
            if mode is None:
                raise
            failed[arm] = str(error).strip().splitlines()[0][:200]
            print(f"{config.sampler}: PyTorch {arm} fails: {failed[arm]}", file=sys.stderr)
            continue
        _loops[config.sampler, arm] = made
    return failed


def run(sampler: str, arm: str, iterations: int) -> float:
    """Seconds of some iterations of a loop that was prepared."""
    return _loops[sampler, arm].run(iterations)


def gradient(
    config: RunConfig, dataset: Dataset, parameters: Mapping[str, Any], batch: Batch, device: str
) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients of a batch by our parameters' names, without dropout, in full float32."""
    set_precision("float32")
    peer = Peer(config, dataset).to(device).eval()
    peer.load(parameters)
    loss = peer(Tensors.of(batch, config.family, dataset, device))
    loss.backward()
    return float(loss.detach()), peer.gradient()
