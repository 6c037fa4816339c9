"""The estimators of frameworks, by their names on the command line, as their documentation
describes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from ncfbench.auditing.frameworks import draws, losses
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError, nearest


@dataclass(frozen=True)
class Estimator:
    """A framework's loss."""

    name: str
    """Name on the command line."""
    title: str
    version: str
    """The version whose documentation it follows."""
    source: str
    """That documentation."""
    remedy: str
    """Advice to a user: one sentence."""
    loss: Callable[[jax.Array, jax.Array, Any], jax.Array]
    """See :mod:`ncfbench.auditing.frameworks.losses`."""
    draw: Callable[[BipartiteGraph, np.random.Generator, draws.Shape], draws.Drawn] = (
        draws.draw_links
    )
    negatives: Callable[[draws.Drawn], losses.Negatives] = losses.in_batch
    claim: str = "softmax"
    """The objective that it claims to estimate, of :data:`ncfbench.auditing.frameworks.claims`."""
    plain: str = ""
    """The objective in which all items count alike, where it claims another one."""
    limit: str = ""
    """The objective that the estimate tends to as the batch grows, of
    :data:`ncfbench.auditing.frameworks.claims.LIMITS`; empty where it has not been derived.
    """
    fault: str = ""
    """The fault that was planted; empty for a framework's own estimator."""


PAPER = Estimator(
    name="paper",
    title="paper's program",
    version="KDD 2017",
    source="https://doi.org/10.1145/3097983.3098202",
    claim="paper",
    remedy=(
        "Count an item as often as the batch has it, and leave out a link's own item: --sampler ns"
        " does both."
    ),
    loss=losses.shared_log,
    negatives=losses.distinct_items,
)
REFERENCE = Estimator(
    name="reference",
    title="reference, in-batch",
    version="-",
    source="https://doi.org/10.1145/3298689.3346996",
    remedy="This is the bias that any softmax over so small a sample has.",
    loss=losses.reference_softmax,
    negatives=losses.but_own_item,
    limit="softmax",
)
UNCORRECTED = replace(REFERENCE, limit="", remedy="Subtract log p(item) from the logits.")
# ``tfrs.tasks.Retrieval(temperature=1 / scale)``; its sum over the batch is a mean here.
TFRS = Estimator(
    name="tfrs",
    title="TFRS Retrieval",
    version="0.7.7",
    source="https://www.tensorflow.org/recommenders/api_docs/python/tfrs/tasks/Retrieval",
    remedy=(
        "Pass candidate_sampling_probability, each item's share of the training links. The task"
        " sums over the batch: with SGD, divide the learning rate by b; with Adam it hardly"
        " matters."
    ),
    loss=losses.in_batch_softmax,
)
SENTENCE_TRANSFORMERS = Estimator(
    name="st-mnrl",
    title="ST MNRL",
    version="6.2.0",
    source=(
        "https://sbert.net/docs/package_reference/sentence_transformer/losses.html"
        "#multiplenegativesrankingloss"
    ),
    remedy=(
        "It has no correction: use it where all items are about equally popular, or subclass it and"
        " subtract log p(item) from the scaled similarities."
    ),
    loss=losses.in_batch_softmax,
)
# ``ContrastiveOutput(DotProduct(), "in-batch", logits_temperature=1 / scale)``
MERLIN = Estimator(
    name="merlin",
    title="Merlin in-batch",
    version="23.12.00",
    source=(
        "https://nvidia-merlin.github.io/models/stable/generated/"
        "merlin.models.tf.ContrastiveOutput.html"
    ),
    remedy=(
        "Add post=PopularityLogitsCorrection(item_frequencies, reg_factor=T) with T ="
        " logits_temperature, and store_negative_ids=True, which it needs."
    ),
    loss=losses.merlin_softmax,
    negatives=losses.but_own_item,
)
# ``post=PopularityLogitsCorrection``, which corrects positives too, with the default reg_factor.
MERLIN_CORRECTED = replace(
    MERLIN,
    name="merlin-logq",
    title="Merlin, corrected",
    source=(
        "https://nvidia-merlin.github.io/models/stable/generated/"
        "merlin.models.tf.PopularityLogitsCorrection.html"
    ),
    remedy="The temperature T divides log p too: set reg_factor=T, so that T cancels.",
    loss=partial(losses.merlin_softmax, reg_factor=1.0),
)
# ``distribution: uniform, sample_num: 1``
RECBOLE = Estimator(
    name="recbole",
    title="RecBole, uniform",
    version="1.2.1",
    source="https://recbole.io/docs/user_guide/config/training_settings.html",
    claim="bpr",
    remedy="One negative for each link makes it noisy: raise sample_num.",
    loss=losses.bpr,
    draw=draws.draw_with_unlinked_items,
    negatives=losses.other_pairs,
)

