"""The audit of frameworks: each estimator's mean gradient against what it claims to estimate."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ncfbench.auditing.bias import Bias, columns, estimate
from ncfbench.auditing.exact import Sum
from ncfbench.auditing.frameworks.claims import CLAIMS, LIMITS, Vectors
from ncfbench.auditing.frameworks.draws import Drawn
from ncfbench.auditing.frameworks.estimators import Estimator, chosen
from ncfbench.auditing.verdict import (
    AUDIT_SEED,
    MORE_NEGATIVES,
    Evidence,
    blocks_and_size,
    check_request,
    verdict,
)
from ncfbench.config import Folder
from ncfbench.data import open_dataset
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError
from ncfbench.models.precision import full
from ncfbench.rng import Streams
from ncfbench.runs.progress import Progress
from ncfbench.timing.compile_cache import keep_compiled
from ncfbench.timing.intervals import family_quantile

USERS, ITEMS, LINKS, TOPICS = 500, 400, 5000, 8
"""Sizes of the graph without --dataset."""
ZIPF = 0.8
"""Its popularity: an item's links fall as its rank to this power."""
MAX_PAIRS = 2**24
"""Pairs of a user and an item that an audit visits at most."""
BATCHES_AT_ONCE = 16
"""Batches whose gradients are computed at once: bounds the memory."""

DESCRIPTION = ("name", "title", "version", "source", "claim")
CHOICES = ("batch_size", "seed", "margin", "verdicts")

Float64 = NDArray[np.float64]


class Measured(NamedTuple):
    """The findings on one estimator, beside the exact gradient."""

    bias: Bias
    loss: float
    linked_share: float
    """Share of the pairs counted as negatives that are training links."""
    length_ratio: float
    """Length of the mean gradient over that of the exact one."""
    items: Float64
    """float64[blocks, V]: the mean derivative of the loss by a shift of each item's scores."""


@dataclass(frozen=True)
class FrameworksAudit:
    """An audit of estimators on a graph whose items all have links."""

    graph: BipartiteGraph
    verdicts: int
    """How many verdicts the intervals must hold for together."""
    batches: int = 3072
    batch_size: int = 64
    margin: float = 0.1
    """Largest bias, as a share of the exact gradient, that may be called unbiased."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_request(self.batches, self.margin)
        if self.batch_size < 4 or self.batch_size % 4:
            raise UsageError(
                f"batch_size = {self.batch_size}: a multiple of 4 is needed, because GradCache cuts"
                " it into 4 chunks."
            )
        if self.seed < 0:
            raise UsageError(f"seed = {self.seed}: it must be 0 or more.")

    def vectors(self, claim: str) -> Vectors:
        """Return the vectors at which the estimators of a claim are audited."""
        return CLAIMS[claim].warm_vectors(self.graph, self.seed)

    def row(self, estimator: Estimator, vectors: Vectors) -> dict[str, Any]:
        """Return the row of one estimator."""
        claim, graph = CLAIMS[estimator.claim], self.graph
        exact = claim.exact(graph, vectors)
        plain = CLAIMS[estimator.plain].exact(graph, vectors) if estimator.plain else exact
        measure = partial(self._measure, estimator, vectors, _flat(exact))
        found = measure("replacement")
        more = measure("more").bias if claim.is_listwise else None
        limit = self.limit_bias(estimator, vectors, exact)
        evidence = Evidence(
            found.bias,
            is_listwise=claim.is_listwise,
            more=more,
            limit=limit,
            has_unclaimed_links=found.linked_share > 0 and not claim.counts_linked,
        )
        word, shown_by = verdict(evidence, self.margin)
        popular = popular_items(graph)
        excess = found.items / claim.scale - plain.items[:, -1] / claim.scale
        return {
            **{name: getattr(estimator, name) for name in DESCRIPTION},
            "claim_title": claim.title,
            "claim_meaning": claim.meaning,
            "planted_fault": estimator.fault or None,
            "verdict": word,
            "shown_by": shown_by,
            "batches": found.bias.batches,
            **{name: getattr(self, name) for name in CHOICES},
            **columns("bias", found.bias),
            **columns("bias_with_4x_batch", more),
            "limit_bias": limit,
            "cosine": found.bias.cosine,
            "length_ratio": found.length_ratio,
            "batch_variance": found.bias.variance,
            "exact_loss": exact.value,
            "mean_loss": found.loss,
            "linked_share": found.linked_share,
            "linked_is_claimed": claim.counts_linked,
            **self._push(excess[:, popular].sum(axis=1)),
            "popular_items": int(popular.sum()),
            "remedy": estimator.remedy,
        }

    def limit_bias(self, estimator: Estimator, vectors: Vectors, exact: Sum) -> float | None:
        """Return the bias in the limit of large batches, as a share of the exact gradient's length.

        It is the distance of two exact gradients, without noise. None where the limit has not been
        derived.
        """
        if not estimator.limit:
            return None
        if estimator.limit == estimator.claim:
            return 0.0
        limit = _flat(LIMITS[estimator.limit].exact(self.graph, vectors))
        return float(np.linalg.norm(limit - _flat(exact)) / np.linalg.norm(_flat(exact)))

    def _measure(
        self, estimator: Estimator, vectors: Vectors, exact: Float64, mode: str
    ) -> Measured:
        """Compare the mean gradient of an estimator's batches with the exact one, in one of
        :data:`ncfbench.auditing.verdict.MODES`.
        """
        blocks, count = blocks_and_size(mode, self.batches)
        size = self.batch_size * (MORE_NEGATIVES if mode == "more" else 1)
        streams, sums = Streams(AUDIT_SEED + self.seed), []
        counted = linked = 0
        for block in range(blocks):
            rng = streams.generator(f"{estimator.name} {mode}", block)
            drawn = estimator.draw(self.graph, rng, (count, size))
            mean = block_mean(estimator, vectors, drawn)
            sums.append(jax.tree.map(lambda part: np.asarray(part, np.float64), mean))
            if mode == "replacement":
                negatives = estimator.negatives(drawn)
                is_linked = self.graph.linked(negatives.user, negatives.item) & negatives.counted
                counted += int(negatives.counted.sum())
                linked += int(is_linked.sum())
        means = np.stack([_flat(mean) for mean in sums])
        return Measured(
            bias=estimate(means, exact, count * blocks, self.verdicts),
            loss=float(np.mean([mean.value for mean in sums])),
            linked_share=linked / max(counted, 1),
            length_ratio=float(np.linalg.norm(means.mean(axis=0)) / np.linalg.norm(exact)),
            items=np.stack([mean.items[:, -1] for mean in sums]),
        )

    def _push(self, excess: Float64) -> dict[str, float]:
        """Return how much more than the objective an estimator pushes popular items down.

        The derivative of the loss by a shift of the scores of all popular items, less the exact
        one, with its interval: 0.1 is what ten per cent of probability too much on them does.

        Args:
            excess: float64[blocks].
        """
        quantile = family_quantile(len(excess) - 1, self.verdicts)
        room = quantile * float(excess.std(ddof=1)) / math.sqrt(len(excess))
        push = float(excess.mean())
        bounds = {"popular_push_low": push - room, "popular_push_high": push + room}
        return {"popular_push": push, **bounds}


def audit_frameworks(
    names: Sequence[str],
    *,
    dataset: str | None = None,
    data_dir: Folder = None,
    progress: Progress,
    **choices: Any,
) -> list[dict[str, Any]]:
    """Return a row of :data:`ncfbench.storage.schemas.FRAMEWORKS` for each estimator.

    Args:
        names: of estimators; ``all``.
        dataset: by default :func:`built_in_graph`.
        choices: fields of :class:`FrameworksAudit`.

    Raises:
        DataError: the data set is not prepared.
        UsageError: a name or a choice cannot work, or the data set is too large.
    """
    estimators = chosen(names)
    graph = built_in_graph()
    if dataset:
        graph = open_dataset(dataset, data_dir=data_dir, say=progress.say).graph
    audit = FrameworksAudit(items_in_use(graph), len(estimators), **choices)
    keep_compiled(progress.say)
    graph = audit.graph
    progress.say(
        f"{len(estimators)} estimators on {graph.n_users:,} users, {graph.n_items:,} items and"
        f" {graph.n_links:,} links; {audit.batches:,} batches each."
    )
    vectors = {claim: audit.vectors(claim) for claim in {one.claim for one in estimators}}
    sizes = {"users": graph.n_users, "items": graph.n_items, "links": graph.n_links}
    rows = []
    for estimator in estimators:
        begin = time.perf_counter()
        row = audit.row(estimator, vectors[estimator.claim])
        rows.append({"dataset": dataset, **sizes, **row})
        seconds = time.perf_counter() - begin
        progress.say(f"{estimator.name}: {row['verdict']}  ({seconds:.1f} s)")
    return rows


def undetected(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line for each planted fault that the audit did not find."""
    return [
        f"{row['name']}: the planted fault ({row['planted_fault']}) was not found; draw more"
        f" batches than --batches {row['batches']}."
        for row in rows
        if row["planted_fault"] and row["verdict"] != "biased"
    ]


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


