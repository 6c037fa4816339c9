"""The audit against exact objectives derived another way, and against wrong estimators."""

import json

import pytest
from support.cli import check, invoke
from support.training import AUDITED

from ncfbench.auditing.audit import audit_samplers
from ncfbench.catalog import SAMPLERS
from ncfbench.data import prepare
from ncfbench.data.sources import synthetic
from ncfbench.storage import schemas, tables


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


@pytest.mark.long
def test_samplers_are_unbiased(few_nodes, quick, monkeypatch):
    monkeypatch.setattr("ncfbench.auditing.gradient_audit.MARGIN", 0.5)
    choices = {"samplers": tuple(SAMPLERS), "losses": ["sg"], "noises": ["unigram"]}
    record = audit_few(few_nodes, **choices, batches=480, encoder="mf")
    assert not record.failures
    assert len(repr(record)) < 100
    assert {row["verdict"] for row in record.audit} == {"unbiased"}


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
    """Distinct items counted once; division by the unmasked pairs; a link's own pair counted.
    Every verdict, with the power that it states.
    """
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
