"""The conformance suite: properties that every sampler must have, tested one at a time.

Pure NumPy and SciPy. A property is *not tested* where another failure makes it meaningless: weights
that are not finite have no expectation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Literal

import numpy as np

from ncfbench.auditing.estimator_tests import ERROR, TestFunctions, chi_squared
from ncfbench.config import MAX_SEED, RunConfig, identity_of
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import NcfbenchError
from ncfbench.rng import Streams
from ncfbench.sampling import Sampler, make_sampler, plan_capacity
from ncfbench.sampling.batch import Batch, EveryUser, Listed, MetUsers, Shared, negative_weights

Result = Literal["pass", "fail", "not tested", "declared"]
"""``declared``: the sampler says itself that its expected loss is another one, and why."""

SUMMED_LINKS = 64_000
UNKNOWN_SHUFFLED_BIAS = 0.05
"""Relative error allowed in the shuffled stream of a sampler that does not state its own."""
CONFORMANCE_SEED = MAX_SEED + 4
LINKED = ("linked_user", "linked_item")
"""Pairs that all users' negatives leave out."""
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


@dataclass(frozen=True)
class Outcome:
    """The outcome of one property."""

    name: str
    result: Result
    detail: str
    """The fault, or the reason why it was not tested."""
    detectable_error: float | None = None
    """Relative error of the weighted sum of negative links that would be found nine times in ten,
    for the property of the expected loss.
    """


def conformance(
    graph: BipartiteGraph, config: RunConfig, batches: int = 250, sums: int | None = None
) -> list[Outcome]:
    """Test each of :data:`PROPERTIES` for the sampler that ``config`` names.

    Args:
        batches: batches of the shuffled stream to test, and as many drawn with replacement.
        sums: batches with replacement that the expected loss is estimated from; by default as many
            as have ``SUMMED_LINKS`` positive links.
    """
    try:
        suite = _Suite(graph, config, batches, sums)
    except NcfbenchError:
        raise
    except Exception as error:  # noqa: BLE001 - a sampler may raise anything
        first, *others = PROPERTIES
        untested = [Outcome(name, "not tested", f"because of: {first}") for name in others]
        return [Outcome(first, "fail", f"no batch can be made: {_raised(error)}"), *untested]
    failed: set[str] = set()
    outcomes = []
    for name in PROPERTIES:
        # Without ids in range and finite weights there is nothing to add up.
        blocked = {"expectation": {"ids", "weights", "shapes"}, "held-out": {"ids"}}.get(
            name, set()
        ) & failed
        if blocked:
            outcomes.append(
                Outcome(name, "not tested", f"because of: {', '.join(sorted(blocked))}")
            )
            continue
        fault = suite.check(name)
        claims = suite.claims
        if name == "expectation" and claims.bias and (claims.weighs_biased or not fault):
            detail = claims.bias + (f" ({fault})" if fault else "")
            outcomes.append(Outcome(name, "declared", detail))
            continue
        if fault:
            failed.add(name)
        outcomes.append(Outcome(name, "fail" if fault else "pass", fault))
    if math.isfinite(suite.detectable):
        outcomes[-1] = replace(outcomes[-1], detectable_error=suite.detectable)
    return outcomes


