"""The audit against exact objectives derived another way, and against wrong estimators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from audited import SMALL
from typer.testing import CliRunner

from ncfbench.auditing.audit import Record, audit_samplers
from ncfbench.catalog import SAMPLERS
from ncfbench.cli import app
from ncfbench.config import complete
from ncfbench.data import prepare
from ncfbench.data.sources import synthetic
from ncfbench.data.store import Dataset
from ncfbench.reporting.contents import xray
from ncfbench.storage import schemas, tables


@pytest.fixture(scope="module")
def few_nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("few")
    options = synthetic.Options(
        users=60, items=90, links=800, topics=4, vocabulary_size=120, min_words=3, max_length=8
    )
    prepare("synthetic", options, folder, "few", say=lambda text: None)
    return folder


def audit_few(few_nodes: Path, **given: Any) -> Record:
    given = {"dataset": "few", "noises": ["uniform"], "data_dir": few_nodes} | SMALL | given
    return audit_samplers(**given)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite and times of fewer batches, for faults that need no more."""
    monkeypatch.setattr("ncfbench.auditing.conformance.SUMMED_LINKS", 12_800)
    monkeypatch.setattr("ncfbench.auditing.gradient_audit.TIMING_ROUNDS", 1)


UNBIASED = tuple(name for name in SAMPLERS if name not in ("ns-distinct", "xbm"))


@pytest.mark.long_cases(r"all")
@pytest.mark.parametrize("samplers", [("strat-ns",), UNBIASED], ids=["one", "all"])
def test_a_network_leaves_samplers_unbiased(
    few_nodes: Path, quick: None, samplers: tuple[str, ...]
) -> None:
    """With the gradient by its own parameters, at the initial ones and after a few iterations."""
    record = audit_few(
        few_nodes,
        samplers=samplers,
        losses=["sg"],
        noises=["unigram"],
        batches=480,
        margin=0.5,
        warmup=5,
        encoder="mf",
        interaction="mlp",
        interaction_units=4,
    )
    assert not record.failures
    assert len(repr(record)) < 100
    assert {row["verdict"] for row in record.audit} == {"unbiased"}
    for row in record.audit:
        assert row["probe_loss"] == pytest.approx(row["exact_loss"], rel=1e-4)


WRONG = ("planted:DistinctOnce", "planted:UnmaskedPairs")


@pytest.mark.long
def test_only_wrong_estimators_are_biased(few_nodes: Path) -> None:
    """Distinct items counted once; division by the unmasked pairs. Every verdict, with the power
    that it states.
    """
    samplers, losses = ("strat-ns", "mixed-ns", *WRONG), ("log", "hinge")
    record = audit_few(few_nodes, samplers=samplers, losses=losses, batches=6144)
    for row in record.audit:
        if row["sampler"] in WRONG:
            assert row["bias"] > 0.03
            assert (row["verdict"], row["shown_by"]) == ("biased", "gradient"), row
        else:
            assert row["verdict"] == "unbiased", row
        # A bias that is there makes the estimate of its own error larger.
        assert 0 < row["detectable_bias"] < (0.25 if row["sampler"] in WRONG else 0.1)
        assert row["probe_loss"] == pytest.approx(row["exact_loss"], rel=1e-4)
        assert row["variance_seconds"] > 0
    failed = {
        (row["sampler"], row["property"]) for row in record.conformance if row["result"] == "fail"
    }
    assert failed == {(sampler, "expectation") for sampler in WRONG}
    assert all(any(name in text for text in record.failures) for name in WRONG)


@pytest.mark.long_cases(r"UnmaskedPairs")
@pytest.mark.parametrize(
    ("plugin", "mask", "losses", "batch_size"),
    [
        pytest.param("DiagonalKept", False, ("log", "hinge"), 32, marks=pytest.mark.long),
        pytest.param("DiagonalKept", False, ("sg",), 16, marks=pytest.mark.long),
        ("UnmaskedPairs", True, ("sg",), 16),
    ],
)
def test_wrong_estimators_by_loss(
    few_nodes: Path, plugin: str, mask: bool, losses: tuple[str, ...], batch_size: int
) -> None:
    """The diagonal kept without the mask; and with SG, whose large negative term hides it unless
    batches are small.
    """
    wrong = f"planted:{plugin}"
    record = audit_few(
        few_nodes,
        samplers=["strat-ns", wrong],
        losses=losses,
        batches=6144,
        mask=mask,
        batch_size=batch_size,
    )
    verdicts = {(row["sampler"], row["verdict"], row["shown_by"]) for row in record.audit}
    assert verdicts == {("strat-ns", "unbiased", None), (wrong, "biased", "gradient")}
    assert all(0 < row["detectable_bias"] < 0.25 for row in record.audit)


@pytest.mark.long
@pytest.mark.parametrize("plugin", ["DistinctOnce", "UnmaskedPairs"])
def test_subtly_wrong_weights_are_biased(few_nodes: Path, plugin: str) -> None:
    """Where their bias is too small for the gradients of a few batches."""
    wrong_weights_are_biased(few_nodes, f"planted:{plugin}")


def test_wrong_weights_are_biased(few_nodes: Path, quick: None) -> None:
    """For every loss, softmax too."""
    wrong_weights_are_biased(few_nodes, "planted:ExpectationFault")


