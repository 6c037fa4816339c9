"""A batch of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from ncfbench.catalog import LossFamily
from ncfbench.errors import UsageError
from ncfbench.sampling.batch import Batch, Listed, Shared


class TensorBatch(NamedTuple):
    """A :class:`ncfbench.sampling.batch.Batch` of tensors: ids and slots int64, weights float32."""

    users: torch.Tensor
    items: torch.Tensor
    pos_user: torch.Tensor
    pos_item: torch.Tensor
    negatives: Listed | Shared
    n_items: torch.Tensor
    family: LossFamily
    """The family of losses that the weights are for."""

    def to(self, *where: Any, **options: Any) -> TensorBatch:
        """Return the batch on a device; arguments are those of :meth:`torch.Tensor.to`."""
        return _converted(self, lambda tensor: tensor.to(*where, **options), self.family)


def as_tensors(batch: Batch, family: LossFamily) -> TensorBatch:
    """Copy a batch into tensors; UsageError where its layout is not ``Listed`` or ``Shared``."""
    if type(batch.negatives) not in (Listed, Shared):
        raise UsageError(
            f"PyTorch has no form for the batch layout {type(batch.negatives).__name__}. Use a"
            " sampler whose negatives are drawn, or the batch's own items, such as strat-ns."
        )

    def tensor(array: Any) -> torch.Tensor:
        copy = torch.tensor(np.asarray(array))
        return copy if copy.is_floating_point() else copy.long()

    return _converted(batch, tensor, family)


def _converted(
    batch: Batch | TensorBatch, convert: Callable[[Any], torch.Tensor], family: LossFamily
) -> TensorBatch:
    users, items, pos_user, pos_item, n_items = map(convert, (*batch[:4], batch.n_items))
    negatives: Any = type(batch.negatives)(*map(convert, batch.negatives))
    return TensorBatch(users, items, pos_user, pos_item, negatives, n_items, family)
