"""The audit of frameworks: each estimator's mean gradient against what it claims to estimate."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ncfbench.auditing.bias import FAMILY_ERROR, RESOLUTION, Bias, consistency, estimate
from ncfbench.auditing.frameworks.claims import CLAIMS, LIMITS, ExactGradient
from ncfbench.auditing.frameworks.estimator import Drawn, Estimator
from ncfbench.auditing.frameworks.links import Links, Vectors
from ncfbench.auditing.gradient_audit import AUDIT_SEED, BLOCKS, MODES, MORE_NEGATIVES
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError
from ncfbench.models.precision import full
from ncfbench.rng import Streams
from ncfbench.runs.progress import Progress

USERS, ITEMS, LINKS, TOPICS = 500, 400, 5000, 8
"""Sizes of the graph without --dataset."""
ZIPF = 0.8
"""Its popularity: an item's links fall as its rank to this power."""
BATCHES_AT_ONCE = 16
"""Batches whose gradients are computed at once: bounds the memory."""
FALLS = "falls with b"
"""Verdict of a bias that falls with the batch, to a limit that has not been derived."""


@dataclass(frozen=True)
class Options:
    """The choices of an audit of frameworks."""

    batches: int = 3072
    batch_size: int = 64
    margin: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.batches < 2 * BLOCKS:
            raise UsageError(
                f"batches = {self.batches}: the gradients need at least {2 * BLOCKS}, in {BLOCKS}"
                " blocks."
            )
        if self.batch_size < 4 or self.batch_size % 4:
            raise UsageError(
                f"batch_size = {self.batch_size}: a multiple of 4 is needed, because GradCache cuts"
                " it into 4 chunks."
            )
        if self.seed < 0:
            raise UsageError(f"seed = {self.seed}: it must be 0 or more.")
        if not 0 < self.margin < 1:
            raise UsageError(
                f"margin = {self.margin}: it must lie between 0 and 1, for example 0.05 for 5 %."
            )


def built_in_graph(seed: int = 0) -> BipartiteGraph:
    """Make the graph that is audited where no data set is named: Zipf's popularity, topics."""
    rng = np.random.default_rng(seed)
    log_popularity = -ZIPF * np.log(1 + rng.permutation(ITEMS))
    topic_of_user, topic_of_item = (rng.integers(TOPICS, size=n) for n in (USERS, ITEMS))
    same = topic_of_user[:, None] == topic_of_item[None, :]
    activity = rng.normal(0, 0.5, USERS)
    # The largest of weights with Gumbel noise are draws without replacement by these weights.
    weight = activity[:, None] + log_popularity[None, :] + 2.0 * same
    keys = (weight + rng.gumbel(size=weight.shape)).reshape(-1)
    users, items = np.divmod(np.argpartition(-keys, LINKS)[:LINKS], ITEMS)
    return BipartiteGraph.from_links(users, items, USERS, ITEMS)


@dataclass(frozen=True)
class Measured:
    """The findings on one estimator, beside the exact gradient."""

    bias: Bias
    loss: float
    linked_share: float
    """Share of the pairs counted as negatives that are training links."""
    length_ratio: float
    """Length of the mean gradient over that of the exact one."""
    items: NDArray[np.float64]
    """float64[blocks, V]: the mean derivative of the loss by a shift of each item's scores."""


