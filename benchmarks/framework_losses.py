"""Losses of other frameworks, as their users write them, for ``ncfbench lint``.

Most losses are the packages' own and are named by their import path. The others are put together
here from a package's parts, or rewritten where the package cannot be installed.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp


def metric_learning(users: Any, items: Any, item_ids: Any, temperature: float = 0.05) -> Any:
    """Return PyTorch Metric Learning's ``NTXentLoss``; the label of both ends is the item."""
    from pytorch_metric_learning import losses

    softmax = losses.NTXentLoss(temperature=temperature)
    return softmax(users, item_ids, ref_emb=items, ref_labels=item_ids.clone())


def grad_cache(users: Any, items: Any, chunk_size: int = 4) -> Any:
    """Run a step of GradCache on towers that pass vectors on; it computes the gradients itself."""
    import gradcache.context_managers
    import torch

    # Release 0.0.1 imports itself by the name that the repository has.
    sys.modules["grad_cache"] = gradcache
    sys.modules["grad_cache.context_managers"] = gradcache.context_managers
    from gradcache.grad_cache import GradCache
    from gradcache.loss import SimpleContrastiveLoss

    nothing = torch.zeros((), dtype=users.dtype, requires_grad=True)
    towers = [lambda vectors: vectors + nothing] * 2
    return GradCache(towers, chunk_size, SimpleContrastiveLoss())(users, items)


def _softmax(logits: Any) -> Any:
    """Return the mean cross-entropy of rows whose own column is the diagonal."""
    return jnp.mean(jax.nn.logsumexp(logits, axis=1) - jnp.diagonal(logits))


def _same(item_ids: Any) -> Any:
    return item_ids[:, None] == item_ids[None, :]


def merlin(
    users: Any, items: Any, item_ids: Any, probability: Any, reg_factor: float, temperature: float
) -> Any:
    """Return Merlin's in-batch loss, whose temperature divides log p too.

    Merlin 23.12 calls ``PopularityLogitsCorrection`` first and divides last. A column of positives
    stands before those of the batch, of which the row's own item is masked.
    """
    scores = users @ items.T - reg_factor * jnp.log(probability)[None, :]
    scores = scores / temperature
    positive = jnp.diagonal(scores)
    others = jnp.where(_same(item_ids), -1e9, scores)
    logits = jnp.concatenate([positive[:, None], others], axis=1)
    return jnp.mean(jax.nn.logsumexp(logits, axis=1) - positive)


def paper(users: Any, items: Any, item_ids: Any, gamma: float = 10.0) -> Any:
    """Return the pairwise log loss of the paper's program: each distinct item counts once."""
    scores = gamma * users @ items.T
    is_first = jnp.argmax(_same(item_ids), axis=1) == jnp.arange(len(scores))
    rows = jax.nn.softplus(scores - jnp.diagonal(scores)[:, None]) * is_first[None, :]
    return jnp.sum(rows) / (len(scores) * jnp.sum(is_first))


def hstu(
    users: Any, items: Any, item_ids: Any, key: Any, sampled: int = 128, temperature: float = 0.05
) -> Any:
    """Return HSTU's sampled softmax over distinct items of the batch, drawn alike.

    ``InBatchNegativesSampler(l2_norm=True, dedup_embeddings=True)`` and ``SampledSoftmaxLoss``.
    """
    items = items / jnp.linalg.norm(items, axis=1, keepdims=True)
    is_last = jnp.argmax(_same(item_ids)[:, ::-1], axis=1) == jnp.arange(len(items))[::-1]
    share = is_last / jnp.sum(is_last)
    drawn = jax.random.choice(key, len(items), (len(users), sampled), p=share)
    positive = jnp.sum(users * items, axis=1, keepdims=True) / temperature
    negative = jnp.einsum("bd,bkd->bk", users, items[drawn]) / temperature
    negative = jnp.where(item_ids[drawn] == item_ids[:, None], -5e4, negative)
    logits = jnp.concatenate([positive, negative], axis=1)
    return jnp.mean(jax.nn.logsumexp(logits, axis=1) - positive[:, 0])


def reference(
    users: Any, items: Any, item_ids: Any, probability: Any, temperature: float = 0.05
) -> Any:
    """Return the in-batch softmax with everything right."""
    shift = jnp.log(max(len(users) - 1, 1) * probability)[None, :] * (1 - jnp.eye(len(users)))
    masked = _same(item_ids) & ~jnp.eye(len(users), dtype=bool)
    return _softmax(jnp.where(masked, -1e9, users @ items.T / temperature - shift))
