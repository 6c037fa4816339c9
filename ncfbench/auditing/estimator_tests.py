"""Tests of an estimator by its weights: functions of links whose expectation is known exactly.

Pure NumPy and SciPy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncfbench.auditing.bias import POWER
from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.sampling.batch import Batch, Listed, negative_ids
from ncfbench.sampling.noise import Noise

Float64 = NDArray[np.float64]
Ids = NDArray[np.integer]

ERROR = 1e-4
"""Probability that one of a suite's tests of a kind fails for right samplers."""
TEST_FUNCTIONS = 8
"""Random functions of links whose expectation under a batch's weights is compared with the exact
one, beside named ones.
"""


class TestFunctions:
    """Functions of links whose exact expectation takes a few products.

    Random ones, ``1 + x_u . y_v``, are tested on positive links and on negative ones; for losses
    that compare a negative link with its positive one, on the product of both. Named ones of
    negative links alone tell what is usually wrong: their number, the popularity of their items,
    rare items, users' degrees, training links among them.
    """

    __test__ = False

    def __init__(self, graph: BipartiteGraph, config: RunConfig, dimension: int = 3) -> None:
        rng = np.random.default_rng(0)
        self.graph, self.config = graph, config
        noise = Noise(graph, config.noise_exponent)
        self.measure = (
            (graph.item_degrees > 0) * 1.0 if config.family == "listwise" else noise.probability
        )
        degree = graph.item_degrees / graph.n_links * len(graph.items_in_use)
        common = np.cumsum(np.sort(degree)) > degree.sum() / 2
        is_rare = (degree < np.sort(degree)[common][0]) * 1.0
        users_degree = graph.user_degrees / graph.user_degrees.mean()
        named: dict[str, tuple[Any, Any]] = {
            "negative weight": (1.0, 1.0),
            "negative items' degree": (1.0, degree),
            "negative weight on rare items": (1.0, is_rare),
            "negative users' degree": (users_degree, 1.0),
        }
        random = (TEST_FUNCTIONS, 1 + dimension)
        self.x = np.zeros((graph.n_users, TEST_FUNCTIONS + len(named), 1 + dimension))
        self.y = np.zeros((graph.n_items, *self.x.shape[1:]))
        self.x[:, :TEST_FUNCTIONS] = rng.uniform(-0.5, 0.5, (graph.n_users, *random))
        self.y[:, :TEST_FUNCTIONS] = rng.uniform(-1, 1, (graph.n_items, *random))
        self.x[:, :TEST_FUNCTIONS, 0] = self.y[:, :TEST_FUNCTIONS, 0] = 1
        for index, (by_user, by_item) in enumerate(named.values(), TEST_FUNCTIONS):
            self.x[:, index, 0], self.y[:, index, 0] = by_user, by_item
        self.names = [
            *["a random function of positive links"] * TEST_FUNCTIONS,
            *["a random function of negative links"] * TEST_FUNCTIONS,
            *named,
            "negative weight on training links",
        ]
        self.foreign = 0
        """The most negative links of a batch that belong to another user than their positive one,
        for losses that compare the two.
        """

    def _factor(self, user: Ids, item: Ids) -> Float64:
        """Return each positive link's factor, float64[b, functions]: 1 for negative links alone."""
        factor = np.ones((len(user), self.x.shape[1]))
        if self.config.family != "pointwise":
            factor[:, :TEST_FUNCTIONS] = self._positive(user, item)
        return factor

    def _positive(self, user: Ids, item: Ids) -> Float64:
        x, y = self.x[user, :TEST_FUNCTIONS], self.y[item, :TEST_FUNCTIONS]
        values: Float64 = np.einsum("btd,btd->bt", x, y)
        return values

    def measured(self, batch: Batch) -> Float64:
        """Return a batch's mean over positive links and weighted sums over negative ones.

        float64[names].
        """
        user, item = batch.users[batch.pos_user], batch.items[batch.pos_item]
        users, items = negative_ids(batch)
        weight = batch.negatives.weight.astype(np.float64)
        linked = float(weight[self.graph.linked(users, items)].sum())
        factor = self._factor(user, item)
        if self.config.family != "pointwise":
            foreign = np.count_nonzero((users != user[:, None]) & (weight > 0))
            self.foreign = max(self.foreign, int(foreign))
        if isinstance(batch.negatives, Listed):
            values = np.einsum("bktd,bktd->bkt", self.x[users], self.y[items])
            negative = np.einsum("bt,bk,bkt->t", factor, weight, values)
        else:
            # All rows have the same items.
            y = self.y[batch.items]
            inner = (weight @ y.reshape(len(y), -1)).reshape(len(weight), *y.shape[1:])
            negative = np.einsum("bt,btd,btd->t", factor, self.x[user], inner)
        return np.concatenate([self._positive(user, item).mean(axis=0), negative, [linked]])

    def compare(
        self, batches: Iterable[Batch], slack: float = 0.0, error: float = ERROR
    ) -> tuple[str, float]:
        """Compare the mean over some batches with the exact expectation.

        Returns:
            The fault, empty for none; and the relative error that would be found nine times in ten.

        Args:
            slack: relative error tolerated.
            error: probability of a fault in a right sampler.
        """
        from scipy import stats

        values, exact = np.stack([self.measured(batch) for batch in batches]), self.exact()
        if not np.isfinite(values).all():
            return "a batch has weights that are not finite", math.inf
        n, means = len(values), values.mean(axis=0)
        quantile = float(stats.t.isf(error / (2 * len(exact)), n - 1))
        # Where all batches agree, nothing but the rounding of float32 is left.
        deviation = np.maximum(
            values.std(axis=0, ddof=1), 1e-5 * np.maximum(np.abs(exact), 1e-3 * exact.max())
        ) / np.sqrt(n)
        t = np.maximum(np.abs(means - exact) - slack * np.abs(exact), 0) / deviation
        weights = slice(2 * TEST_FUNCTIONS, None)
        room = (quantile + float(stats.norm.ppf(POWER))) * deviation[weights]
        detectable = float(np.max(room[exact[weights] > 0] / exact[weights][exact[weights] > 0]))
        if t.max() <= quantile:
            return "", detectable
        # A function with a name says more than a random one.
        is_named = t[weights].max() > quantile
        worst = int(np.argmax(t[weights])) + weights.start if is_named else int(np.argmax(t))
        fault = (
            f"the mean of {self.names[worst]} is {means[worst]:.4g} instead of {exact[worst]:.4g}"
            f" (t = {t[worst]:.1f}, {n} batches)"
        )
        return fault, detectable

    def exact(self) -> Float64:
        """Return the functions' expectations by the definition of L, float64[names]."""
        graph, measure = self.graph, self.measure
        user, item = graph.link_user, graph.link_item
        of_user = np.einsum("utd,td->ut", self.x, np.einsum("v,vtd->td", measure, self.y))
        linked = np.bincount(user, measure[item], graph.n_users)
        if self.config.mask:
            of_link = np.einsum("ltd,ltd->lt", self.x[user], self.y[item])
            np.subtract.at(of_user, user, measure[item, None] * of_link)
            linked[:] = 0.0
        negative = np.mean(self._factor(user, item) * of_user[user], axis=0)
        own_links = linked[user].mean()
        return np.concatenate([self._positive(user, item).mean(axis=0), negative, [own_links]])


def chi_squared(drawn: Ids, probability: Float64) -> float:
    """Return the p-value of draws under a distribution.

    Outcomes are pooled, in order of probability, so that five or more are expected of each.
    """
    from scipy import stats

    if drawn.min() < 0 or drawn.max() >= len(probability) or (probability[drawn] == 0).any():
        return 0.0
    possible = np.flatnonzero(probability)
    order = possible[np.argsort(probability[possible], kind="stable")]
    mean = len(drawn) * probability[order]
    counts = np.bincount(drawn, minlength=len(probability))[order]
    cell = np.minimum((np.cumsum(mean) / 5).astype(np.int64), max(len(drawn) // 5 - 1, 0))
    _, cell = np.unique(cell, return_inverse=True)
    expected, observed = np.bincount(cell, mean), np.bincount(cell, counts)
    if len(expected) < 2:
        return 1.0
    return float(stats.chi2.sf(np.sum((observed - expected) ** 2 / expected), len(expected) - 1))