def wrong_weights_are_biased(few_nodes: Path, wrong: str) -> None:
    samplers, losses = ("neg", wrong), ("mse", "softmax")
    record = audit_few(
        few_nodes, samplers=samplers, losses=losses, batches=48, warmup=2, encoder="mf"
    )
    assert {
        (row["loss"], row["noise"], row["verdict"])
        for row in record.audit
        if row["sampler"] == wrong
    } == {(loss, "uniform", "biased") for loss in losses}
    assert not [
        row for row in record.audit if row["sampler"] == "neg" and row["verdict"] == "biased"
    ]
    assert len(record.xray) == 2


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--samplers", ""], 2, "No samplers are named"),
        (["--loss", ","], 2, "No losses are named"),
        (["--noise", ""], 2, "No noises are named"),
        (["--batches", "3"], 2, "at least 48"),
        (["--samplers", "iid", "--loss", "hinge"], 2, "iid"),
        (["--samplers", "nothing"], 2, "nothing"),
    ],
)
def test_requests_that_are_refused(
    few_nodes: Path, tmp_path: Path, words: list[str], code: int, text: str
) -> None:
    places = ["--data-dir", str(few_nodes), "--runs-dir", str(tmp_path)]
    result = CliRunner().invoke(app, ["audit", "--dataset", "few", *places, *words])
    assert (result.exit_code, list(tmp_path.iterdir())) == (code, [])
    assert text in result.output


def test_suite_and_xray_alone(few_nodes: Path, tmp_path: Path, quick: None) -> None:
    """Names that are given twice count once."""
    places = ["--data-dir", str(few_nodes), "--runs-dir", str(tmp_path)]
    words = [
        "audit",
        "--dataset",
        "few",
        "--batches",
        "0",
        "--noise",
        "1,unigram,0.5",
        "--loss",
        "sg,sg,softmax",
        *places,
    ]
    result = CliRunner().invoke(
        app, [*words, "--samplers", "ns,ns,planted:EmptyShuffled", "--json"]
    )
    assert result.exit_code == 6
    assert "the mean of negative weight is 0 instead of" in result.stderr
    found = json.loads(result.stdout)
    assert found["audit"] == []
    assert [(row["sampler"], row["noise"]) for row in found["xray"]] == [
        (sampler, noise)
        for noise in ("unigram", "0.5")
        for sampler in ("ns", "planted:EmptyShuffled")
    ]
    assert found["xray"][1]["popularity_ratio"] is None


def test_an_audit_that_is_interrupted_leaves_no_table(
    few_nodes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ncfbench.auditing.gradient_audit.iteration_seconds", interrupted)
    places = ["--data-dir", str(few_nodes), "--runs-dir", str(tmp_path)]
    words = [
        "audit",
        "--dataset",
        "few",
        "--loss",
        "sg",
        "--samplers",
        "ns",
        "--noise",
        "1",
        "--encoder",
        "mf",
        *places,
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 130
    assert "Interrupted" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_audit_from_the_command_line(few_nodes: Path, tmp_path: Path) -> None:
    places = ["--data-dir", str(few_nodes), "--runs-dir", str(tmp_path)]
    small = [
        word
        for key, value in SMALL.items()
        if key != "batch_size"
        for word in ("--set", f"{key}={value}")
    ]
    words = [
        "audit",
        "--dataset",
        "few",
        "--loss",
        "sg,softmax",
        "--noise",
        "1,unigram",
        "--batches",
        "96",
        *small,
        *places,
    ]
    result = CliRunner().invoke(app, [*words, "--samplers", "iid,ns"])
    assert result.exit_code == 0, result.output
    for text in (
        "Conformance",
        "X-ray",
        "Gradients against the exact one",
        "Exact objective",
        "N.S.",
        "Softmax",
        "Written:",
    ):
        assert text in result.stdout
    rows = tables.read_rows(tmp_path / "audit.parquet", schemas.AUDIT)
    assert {(row["sampler"], row["loss"]) for row in rows} == {
        ("iid", "sg"),
        ("ns", "sg"),
        ("ns", "softmax"),
    }
    assert {row["noise"] for row in rows} == {"unigram"}
    assert len(tables.read_rows(tmp_path / "xray.parquet", schemas.XRAY)) == 2
    shown = CliRunner().invoke(app, ["report", "--runs-dir", str(tmp_path)])
    assert shown.exit_code == 0
    assert "Gradients against the exact one" in shown.stdout
    assert set(
        json.loads(
            CliRunner().invoke(app, ["report", "--json", "--runs-dir", str(tmp_path)]).stdout
        )
    ) >= {
        "audit",
        "xray",
    }

    faulty = CliRunner().invoke(app, [*words, "--samplers", "planted:ShapesFault"])
    assert faulty.exit_code == 6
    assert "The audit found faults" in faulty.output


def test_xray_counts(tiny: Dataset) -> None:
    """One small batch counted by hand, and the popularity of right weights."""
    row = xray(tiny, complete(SMALL | {"sampler": "neg", "negatives": 3, "noise": "uniform"}), 300)
    assert (row["nominal_users"], row["nominal_items"], row["nominal_negatives"]) == (64, 256, 192)
    assert row["unmasked_negatives"] == pytest.approx(192 * (1 - row["masked_share"]), rel=0.01)
    assert row["effective_negatives"] == pytest.approx(row["unmasked_negatives"], rel=1e-6)
    assert row["popularity_ratio"] == pytest.approx(1, abs=0.03)
    for sampler in ("ns", "strat-ns", "mixed-ns"):
        row = xray(tiny, complete(SMALL | {"sampler": sampler, "noise": "0.5"}), 300)
        assert row["popularity_ratio"] == pytest.approx(1, abs=0.05)
        assert row["effective_negatives_of_a_positive"] < row["unmasked_negatives_of_a_positive"]
