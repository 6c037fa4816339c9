"""The conformance suite: properties that every sampler must have, tested one at a time.

Pure NumPy and SciPy. A property is *not tested* where another failure makes it meaningless: weights
that are not finite have no expectation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Literal

import numpy as np

from ncfbench.auditing import layout
from ncfbench.auditing.estimator_tests import ERROR, TestFunctions, chi_squared
from ncfbench.config import MAX_SEED, RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import NcfbenchError
from ncfbench.rng import Streams
from ncfbench.sampling import Sampler, make_sampler, plan_capacity
from ncfbench.sampling.batch import Batch

Result = Literal["pass", "fail", "not tested", "declared"]
"""``declared``: the sampler says itself that its expected loss is another one, and why."""

SUMMED_LINKS = 64_000
UNKNOWN_SHUFFLED_BIAS = 0.05
"""Relative error allowed in the shuffled stream of a sampler that does not state its own."""
CONFORMANCE_SEED = MAX_SEED + 4
PROPERTIES = {
    "shapes": "static shapes and dtypes",
    "ids": "ids in range",
    "held-out": "no held-out item ever",
    "permutations": "the positive stream is a sequence of permutations",
    "streams": "same seed, same batches from any start",
    "weights": "weights finite and not negative",
    "draws": "raw draws follow the declared distribution",
    "expectation": "expected loss right",
}
NEEDS = {"held-out": {"ids"}, "expectation": {"ids", "shapes", "weights"}}
"""Properties without which another one means nothing."""


@dataclass(frozen=True)
class PropertyResult:
    """The result for one property."""

    property: str
    result: Result
    detail: str
    """The fault, or the reason why it was not tested."""
    detectable_error: float | None = None
    """Relative error of the weighted sum of negative links that would be found nine times in ten,
    for the property of the expected loss.
    """


def conformance(
    graph: BipartiteGraph,
    config: RunConfig,
    batches: int = 250,
    sums: int | None = None,
    cases: int = 1,
) -> list[PropertyResult]:
    """Test each of :data:`PROPERTIES` for the sampler that ``config`` names.

    Args:
        batches: batches of the shuffled stream to test, and as many drawn with replacement.
        sums: batches with replacement that the expected loss is estimated from; by default as many
            as have ``SUMMED_LINKS`` positive links.
        cases: samplers and settings that are tested together, among which ``ERROR`` is divided.
    """
    try:
        suite = _Suite(graph, config, batches, sums, cases)
    except NcfbenchError:
        raise
    except Exception as error:  # noqa: BLE001 - a sampler may raise anything
        first, *rest = PROPERTIES
        untested = [PropertyResult(name, "not tested", f"because of: {first}") for name in rest]
        return [PropertyResult(first, "fail", f"no batch can be made: {_raised(error)}"), *untested]
    results: list[PropertyResult] = []
    for name in PROPERTIES:
        failed = {result.property for result in results if result.result == "fail"}
        results.append(suite.result(name, sorted(NEEDS.get(name, set()) & failed)))
    if math.isfinite(suite.detectable):
        results[-1] = replace(results[-1], detectable_error=suite.detectable)
    return results


class _Suite:
    def __init__(
        self, graph: BipartiteGraph, config: RunConfig, batches: int, sums: int | None, cases: int
    ) -> None:
        self.graph, self.config, self.error = graph, config, ERROR / cases
        self.sums = sums or max(SUMMED_LINKS // config.batch_size, 200)
        self.detectable = math.inf
        self.slots = plan_capacity(graph, config)
        self.claims = self._sampler().claims()
        self.shuffled = list(islice(self._sampler().batches(0, self.slots), batches))
        self.replaced = list(
            islice(self._sampler(replacement=True).batches(0, self.slots), batches)
        )

    def result(self, name: str, missing: Sequence[str]) -> PropertyResult:
        if missing:
            return PropertyResult(name, "not tested", f"because of: {', '.join(missing)}")
        try:
            fault = self._fault(name)
        except Exception as error:  # noqa: BLE001 - see conformance()
            fault = _raised(error)
        claims = self.claims
        if name == "expectation" and claims.bias:
            detail = claims.bias + (f" ({fault})" if fault else "")
            return PropertyResult(name, "declared", detail)
        return PropertyResult(name, "fail" if fault else "pass", fault)

    def _fault(self, name: str) -> str:
        """Describe the fault of a property; empty where it holds."""
        b = self.config.batch_size
        of_batches = {
            "shapes": lambda batches: layout.shape_fault(batches, b),
            "ids": lambda batches: layout.id_fault(batches, self.graph),
            "held-out": self._held_out,
            "weights": _weight_fault,
        }
        of_streams = {
            "permutations": self._permutations,
            "streams": self._streams,
            "draws": self._draws,
            "expectation": self._expectation,
        }
        if name in of_streams:
            return of_streams[name]()
        fault = of_batches[name](self.replaced)
        return of_batches[name](self.shuffled) or (fault and f"with replacement, {fault}")

    def _sampler(self, *, replacement: bool = False, seed: int = CONFORMANCE_SEED) -> Sampler:
        return make_sampler(self.graph, self.config, Streams(seed), replacement=replacement)

    def _held_out(self, batches: Sequence[Batch]) -> str:
        degrees = self.graph.item_degrees
        for number, batch in enumerate(batches):
            items = batch.items[: int(batch.n_items)]
            if (degrees[items] == 0).any():
                item = self.graph.name(int(items[degrees[items] == 0][0]))
                return f"batch {number} embeds {item}, which has no training link"
        return ""

    def _permutations(self) -> str:
        sampler, b, epochs = self._sampler(), self.config.batch_size, 2
        n, most = sampler.positives.epoch_length, self.graph.n_links
        links = np.concatenate([draw.links for draw in sampler.draw(0, -(-epochs * n // b))])
        for epoch in range(epochs):
            counts = np.bincount(links[epoch * n : (epoch + 1) * n], minlength=most)
            # An epoch may leave links out where the sampler says so.
            is_wrong = counts > 1 if n < most else counts != 1
            if is_wrong.any():
                wrong = int(np.argmax(is_wrong))
                return f"epoch {epoch} holds link {wrong} {int(counts[wrong])} times"
        if np.array_equal(links[:n], links[n : 2 * n]):
            return "every epoch has the same order"
        return ""

    def _streams(self) -> str:
        again = list(islice(self._sampler().batches(0, self.slots), 8))
        last = len(self.shuffled) - 1
        for start in (0, 1, min(7, last), last // 2, last):
            repeated = [*again[start : start + 1], next(self._sampler().batches(start, self.slots))]
            if not all(layout.are_same(batch, self.shuffled[start]) for batch in repeated):
                return f"batch {start} differs when the stream starts there, or starts again"
        reseeded = self._sampler(seed=CONFORMANCE_SEED + 1).batches(0, self.slots)
        if all(map(layout.are_same, again, reseeded)):
            return "another seed gives the same batches"
        return ""

    def _draws(self) -> str:
        """Test the raw draws by chi-squared: positive links with replacement, negative nodes."""
        graph, sampler, claims = self.graph, self._sampler(replacement=True), self.claims
        draws = sampler.draw(0, len(self.replaced))
        links, users, items = (
            np.concatenate([getattr(draw, name).reshape(-1) for draw in draws])
            for name in ("links", "users", "items")
        )
        # The links of a stratum are not independent: one of each stratum is tested.
        uniform = np.full(graph.n_links, 1 / graph.n_links)
        tests = [("positive links", links[:: sampler.stratum_size], uniform)]
        if users.size:
            tests.append(("negative users", users, graph.user_degrees / graph.n_links))
        if items.size and claims.drawn_items is not None:
            tests.append(("negative items", items, claims.drawn_items))
        for name, drawn, probability in tests:
            p = chi_squared(drawn, probability)
            if p < self.error / len(tests):
                return f"{name} do not follow their distribution (chi-squared, p = {p:.1e})"
        return ""

    def _expectation(self) -> str:
        """Compare means of functions of links under the batches' weights with the exact sums.

        With replacement, only noise is allowed. In the stream that training uses, the known effect
        of shuffling is allowed besides.
        """
        functions = TestFunctions(self.graph, self.config)
        stream = self._sampler(replacement=True).batches(len(self.replaced), self.slots)
        replaced = chain(self.replaced, islice(stream, self.sums))
        fault, self.detectable = functions.compare(replaced, error=self.error)
        if fault:
            return fault
        known = self.claims.shuffled_bias
        fault, _ = functions.compare(
            self.shuffled,
            slack=UNKNOWN_SHUFFLED_BIAS if known is None else 3 * known,
            error=self.error,
        )
        if fault:
            return f"in the stream used in training, {fault}"
        if functions.foreign:
            return (
                f"{functions.foreign} negative links of a batch belong to another user than their"
                " positive link"
            )
        return ""


def _weight_fault(batches: Sequence[Batch]) -> str:
    for number, batch in enumerate(batches):
        weight = batch.negatives.weight
        is_bad = ~(np.isfinite(weight) & (weight >= 0))
        if is_bad.any():
            return f"batch {number} has a weight of {float(weight[is_bad][0])}"
    return ""


def _raised(error: Exception) -> str:
    return f"raises {type(error).__name__}: {error}"
