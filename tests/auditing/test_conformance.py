"""The conformance suite passes what is right, and finds each planted fault under its own name; the
audit finds wrong estimators.
"""

import json
from itertools import count, product

import numpy as np
import pytest
from support.cli import check, invoke
from support.enumeration import LOSS_OF_FAMILY
from support.training import AUDITED

from ncfbench.auditing.audit import audit_samplers
from ncfbench.auditing.conformance import PROPERTIES, conformance
from ncfbench.auditing.estimator_tests import TestFunctions, chi_squared
from ncfbench.catalog import LOSSES, SAMPLERS, find_loss, find_sampler
from ncfbench.config import complete
from ncfbench.data import prepare
from ncfbench.data.sources import synthetic
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.sampling.batch import negative_ids
from ncfbench.storage import schemas, tables

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


def test_every_family_is_tested():
    assert {find_loss(loss).family for loss in LOSSES} == set(LOSS_OF_FAMILY)


@pytest.mark.parametrize("wrong", PROPERTIES)
def test_a_planted_fault_fails_exactly_its_property(tiny, wrong):
    plugin = f"planted:{wrong.title().replace('-', '')}Fault"
    results = suite(tiny, plugin, 150, 500, noise="uniform")
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


# The audit


@pytest.fixture(scope="module")
def few_nodes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("few")
    options = synthetic.Options(
        users=60, items=90, links=800, topics=4, vocabulary_size=120, min_words=3, max_length=8
    )
    prepare("synthetic", options, folder, "few", say=lambda text: None)
    return folder


def audit_few(few_nodes, **given):
    given = {"dataset": "few", "noises": ["uniform"], "data_dir": few_nodes} | AUDITED | given
    return audit_samplers(**given)


@pytest.fixture
def quick(monkeypatch):
    """A suite of fewer batches, for faults that need no more."""
    monkeypatch.setattr("ncfbench.auditing.conformance.SUMMED_LINKS", 12_800)


WRONG = ("planted:DistinctOnce", "planted:UnmaskedPairs")
DIAGONAL = ("planted:DiagonalKept",)
PAIRWISE, SG = {"losses": ("log", "hinge")}, {"losses": ("sg",), "batch_size": 16}


# SG's large negative term hides a fault unless batches are small. The diagonal is kept only
# without the mask.
@pytest.mark.long
@pytest.mark.parametrize(
    ("wrong", "choices"),
    [
        (WRONG, PAIRWISE),
        (WRONG[1:], SG),
        (DIAGONAL, PAIRWISE | {"mask": False}),
        (DIAGONAL, SG | {"mask": False}),
    ],
)
def test_only_wrong_estimators_are_biased(few_nodes, wrong, choices):
    """Every verdict, with the power that it states."""
    record = audit_few(few_nodes, samplers=("strat-ns", *wrong), batches=6144, **choices)
    for row in record.audit:
        expected = ("biased", "gradient") if row["sampler"] in wrong else ("unbiased", None)
        assert (row["verdict"], row["shown_by"]) == expected, row
        # A bias that is there makes the estimate of its own error larger.
        is_precise = row["sampler"] not in wrong and choices.get("mask", True)
        most = 0.1 if is_precise and "batch_size" not in choices else 0.25
        assert 0 < row["detectable_bias"] < most
    failed = {
        (row["sampler"], row["property"]) for row in record.conformance if row["result"] == "fail"
    }
    assert failed == {(sampler, "expectation") for sampler in wrong}
    assert all(any(name in text for text in record.failures) for name in wrong)


def test_families_are_judged_apart(few_nodes, quick):
    """With each noise distribution; the loss whose weights are wrong comes first."""
    noises, plugin = ["uniform", "unigram"], "planted:PairwiseFault"
    choices = {"samplers": [plugin], "losses": ["log", "sg"], "noises": noises}
    record = audit_few(few_nodes, **choices, batches=48, encoder="mf")
    failed = {
        (row["noise"], row["loss_family"]) for row in record.conformance if row["result"] == "fail"
    }
    assert failed == {(noise, "pairwise") for noise in noises}
    biased = {(row["noise"], row["loss"]) for row in record.audit if row["verdict"] == "biased"}
    assert biased == {(noise, "log") for noise in noises}
    assert len(repr(record)) < 100


def test_suite_alone(few_nodes, tmp_path, quick):
    """Names that are given twice count once."""
    words = ["--batches", "0", "--noise", "1,unigram,0.5", "--loss", "sg,sg"]
    words += ["--samplers", "ns,ns,planted:EmptyShuffled", "--json"]
    folders = ["--data-dir", few_nodes, "--runs-dir", tmp_path]
    result = invoke("audit", "--dataset", "few", *words, *folders)
    check(result, 6, "the mean of negative weight is 0 instead of")
    record = json.loads(result.stdout)
    assert record["audit"] == []
    cases = dict.fromkeys((row["sampler"], row["noise"]) for row in record["conformance"])
    assert [*cases] == [
        (sampler, noise)
        for noise in ("unigram", "0.5")
        for sampler in ("ns", "planted:EmptyShuffled")
    ]


def test_an_audit_that_is_interrupted_leaves_no_table(few_nodes, tmp_path, monkeypatch, quick):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("ncfbench.auditing.gradient_audit.blocks_of", interrupted)
    words = ["--dataset", "few", "--loss", "sg", "--samplers", "ns", "--noise", "1"]
    folders = ["--set", "encoder=mf", "--data-dir", few_nodes, "--runs-dir", tmp_path]
    check(invoke("audit", *words, *folders), 130, "Interrupted")
    assert list(tmp_path.iterdir()) == []


def test_by_default_one_loss_and_noise(few_nodes, tmp_path, quick):
    """The suite tests softmax besides."""
    words = ["--samplers", "ns", "--batches", "48", "--set", "encoder=mf"]
    words += ["--set", "batch_size=16", "--data-dir", few_nodes, "--runs-dir", tmp_path]
    result = invoke("audit", "--dataset", "few", *words)
    check(result, 0, "Conformance", "Gradients against the exact one")
    rows = tables.read_rows(tmp_path / "audit.parquet", schemas.AUDIT)
    assert {(row["loss"], row["noise"]) for row in rows} == {("sg", "unigram")}
    suite = tables.read_rows(tmp_path / "conformance.parquet", schemas.CONFORMANCE)
    assert "listwise" in {row["loss_family"] for row in suite}
    assert all(row["shown_by"] != "gradient" for row in rows)


@pytest.mark.long
def test_losses_that_a_sampler_does_not_serve_are_left_out(few_nodes, quick):
    choices = {"samplers": ("iid", "ns"), "losses": ("sg", "softmax"), "encoder": "mf"}
    record = audit_few(few_nodes, **choices, batches=48)
    served = {("iid", "sg"), ("ns", "sg"), ("ns", "softmax")}
    assert {(row["sampler"], row["loss"]) for row in record.audit} == served