def items_in_use(graph: BipartiteGraph) -> BipartiteGraph:
    """Return the graph without the items that have no link.

    Raises:
        UsageError: it has too many pairs of a user and an item.
    """
    n_items = len(graph.items_in_use)
    if graph.n_users * n_items > MAX_PAIRS:
        raise UsageError(
            f"The audit of frameworks visits all pairs, and {graph.n_users:,} users x {n_items:,}"
            " items are too many. Leave --dataset out, or use a smaller one."
        )
    items = graph.index_in_use[graph.link_item]
    return BipartiteGraph.from_links(graph.link_user, items, graph.n_users, n_items)


def popular_items(graph: BipartiteGraph) -> NDArray[np.bool_]:
    """Return bool[V]: the fewest items that hold half of the links."""
    order = np.argsort(-graph.item_degrees, kind="stable")
    count = int(np.searchsorted(np.cumsum(graph.item_degrees[order]), graph.n_links / 2)) + 1
    popular = np.zeros(graph.n_items, bool)
    popular[order[:count]] = True
    return popular


@partial(jax.jit, static_argnums=0)
@full
def block_mean(estimator: Estimator, vectors: Vectors, batches: Drawn) -> Sum:
    """Return the mean loss of some batches and its gradients, as JAX's arrays."""

    def of_batch(batch: Drawn) -> Any:
        return jax.value_and_grad(estimator.loss, argnums=(0, 1))(*vectors, batch)

    loss, by_vectors = jax.lax.map(of_batch, batches, batch_size=BATCHES_AT_ONCE)
    # A batch of filling has no loss and no gradient.
    real = jnp.sum(jnp.any(batches.weight > 0, axis=1))
    users, items = (jnp.sum(part, axis=0) / real for part in by_vectors)
    return Sum(jnp.sum(loss) / real, users, items, jnp.zeros(0))


def _flat(gradient: Sum) -> Float64:
    """Return a gradient by the vectors, without their last coordinate, as one vector."""
    return np.concatenate([part[:, :-1].reshape(-1) for part in (gradient.users, gradient.items)])