def audit_frameworks(
    links: Links,
    estimators: Sequence[Estimator],
    options: Options,
    progress: Progress | None = None,
    *,
    dataset: str | None = None,
) -> list[dict[str, Any]]:
    """Return a row of :data:`ncfbench.storage.schemas.FRAMEWORKS` for each estimator.

    Args:
        dataset: the name of the links' data set, for the rows.
    """
    progress = progress or Progress()
    needed = dict.fromkeys(each.claim for each in estimators)
    vectors = {name: CLAIMS[name].warm_vectors(links, options.seed) for name in needed}
    progress.say(
        f"{len(estimators)} estimators on {links.n_users:,} users, {links.n_items:,} items and"
        f" {len(links.user):,} links; {options.batches:,} batches each."
    )
    rows = []
    for estimator in estimators:
        begin = time.perf_counter()
        rows.append(
            audit_estimator(links, estimator, vectors[estimator.claim], options, len(estimators))
        )
        verdict = rows[-1]["verdict"]
        progress.say(f"{estimator.name}: {verdict}  ({time.perf_counter() - begin:.1f} s)")
    sizes = {"users": links.n_users, "items": links.n_items, "links": len(links.user)}
    return [{"dataset": dataset, **sizes, **row} for row in rows]


def audit_estimator(
    links: Links, estimator: Estimator, vectors: Vectors, options: Options, verdicts: int
) -> dict[str, Any]:
    """Return the row of one estimator.

    Args:
        verdicts: how many verdicts the intervals must hold for together.
    """
    claim = CLAIMS[estimator.claim]
    exact = claim.exact(links, vectors)
    plain = CLAIMS[estimator.plain].exact(links, vectors) if estimator.plain else exact
    found = measure(links, estimator, vectors, exact, options, "replacement", verdicts)
    more = None
    verdict: str = found.bias.verdict(options.margin)
    if claim.is_listwise:
        more = measure(links, estimator, vectors, exact, options, "more", verdicts).bias
        verdict = consistency(found.bias, more, options.margin, MODES["more"][1], verdicts)
    shown_by = "gradient" if verdict == "biased" else None
    limit = limit_bias(links, estimator, vectors, exact)
    if limit is not None and limit > RESOLUTION:
        # Certain, however noisy the batches: both gradients are exact.
        verdict, shown_by = "biased", shown_by or "limit"
    elif verdict == "consistent" and limit is None:
        # Two batch sizes do not tell a bias that vanishes from one that falls to a limit.
        verdict = FALLS
    if found.linked_share and not claim.counts_linked:
        # Certain, however small the gradient's bias is beside its noise.
        verdict, shown_by = "biased", shown_by or "links"
    push, low, high = _push(
        found.items / claim.scale, plain.items[:, -1] / claim.scale, links, verdicts
    )
    return {
        "name": estimator.name,
        "title": estimator.title,
        "version": estimator.version,
        "source": estimator.source,
        "claim": estimator.claim,
        "claim_title": claim.title,
        "claim_meaning": claim.meaning,
        "planted_fault": estimator.fault or None,
        "verdict": verdict,
        "shown_by": shown_by,
        "batches": found.bias.batches,
        "batch_size": options.batch_size,
        "seed": options.seed,
        "margin": options.margin,
        "verdicts": verdicts,
        "bias": found.bias.estimate,
        "bias_low": found.bias.lower,
        "bias_high": found.bias.upper,
        "bias_with_4x_batch": more and more.estimate,
        "bias_with_4x_batch_low": more and more.lower,
        "bias_with_4x_batch_high": more and more.upper,
        "limit_bias": limit,
        "cosine": found.bias.cosine,
        "length_ratio": found.length_ratio,
        "batch_variance": found.bias.variance,
        "exact_loss": exact.value,
        "mean_loss": found.loss,
        "linked_share": found.linked_share,
        "linked_is_claimed": claim.counts_linked,
        "popular_push": push,
        "popular_push_low": low,
        "popular_push_high": high,
        "popular_items": int(links.popular.sum()),
        "remedy": estimator.remedy,
    }


def limit_bias(
    links: Links, estimator: Estimator, vectors: Vectors, exact: ExactGradient
) -> float | None:
    """Return the bias in the limit of large batches, as a share of the exact gradient's length.

    It is the distance of two exact gradients, without noise. None where the limit has not been
    derived.
    """
    if not estimator.limit:
        return None
    if estimator.limit == estimator.claim:
        return 0.0
    found = LIMITS[estimator.limit].exact(links, vectors)
    target = _flat(exact.users, exact.items)
    distance = np.linalg.norm(_flat(found.users, found.items) - target)
    return float(distance / np.linalg.norm(target))


