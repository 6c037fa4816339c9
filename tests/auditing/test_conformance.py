"""The conformance suite passes what is right, and finds each planted fault under its own name."""

from itertools import count, product

import numpy as np
import pytest

from ncfbench.auditing.conformance import PROPERTIES, conformance
from ncfbench.auditing.estimator_tests import TestFunctions, chi_squared
from ncfbench.catalog import LOSSES, SAMPLERS, find_loss, find_sampler
from ncfbench.config import complete
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.sampling.batch import negative_ids

LOSS_OF_FAMILY = {"pointwise": "sg", "pairwise": "log", "listwise": "softmax"}
NOISES = ("unigram", "uniform", "0.75")
LONG = pytest.mark.long


def cases():
    """Every sampler with a P_n and a family of losses in turn; the others are long."""
    turn = count()
    for sampler in SAMPLERS:
        info = find_sampler(sampler)
        for strata in ("item", "user") if info.reads("stratum_size") else ("item",):
            families = list(info.with_strata(strata).families)
            at = next(turn)
            quick = NOISES[at % len(NOISES)], families[at // len(NOISES) % len(families)]
            for noise, family in product(NOISES, families):
                marks = [LONG] * ((noise, family) != quick)
                yield pytest.param(sampler, strata, family, noise, marks=marks)


def suite(tiny, sampler, batches=60, sums=60, **settings):
    """Return the results by property."""
    config = complete({"sampler": sampler, "batch_size": 64, **settings})
    return {row.property: row for row in conformance(tiny.graph, config, batches, sums)}


def properties(results, result="fail"):
    """Return the properties that have a result."""
    return [name for name, row in results.items() if row.result == result]


@pytest.mark.parametrize(("sampler", "strata", "family", "noise"), list(cases()))
def test_built_in_samplers_pass(tiny, sampler, strata, family, noise):
    settings = {"strata": strata, "loss": LOSS_OF_FAMILY[family], "noise": noise}
    results = suite(tiny, sampler, 100, 300, **settings)
    assert properties(results, "pass") == list(PROPERTIES) == list(results), results


FAULTS = {
    "ShapesFault": "shapes",
    "IdsFault": "ids",
    "HeldOutFault": "held-out",
    "PermutationsFault": "permutations",
    "StreamsFault": "streams",
    "WeightsFault": "weights",
    "DrawsFault": "draws",
    "ExpectationFault": "expectation",
}


def test_every_property_and_family_is_tested():
    assert set(FAULTS.values()) == set(PROPERTIES)
    assert {find_loss(loss).family for loss in LOSSES} == set(LOSS_OF_FAMILY)


@pytest.mark.parametrize(("plugin", "wrong"), FAULTS.items())
def test_a_planted_fault_fails_exactly_its_property(tiny, plugin, wrong):
    results = suite(tiny, f"planted:{plugin}", 150, 500, noise="uniform")
    assert properties(results) == [wrong]
    assert results[wrong].detail
    assert {*properties(results, "not tested")} <= {"expectation", "held-out"}


@pytest.mark.parametrize("plugin", ["RaisesInDraw", "RaisesWithReplacement", "NoBatch"])
def test_an_exception_is_a_fault(tiny, plugin):
    results = suite(tiny, f"planted:{plugin}")
    first, *rest = PROPERTIES
    assert properties(results) == [first]
    assert "no batch can be made: raises" in results[first].detail
    assert properties(results, "not tested") == rest


def test_the_stream_used_in_training_is_looked_at(tiny):
    results = suite(tiny, "planted:EmptyShuffled", 250, None)
    assert properties(results) == ["expectation"]
    assert "in the stream used in training, the mean of" in results["expectation"].detail


def test_batches_that_share_an_array_are_found(tiny):
    """A batch waits in a queue: its arrays must be its own."""
    assert "streams" in properties(suite(tiny, "planted:OneArray"))


@pytest.mark.long_cases(r"(?!DiagonalKept.*log-uniform)")
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("loss", ["sg", "log"])
@pytest.mark.parametrize(
    ("plugin", "mask"), [("DistinctOnce", True), ("UnmaskedPairs", True), ("DiagonalKept", False)]
)
def test_wrong_estimators_have_wrong_weights(tiny, plugin, mask, loss, noise):
    """Whatever the loss and P_n, and however small the bias of the gradient that follows."""
    settings = {"loss": loss, "noise": noise, "mask": mask}
    wrong, right = (
        suite(tiny, sampler, 100, None, **settings) for sampler in (f"planted:{plugin}", "strat-ns")
    )
    assert properties(wrong) == ["expectation"]
    assert right["expectation"].result == "pass"
    assert right["expectation"].detectable_error is not None
    assert 0 < right["expectation"].detectable_error < 0.2


@pytest.mark.parametrize("loss", ["sg", "log", "softmax"])
@pytest.mark.parametrize("sampler", ["ns", "neg"])
def test_test_functions_by_enumeration(five_nodes, loss, sampler):
    """What they make of one batch, pair by pair."""
    settings = {"loss": loss, "noise": "0.5", "mask": sampler == "ns", "batch_size": 4}
    config = complete({"sampler": sampler} | settings)
    functions, degree = TestFunctions(five_nodes, config), five_nodes.item_degrees
    links = list(zip(five_nodes.link_user.tolist(), five_nodes.link_item.tolist(), strict=True))

    def values(u, v):
        """Random ones; then weight, the item's degree over the mean, rare items, the user's."""
        random = [float(functions.x[u, t] @ functions.y[v, t]) for t in range(8)]
        return np.array([*random, 1, degree[v] * 3 / 4, degree[v] < 2, 1])

    instance = make_sampler(five_nodes, config, Streams(0), replacement=True)
    batch = instance.assemble(instance.draw(0, 1)[0])
    weight, (users, items) = batch.negatives.weight, negative_ids(batch)
    positive, negative, linked = np.zeros(8), np.zeros(12), 0.0
    ends = batch.users[batch.pos_user].tolist(), batch.items[batch.pos_item].tolist()
    for row, link in enumerate(zip(*ends, strict=True)):
        of_link = values(*link)[:8]
        positive += of_link / len(weight)
        factor = np.append(of_link, np.ones(4)) if loss != "sg" else np.ones(12)
        for column, pair in enumerate(zip(users[row], items[row], strict=True)):
            negative += weight[row, column] * factor * values(*pair)
            linked += weight[row, column] * (pair in links)
    expected = np.concatenate([positive, negative, [linked]])
    np.testing.assert_allclose(functions.measured(batch), expected, rtol=1e-6, atol=1e-12)


def test_chi_squared_knows_right_from_wrong():
    rng = np.random.default_rng(0)
    probability = np.array([0.5, 0.3, 0.15, 0.05, 0.0])
    p = [chi_squared(rng.choice(5, 500, p=probability), probability) for _ in range(300)]
    assert np.mean(p) == pytest.approx(0.5, abs=0.05)
    assert chi_squared(rng.choice(5, 500, p=[0.4, 0.4, 0.15, 0.05, 0]), probability) < 1e-4
    assert chi_squared(np.array([0, 1, 4]), probability) == 0
