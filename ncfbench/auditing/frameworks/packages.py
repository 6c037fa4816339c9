"""The packages themselves: the loss that an installed one gives for a batch of ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata, util
from typing import Any

import jax
import numpy as np

from ncfbench.auditing.frameworks.claims import CLAIMS, DIMENSION
from ncfbench.auditing.frameworks.estimator import Drawn, Estimator
from ncfbench.auditing.frameworks.links import Float32, Links
from ncfbench.errors import UsageError, reason

TOLERANCE = 1e-5
"""Largest difference of the losses, relative to the loss where that is above 1."""


def _sentence_transformers(
    estimator: Any, users: Float32, items: Float32, batch: Drawn, links: Links
) -> tuple[float, Drawn]:
    torch, losses = import_module("torch"), import_module("sentence_transformers.losses")
    # The model is the identity: the vectors are given.
    loss = losses.MultipleNegativesRankingLoss(lambda vectors: vectors, scale=estimator.scale)
    real = batch.weight > 0
    vectors = [
        {"sentence_embedding": torch.from_numpy(rows)}
        for rows in (users[batch.user[real]], items[batch.item[real]])
    ]
    return float(loss(vectors, None)), batch


def _tfrs(
    estimator: Any, users: Float32, items: Float32, batch: Drawn, links: Links
) -> tuple[float, Drawn]:
    retrieval = import_module("tensorflow_recommenders").tasks.Retrieval(
        temperature=1 / estimator.scale, remove_accidental_hits=estimator.removes_hits
    )
    loss = retrieval(
        users[batch.user],
        items[batch.item],
        candidate_sampling_probability=batch.probability if estimator.uses_probability else None,
        candidate_ids=batch.item,
        compute_metrics=False,
    )
    return float(loss) / len(batch.user), batch


def _recbole(
    estimator: Any, users: Float32, items: Float32, batch: Drawn, links: Links
) -> tuple[float, Drawn]:
    torch, losses = import_module("torch"), import_module("recbole.model.loss")
    scores = [
        torch.from_numpy(np.sum(users[batch.user] * items[ids], axis=1))
        for ids in (batch.item, batch.other_item)
    ]
    return float(losses.BPRLoss()(*scores)), batch


def _pyg(
    estimator: Any, users: Float32, items: Float32, batch: Drawn, links: Links
) -> tuple[float, Drawn]:
    """Return the loss with negatives that the package draws, and the batch with them."""
    torch, utils = import_module("torch"), import_module("torch_geometric.utils")
    edges = torch.from_numpy(np.stack([links.user, links.item]).astype(np.int64))
    sizes = (links.n_users, links.n_items)
    user, item = utils.negative_sampling(edges, sizes, len(batch.user)).numpy()
    batch = batch._replace(other_user=user, other_item=item)
    scores = np.concatenate(
        [
            np.sum(users[batch.user] * items[batch.item], axis=1),
            np.sum(users[user] * items[item], axis=1),
        ]
    )
    labels = np.repeat(np.array([1, 0], np.float32), [len(batch.user), len(user)])
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        torch.from_numpy(scores), torch.from_numpy(labels)
    )
    return float(loss), batch


@dataclass(frozen=True)
class Package:
    """A package that has an estimator's loss."""

    distribution: str
    """Its name for pip."""
    module: str
    loss: Callable[..., tuple[float, Drawn]]


SENTENCE_TRANSFORMERS = Package(
    "sentence-transformers", "sentence_transformers", _sentence_transformers
)
TFRS = Package("tensorflow-recommenders", "tensorflow_recommenders", _tfrs)
RECBOLE = Package("recbole", "recbole", _recbole)
PYG = Package("torch_geometric", "torch_geometric", _pyg)
PACKAGES = {
    "tfrs": TFRS,
    "tfrs-logq": TFRS,
    "tfrs-hits": TFRS,
    "st-mnrl": SENTENCE_TRANSFORMERS,
    "st-no-duplicates": SENTENCE_TRANSFORMERS,
    "recbole": RECBOLE,
    "recbole-popular": RECBOLE,
    "pyg": PYG,
}
"""Packages by the estimator's name."""


def require(estimator: Estimator) -> Package:
    """Return an estimator's package.

    Raises:
        UsageError: there is none to compare with, or it is not installed.
    """
    package = PACKAGES.get(estimator.name)
    if package is None:
        raise UsageError(
            f"--installed: {estimator.name} has no package to compare with. Those that have one:"
            f" {', '.join(PACKAGES)}."
        )
    if util.find_spec(package.module) is None:
        raise UsageError(
            f"--installed: {estimator.name} needs {package.distribution}, which is not installed."
            f" Install it: python -m pip install {package.distribution}"
        )
    return package


def _imported(package: Package) -> str:
    """Import a package and return its version.

    Raises:
        UsageError: it fails, for whatever reason, such as names that NumPy no longer has.
    """
    # TensorFlow Recommenders needs Keras 2, and TensorFlow reads this when it is imported.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    try:
        import_module(package.module)
        return metadata.version(package.distribution)
    except Exception as error:
        raise UsageError(
            f"--installed: {package.distribution} cannot be imported: {reason(error)}."
        ) from error


def compare(links: Links, estimators: Sequence[Estimator], batch_size: int) -> list[dict[str, Any]]:
    """Return for each estimator its loss of one batch, and that of the installed package.

    Raises:
        UsageError: a package is not installed, cannot be imported, or has another interface.
    """
    rows = []
    for estimator, package in [(each, require(each)) for each in estimators]:
        rng = np.random.default_rng(0)
        users, items = (
            rng.normal(size=(n, DIMENSION)).astype(np.float32)
            for n in (links.n_users, links.n_items)
        )
        if CLAIMS[estimator.claim].is_unit:
            users, items = (
                raw / np.linalg.norm(raw, axis=1, keepdims=True) for raw in (users, items)
            )
        drawn = estimator.draw(links, rng, batch_size, 1)
        batch = Drawn(*(part[0] for part in drawn))
        version = _imported(package)
        try:
            theirs, batch = package.loss(estimator, users, items, batch, links)
        except (ImportError, AttributeError, TypeError) as error:
            raise UsageError(
                f"--installed: {package.distribution} {version} cannot be called as"
                f" {estimator.version}, the version that ours follows: {reason(error)}."
            ) from error
        ours = float(jax.jit(estimator.loss)(users, items, batch))
        rows.append(
            {
                "name": estimator.name,
                "package": package.distribution,
                "version": version,
                "followed_version": estimator.version,
                "our_loss": ours,
                "package_loss": theirs,
                "agrees": abs(ours - theirs) <= TOLERANCE * max(1.0, abs(theirs)),
            }
        )
    return rows
