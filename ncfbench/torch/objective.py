"""The objective in PyTorch: the definition of :mod:`ncfbench.models.objective`, loss by loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor
from torch.nn.functional import pad, relu, softplus

from ncfbench.catalog import LossFamily
from ncfbench.config import RunConfig, complete
from ncfbench.errors import UsageError
from ncfbench.sampling.batch import Listed

if TYPE_CHECKING:
    from ncfbench.torch.batch import TensorBatch

ROWS: dict[str, Callable[..., Tensor]] = {
    "sg": lambda c, p, n, w: softplus(-p) + c * (w * softplus(n)).sum(dim=1),
    "mse": lambda c, p, n, w: (1 - p).square() + c * (w * n.square()).sum(dim=1),
    "log": lambda c, p, n, w: (w * softplus(c * (n - p[:, None]))).sum(dim=1),
    "hinge": lambda c, p, n, w: (w * relu(n - p[:, None] + c)).sum(dim=1),
    "softmax": lambda c, p, n, w: pad(_exponents(c, p, n, w), (1, 0)).logsumexp(dim=1),
    "softmax-logq": lambda c, p, n, w: _exponents(c, p, n, w).logsumexp(dim=1),
}
"""The losses of :mod:`ncfbench.models.losses`, without overflow: :attr:`Loss.rows` by name, behind
lambda, or gamma for all but pointwise ones. The own item, exponent 0, is padding for ``softmax``,
and among those with weight for ``softmax-logq``.
"""


class Loss(NamedTuple):
    """A loss of scores: one of :data:`ROWS` by :func:`make_loss`, or your own."""

    family: LossFamily
    rows: Callable[[Tensor, Tensor, Tensor], Tensor]
    """Returns [b] from the scores of positive links, [b], and the scores and weights of negative
    ones, [b, n]. Weights sum a row to an expectation, or for a listwise loss to all items.
    """


def make_loss(config: RunConfig) -> Loss:
    """Return the loss that ``config`` names.

    Raises:
        UsageError: PyTorch has none of that name.
    """
    if config.loss not in ROWS:
        raise UsageError(f"PyTorch has no loss {config.loss!r}. Give a Loss of your own.")
    scale = config.lambda_ if config.family == "pointwise" else config.gamma
    return Loss(config.family, partial(_rows, config.loss, scale))


def _rows(name: str, scale: float | None, p: Tensor, n: Tensor, w: Tensor) -> Tensor:
    # Pickled with a trainer's checkpoints, which the functions of a table cannot be.
    return ROWS[name](scale, p, n, w)


def _exponents(gamma: float, p: Tensor, n: Tensor, w: Tensor) -> Tensor:
    return gamma * (n - p[:, None]) + w.log()


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
    if isinstance(loss, str):
        loss = make_loss(complete({"loss": loss}))
    if loss.family != batch.family:
        raise UsageError(
            f"The weights of this batch are for {batch.family} losses: give the loader your loss."
        )
    weight = batch.negatives.weight * len(positive)
    return loss.rows(positive, negative.masked_fill(weight == 0, 0), weight).mean()
