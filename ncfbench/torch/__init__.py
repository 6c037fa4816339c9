"""Batches and the objective for PyTorch (the extra ``torch``): a loader, losses, text pairs."""

from __future__ import annotations

from ncfbench.errors import install_command

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"ncfbench.torch needs PyTorch. Install it with: {install_command('torch')}", name="torch"
    ) from error

from ncfbench.torch.batch import TensorBatch, as_tensors
from ncfbench.torch.loader import BatchLoader
from ncfbench.torch.objective import Loss, dot_scores, make_loss, objective
from ncfbench.torch.pairs import LinkedPairs

__all__ = [
    "BatchLoader",
    "LinkedPairs",
    "Loss",
    "TensorBatch",
    "as_tensors",
    "dot_scores",
    "make_loss",
    "objective",
]