def measure(
    links: Links,
    estimator: Estimator,
    vectors: Vectors,
    exact: ExactGradient,
    options: Options,
    mode: str,
    verdicts: int,
) -> Measured:
    """Compare the mean gradient of an estimator's batches with the exact one.

    Args:
        mode: ``replacement``, or ``more`` for batches of :data:`MORE_NEGATIVES` times the size.
    """
    fewer, blocks = MODES[mode]
    size = options.batch_size * (MORE_NEGATIVES if mode == "more" else 1)
    count = max(options.batches // fewer // blocks, 1)
    streams = Streams(AUDIT_SEED + options.seed)
    means, by_item, losses = [], [], []
    counted = linked = 0
    for block in range(blocks):
        rng = streams.generator(f"{estimator.name} {mode}", block)
        batches = estimator.draw(links, rng, size, count)
        loss, users, items = (
            np.asarray(part, np.float64) for part in block_gradient(estimator, *vectors, batches)
        )
        losses.append(float(loss))
        by_item.append(items[:, -1])
        means.append(_flat(users, items))
        if mode == "replacement":
            negatives = estimator.negatives(batches)
            is_linked = links.table[negatives.user, negatives.item] & negatives.counted
            counted += int(negatives.counted.sum())
            linked += int(is_linked.sum())
    target = _flat(exact.users, exact.items)
    mean = np.mean(means, axis=0)
    return Measured(
        bias=estimate(np.stack(means), target, count * blocks, verdicts),
        loss=float(np.mean(losses)),
        linked_share=linked / max(counted, 1),
        length_ratio=float(np.linalg.norm(mean) / np.linalg.norm(target)),
        items=np.stack(by_item),
    )


@partial(jax.jit, static_argnums=0)
@full
def block_gradient(
    estimator: Estimator, users: jax.Array, items: jax.Array, batches: Drawn
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the mean loss of some batches, and its gradients by users and items."""

    def one(batch: Drawn) -> Any:
        return jax.value_and_grad(estimator.loss, argnums=(0, 1))(users, items, batch)

    loss, (by_user, by_item) = jax.lax.map(one, batches, batch_size=BATCHES_AT_ONCE)
    # A batch of filling has no loss and no gradient.
    real = jnp.sum(jnp.any(batches.weight > 0, axis=1))
    return jnp.sum(loss) / real, jnp.sum(by_user, axis=0) / real, jnp.sum(by_item, axis=0) / real


def _flat(users: NDArray[np.float64], items: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a gradient by the vectors, without their last coordinate, as one vector."""
    return np.concatenate([users[:, :-1].reshape(-1), items[:, :-1].reshape(-1)])


def _push(
    items: NDArray[np.float64], exact: NDArray[np.float64], links: Links, verdicts: int
) -> tuple[float, float, float]:
    """Return how much more than the objective an estimator pushes popular items down.

    The derivative of the loss by a shift of the scores of all popular items, less the exact one,
    with its interval: 0.1 is what ten per cent of probability too much on them does.
    """
    from scipy import stats

    excess = (items - exact)[:, links.popular].sum(axis=1)
    quantile = float(stats.t.ppf(1 - FAMILY_ERROR / (2 * verdicts), len(excess) - 1))
    room = quantile * float(excess.std(ddof=1)) / math.sqrt(len(excess))
    push = float(excess.mean())
    return push, push - room, push + room


def undetected(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return one line for each planted fault that the audit did not find."""
    return [
        f"{row['name']}: the planted fault ({row['planted_fault']}) was not found; draw more"
        f" batches than --batches {row['batches']}."
        for row in rows
        if row["planted_fault"] and row["verdict"] != "biased"
    ]
