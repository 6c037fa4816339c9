"""The objective in PyTorch: the definition of :mod:`ncfbench.models.objective`, loss by loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import relu, softplus

from ncfbench.config import RunConfig, complete
from ncfbench.declarations import LossFamily
from ncfbench.errors import UsageError, nearest
from ncfbench.sampling.batch import Listed

if TYPE_CHECKING:
    from ncfbench.torch.loader import TensorBatch


@dataclass(frozen=True)
class Loss:
    """A loss of scores: one of :data:`ROWS` by :func:`make_loss`, or your own."""

    family: LossFamily
    rows: Callable[[Tensor, Tensor, Tensor], Tensor]
    """Returns [b] from the scores of positive links, [b], and the scores and weights of negative
    ones, [b, n]. Weights sum a row to an expectation, or for a listwise loss to all items.
    """


def skip_gram(lambda_: float, p: Tensor, n: Tensor, w: Tensor) -> Tensor:
    """Return ``-log sigmoid(p) - lambda sum w log sigmoid(-n)``, without overflow."""
    return softplus(-p) + lambda_ * (w * softplus(n)).sum(dim=1)


def mse(lambda_: float, p: Tensor, n: Tensor, w: Tensor) -> Tensor:
    """Return ``(1 - p)^2 + lambda sum w n^2``."""
    return (1 - p).square() + lambda_ * (w * n.square()).sum(dim=1)


def log(gamma: float, p: Tensor, n: Tensor, w: Tensor) -> Tensor:
    """Return ``-sum w log sigmoid(gamma (p - n))``, without overflow."""
    return (w * softplus(gamma * (n - p[:, None]))).sum(dim=1)


def hinge(gamma: float, p: Tensor, n: Tensor, w: Tensor) -> Tensor:
    """Return ``sum w max(n - p + gamma, 0)``."""
    return (w * relu(n - p[:, None] + gamma)).sum(dim=1)


def softmax(gamma: float, p: Tensor, n: Tensor, w: Tensor) -> Tensor:
    """Return ``log(1 + sum w exp(gamma (n - p)))``, without overflow."""
    exponents = gamma * (n - p[:, None]) + w.log()
    return torch.cat([torch.zeros_like(p[:, None]), exponents], dim=1).logsumexp(dim=1)


def usual_softmax(gamma: float, p: Tensor, n: Tensor, w: Tensor) -> Tensor:
    """Return ``log(sum w exp(gamma (n - p)))``; the positive item is among those with weight."""
    return (gamma * (n - p[:, None]) + w.log()).logsumexp(dim=1)


ROWS: dict[str, Callable[..., Tensor]] = {
    "sg": skip_gram,
    "mse": mse,
    "log": log,
    "hinge": hinge,
    "softmax": softmax,
    "softmax-logq": usual_softmax,
}
"""``Loss.rows`` by name, behind ``lambda`` or ``gamma``; see :mod:`ncfbench.models.losses`.

Functions of a module: they are pickled with a trainer's checkpoints, and to processes that load.
"""


def make_loss(config: RunConfig) -> Loss:
    """Return the loss that ``config`` names.

    Raises:
        UsageError: PyTorch has none of that name, or settings choose negatives by their scores.
    """
    for name, value in config.objective_settings.items():
        raise UsageError(
            f"{name} = {value}: PyTorch's objective takes a batch's weights as they are, and"
            " batches are made without a model. Choose negatives by their scores in a loss of your"
            " own, and leave the setting out."
        )
    if config.loss not in ROWS:
        raise UsageError(
            f"PyTorch has no loss {config.loss!r}{nearest(config.loss, ROWS)} Valid:"
            f" {', '.join(ROWS)}, or a Loss of your own."
        )
    scale = config.lambda_ if config.family == "pointwise" else config.gamma
    return Loss(config.family, partial(ROWS[config.loss], scale))


def dot_scores(users_UxD: Tensor, items_VxD: Tensor, batch: TensorBatch) -> tuple[Tensor, Tensor]:
    """Return the dot products of a batch's positive links, [b], and of its negative ones.

    Those are [b, k] for listed negatives, [b, V] for shared ones.
    """
    own_bxD = users_UxD[batch.pos_user]
    positive = (own_bxD * items_VxD[batch.pos_item]).sum(dim=-1)
    if isinstance(batch.negatives, Listed):
        user, item, _ = batch.negatives
        return positive, (users_UxD[user] * items_VxD[item]).sum(dim=-1)
    return positive, (own_bxD @ items_VxD.T).to(positive.dtype)


def objective(positive: Tensor, negative: Tensor, batch: TensorBatch, loss: Loss | str) -> Tensor:
    """Estimate the objective from a batch's scores; its weights hold all that the estimate needs.

    Args:
        positive, negative: as :func:`dot_scores` returns them. A pair of weight 0 contributes
            nothing, however extreme its score.
        loss: a loader's ``loss``, or a name for its default ``lambda`` or ``gamma``.

    Raises:
        UsageError: the batch's weights are for a loss of another family.
    """
    made = make_loss(complete({"loss": loss})) if isinstance(loss, str) else loss
    if made.family != batch.family:
        raise UsageError(
            f"The weights of this batch are for {batch.family} losses: give the loader your loss."
        )
    weight = batch.negatives.weight * len(positive)
    return made.rows(positive, negative.masked_fill(weight == 0, 0), weight).mean()