class _Suite:
    def __init__(
        self, graph: BipartiteGraph, config: RunConfig, batches: int, sums: int | None
    ) -> None:
        self.graph, self.config = graph, config
        self.sums = sums or max(SUMMED_LINKS // config.batch_size, 200)
        self.detectable = math.inf
        self.slots = plan_capacity(graph, config)
        self.claims = self._made().claims()
        self.count = batches
        self.shuffled = list(islice(self._made().batches(0, self.slots), batches))
        self.replaced = list(islice(self._made(replacement=True).batches(0, self.slots), batches))

    def check(self, name: str) -> str:
        """Describe the fault of a property; empty where it holds. An exception is a fault, too."""
        checks: dict[str, Callable[[], str]] = {
            "shapes": self._shapes,
            "ids": self._ids,
            "held-out": self._held_out,
            "permutations": self._permutations,
            "streams": self._streams,
            "weights": self._weights,
            "draws": self._draws,
            "expectation": self._expectation,
        }
        try:
            return checks[name]()
        except Exception as error:  # noqa: BLE001 - see conformance()
            return _raised(error)

    def _made(self, *, replacement: bool = False, seed: int = CONFORMANCE_SEED) -> Sampler:
        return make_sampler(self.graph, self.config, Streams(seed), replacement=replacement)

    def _in_both(self, check: Callable[[list[Batch]], str]) -> str:
        """Run a check on the shuffled stream and on that with replacement."""
        found = check(self.replaced)
        return check(self.shuffled) or (found and f"with replacement, {found}")

    def _shapes(self) -> str:
        return self._in_both(self._shapes_in)

    def _shapes_in(self, batches: list[Batch]) -> str:
        b = self.config.batch_size
        first, current = _shapes_of(batches[0]), len(batches[0].items)
        for number, batch in enumerate(batches):
            shapes = _shapes_of(batch)
            slots = len(batch.items)
            expected = {
                "users": (len(batch.users),),
                "items": (slots,),
                "pos_user": (b,),
                "pos_item": (b,),
                "n_items": (),
            }
            expected_weights: dict[str, tuple[int, ...]] = {}
            if isinstance(batch.negatives, MetUsers):
                met = min(len(batch.negatives.user_weight), len(batch.users))
                expected_weights = {
                    "negatives.user_weight": (met,),
                    "negatives.item_weight": (slots,),
                }
                expected["negatives.linked_item"] = np.shape(batch.negatives.linked_user)
            for name, (shape, dtype) in shapes.items():
                if name in expected_weights:
                    if dtype != "float32" or shape != expected_weights[name]:
                        return (
                            f"batch {number}: {name} is {dtype}{list(shape)} instead of"
                            f" float32{list(expected_weights[name])}"
                        )
                elif name == "weight":
                    if dtype != "float32" or len(shape) != 2 or shape[0] != b:
                        return (
                            f"batch {number}: weight is {dtype}{list(shape)} instead of"
                            f" float32[{b}, ...]"
                        )
                elif dtype != "int32":
                    return f"batch {number}: {name} is {dtype} instead of int32"
                elif name in expected and shape != expected[name]:
                    return (
                        f"batch {number}: {name} has shape {list(shape)} instead of"
                        f" {list(expected[name])}"
                    )
            if isinstance(batch.negatives, Shared) and shapes["weight"][0] != (b, slots):
                return (
                    f"batch {number}: shared weights have shape {list(shapes['weight'][0])} instead"
                    f" of [{b}, {slots}]"
                )
            # Slots of items and of linked pairs may grow when a batch needs more than was planned,
            # and the weights with them.
            growing = {"items"} | ({"weight"} if isinstance(batch.negatives, Shared) else set())
            if isinstance(batch.negatives, MetUsers):
                growing |= {f"negatives.{name}" for name in (*LINKED, "item_weight")}
            fixed = [name for name in shapes if name not in growing]
            if shapes.keys() != first.keys() or any(shapes[name] != first[name] for name in fixed):
                return f"batch {number} has other shapes than the first"
            if slots != current and not (slots > current and slots == int(batch.n_items)):
                return f"batch {number} has {slots} item slots, the one before {current}"
            current = slots
        return ""

    def _ids(self) -> str:
        return self._in_both(self._ids_in)

    def _ids_in(self, batches: list[Batch]) -> str:
        for number, batch in enumerate(batches):
            named = {
                "users": (batch.users, self.graph.n_users),
                "items": (batch.items, self.graph.n_items),
                "pos_user": (batch.pos_user, len(batch.users)),
                "pos_item": (batch.pos_item, int(batch.n_items)),
                "n_items": (np.atleast_1d(batch.n_items), len(batch.items) + 1),
            }
            if isinstance(batch.negatives, MetUsers):
                user, item = (getattr(batch.negatives, name) for name in LINKED)
                named["negatives.linked_user"] = user, len(batch.negatives.user_weight) + 1
                is_pair = user < len(batch.negatives.user_weight)
                named["negatives.linked_item"] = item[is_pair], int(batch.n_items)
            if isinstance(batch.negatives, Listed):
                named["negatives.user"] = batch.negatives.user, len(batch.users)
                named["negatives.item"] = batch.negatives.item, int(batch.n_items)
            for name, (ids, size) in named.items():
                if ids.size and (ids.min() < 0 or ids.max() >= size):
                    wrong = int(ids.max() if ids.max() >= size else ids.min())
                    return f"batch {number}: {name} holds {wrong}, not in 0..{size - 1}"
            columns = {Shared: "weight", MetUsers: "item_weight", EveryUser: "item_weight"}
            column = columns.get(type(batch.negatives))
            if column and getattr(batch.negatives, column)[..., int(batch.n_items) :].any():
                return f"batch {number}: a padding slot has weight"
        return ""

    def _held_out(self) -> str:
        return self._in_both(self._held_out_in)

    def _held_out_in(self, batches: list[Batch]) -> str:
        degrees = self.graph.item_degrees
        for number, batch in enumerate(batches):
            items = batch.items[: int(batch.n_items)]
            if (degrees[items] == 0).any():
                item = self.graph.name("item", int(items[degrees[items] == 0][0]))
                return f"batch {number} embeds {item}, which has no training link"
        return ""

    def _permutations(self) -> str:
        made, b, epochs = self._made(), self.config.batch_size, 2
        n, most = made.positives.epoch_length, self.graph.n_links
        links = np.concatenate([draw.links for draw in made.draw(0, -(-epochs * n // b))])
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
        again = list(islice(self._made().batches(0, self.slots), 8))
        last = len(self.shuffled) - 1
        for start in (0, 1, min(7, last), last // 2, last):
            batch = again[start] if start < len(again) else None
            for made in (batch, next(self._made().batches(start, self.slots))):
                if made is not None and not _same(made, self.shuffled[start]):
                    return f"batch {start} differs when the stream starts there, or starts again"
        if all(
            _same(a, b)
            for a, b in zip(
                self._made(seed=CONFORMANCE_SEED + 1).batches(0, self.slots), again, strict=False
            )
        ):
            return "another seed gives the same batches"
        return ""

    def _weights(self) -> str:
        return self._in_both(self._weights_in)

    def _weights_in(self, batches: list[Batch]) -> str:
        for number, batch in enumerate(batches):
            weight = negative_weights(batch)
            if not np.isfinite(weight).all() or (weight < 0).any():
                bad = weight[~np.isfinite(weight) | (weight < 0)][0]
                return f"batch {number} has a weight of {float(bad)}"
        return ""

    def _draws(self) -> str:
        """Test the raw draws by chi-squared: positive links with replacement, negative nodes."""
        graph, made = self.graph, self._made(replacement=True)
        draws = made.draw(0, self.count)
        uniform = np.full(graph.n_links, 1 / graph.n_links)
        links = np.concatenate([draw.links for draw in draws])
        # The links of a stratum are not independent: one of each stratum is tested.
        tests = []
        if self.claims.draws_links_uniformly:
            tests.append(("positive links", links[:: made.stratum_size], uniform))
        users = np.concatenate([draw.users.reshape(-1) for draw in draws])
        items = np.concatenate([draw.items.reshape(-1) for draw in draws])
        if users.size:
            tests.append(("negative users", users, graph.user_degrees / graph.n_links))
        if items.size and self.claims.drawn_items is not None:
            tests.append(("negative items", items, self.claims.drawn_items))
        for name, drawn, probability in tests:
            p = chi_squared(drawn, probability)
            if p < ERROR / len(tests):
                return f"{name} do not follow their distribution (chi-squared, p = {p:.1e})"
        return ""

    def _expectation(self) -> str:
        """Compare means of functions of links under the batches' weights with the exact sums.

        With replacement, only noise is allowed. In the stream that training uses, the known effect
        of shuffling is allowed besides.
        """
        functions = TestFunctions(self.graph, self.config)
        more = islice(
            self._made(replacement=True).batches(len(self.replaced), self.slots), self.sums
        )
        fault, self.detectable = functions.compare(chain(self.replaced, more))
        if fault:
            return fault
        known = self.claims.shuffled_bias
        fault, _ = functions.compare(
            self.shuffled, slack=UNKNOWN_SHUFFLED_BIAS if known is None else 3 * known
        )
        if fault:
            return f"in the stream used in training, {fault}"
        if functions.foreign:
            return (
                f"{functions.foreign} negative links of a batch belong to another user than their"
                " positive link"
            )
        return ""


def rows(config: RunConfig, outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return the outcomes as rows of :data:`ncfbench.storage.schemas.CONFORMANCE`."""
    effective = identity_of(config)
    return [
        {
            **{name: effective[name] for name in ("dataset", "noise", "sampler", "strata")},
            "loss_family": config.family,
            "property": outcome.name,
            "result": outcome.result,
            "detail": outcome.detail,
            "detectable_error": outcome.detectable_error,
        }
        for outcome in outcomes
    ]


def _shapes_of(batch: Batch) -> dict[str, tuple[tuple[int, ...], str]]:
    named = {
        name: getattr(batch, name) for name in ("users", "items", "pos_user", "pos_item", "n_items")
    }
    named |= {
        ("weight" if name == "weight" else f"negatives.{name}"): a
        for name, a in batch.negatives._asdict().items()
    }
    return {name: (np.shape(array), str(np.asarray(array).dtype)) for name, array in named.items()}


def _raised(error: Exception) -> str:
    return f"raises {type(error).__name__}: {error}"


def _same(one: Batch, other: Batch) -> bool:
    """Return whether two batches are equal but for padding."""
    n = int(one.n_items)
    if n != int(other.n_items) or not np.array_equal(one.items[:n], other.items[:n]):
        return False
    pairs = [
        (getattr(one, name), getattr(other, name)) for name in ("users", "pos_user", "pos_item")
    ]
    left, right = one.negatives, other.negatives
    if isinstance(left, Shared) and isinstance(right, Shared):
        pairs.append((left.weight[:, :n], right.weight[:, :n]))
    elif isinstance(left, MetUsers) and isinstance(right, MetUsers):
        pairs.append((negative_weights(one)[:, :n], negative_weights(other)[:, :n]))
    else:
        pairs += list(zip(left, right, strict=True))
    return all(
        np.array_equal(a, b, equal_nan=np.issubdtype(np.asarray(a).dtype, np.floating))
        for a, b in pairs
    )