ESTIMATORS = (
    PAPER,
    REFERENCE,
    TFRS,
    replace(
        TFRS,
        name="tfrs-logq",
        title="TFRS, probabilities",
        remedy="Use it so, and as large a batch as fits.",
        limit="softmax",
        loss=partial(losses.in_batch_softmax, corrects=True),
    ),
    replace(
        TFRS,
        name="tfrs-hits",
        title="TFRS, hits removed",
        remedy=(
            "Removing hits does not correct for popularity: pass candidate_sampling_probability"
            " too."
        ),
        loss=partial(losses.in_batch_softmax, removes_hits=True),
        negatives=losses.but_own_item,
    ),
    SENTENCE_TRANSFORMERS,
    replace(
        SENTENCE_TRANSFORMERS,
        name="st-no-duplicates",
        title="ST, no duplicates",
        source="https://sbert.net/docs/package_reference/sentence_transformer/sampler.html",
        remedy=(
            "Use random batches with a correction: links of popular items end up in short batches"
            " late in the epoch, where they have few negatives."
        ),
        draw=draws.draw_without_duplicates,
    ),
    MERLIN,
    MERLIN_CORRECTED,
    replace(
        MERLIN_CORRECTED,
        name="merlin-logq-t",
        title="Merlin, reg_factor=T",
        remedy=(
            "Use it with as large a batch as fits. The bias in the limit comes from the positive's"
            " weight 1 / (b p), which must be 1: correct only the negatives, by log(b p)."
        ),
        limit="softmax-others",
        loss=partial(losses.merlin_softmax, reg_factor=1 / losses.SCALE),
    ),
    Estimator(
        name="gradcache",
        title="GradCache",
        version="arXiv 2101.06983",
        source="https://github.com/luyug/GradCache",
        remedy=(
            "The cache is exact; the loss inside lacks a correction: give it a loss that subtracts"
            " log p(item) from the logits."
        ),
        loss=losses.cached_softmax,
    ),
    # The queue holds vectors of the present parameters: what the audit shows is not their age.
    Estimator(
        name="xbm",
        title="XBM (CBNS)",
        version="arXiv 2110.15154",
        source="https://arxiv.org/abs/2110.15154",
        remedy=(
            "Items get only 1 / (batches in memory + 1) of their gradient as negatives: keep the"
            " memory short. Encoding its items again does not help unless their gradient is kept"
            " too."
        ),
        loss=partial(losses.in_batch_softmax, corrects=True),
        draw=draws.draw_with_memory,
    ),
    RECBOLE,
    # ``distribution: popularity, alpha: 1.0``
    replace(
        RECBOLE,
        name="recbole-popular",
        title="RecBole, popular",
        claim="bpr-popular",
        plain="bpr",
        remedy=(
            "That is an objective of its own: take uniform, or alpha below 1, if popular items"
            " should not be pushed down."
        ),
        draw=partial(draws.draw_with_unlinked_items, by_popularity=True),
    ),
    # ``negative_sampling(edge_index, (users, items), b)`` with all training links: as many pairs
    # without a link as links, and a user is drawn whatever her degree.
    Estimator(
        name="pyg",
        title="PyG link prediction",
        version="2.8.1",
        source=(
            "https://pytorch-geometric.readthedocs.io/en/stable/modules/utils.html"
            "#torch_geometric.utils.negative_sampling"
        ),
        claim="bce",
        remedy=(
            "Give all training links as edge_index, not the batch's, and num_nodes=(users, items),"
            " or linked pairs and pairs of two users become negatives."
        ),
        loss=losses.link_prediction,
        draw=draws.draw_with_unlinked_pairs,
        negatives=losses.other_pairs,
    ),
    # Planted faults that estimators have had: the audit must find each of them.
    replace(
        UNCORRECTED,
        name="fault-sign",
        title="FAULT: sign of logQ",
        fault="wrong sign of the logQ correction",
        loss=partial(losses.reference_softmax, sign=1.0),
    ),
    replace(
        UNCORRECTED,
        name="fault-missing",
        title="FAULT: no logQ",
        fault="no logQ correction",
        loss=partial(losses.reference_softmax, corrects=False),
    ),
    replace(
        UNCORRECTED,
        name="fault-dropped",
        title="FAULT: chunks lost",
        fault="a cached loss that drops all gradients but the last",
        remedy="Let the gradients of all chunks add up before the optimiser's step.",
        loss=partial(losses.reference_softmax, replayed=[losses.CHUNKS - 1]),
    ),
    replace(
        RECBOLE,
        name="fault-collisions",
        title="FAULT: linked pairs",
        fault="linked pairs among the negatives",
        remedy="Draw again where the item is a link of the user.",
        draw=draws.draw_with_items,
    ),
)
"""The estimators that can be audited, in the table's order."""
BY_NAME = {estimator.name: estimator for estimator in ESTIMATORS}


def chosen(names: Sequence[str]) -> list[Estimator]:
    """Return the estimators with some names, in the table's order; all of them for ``all``.

    Raises:
        UsageError: a name is unknown; the message has the nearest one.
    """
    if "all" in names:
        return list(ESTIMATORS)
    for name in names:
        if name not in BY_NAME:
            valid = [*BY_NAME, "all"]
            raise UsageError(
                f"Unknown framework {name!r}{nearest(name, valid)} Valid: {', '.join(valid)}."
            )
    if not names:
        raise UsageError(f"No frameworks are named. Valid: {', '.join(BY_NAME)} or all.")
    return [estimator for estimator in ESTIMATORS if estimator.name in names]
