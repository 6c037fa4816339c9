"""Audits of explicit negatives: exact expectations by plain loops, and the verdict from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explicit import GRAPH, LINKS, N_ITEMS, target
from invoked import check, invoke
from tables_of import as_csv, prepare

from ncfbench.auditing import estimator_tests
from ncfbench.auditing.conformance import conformance
from ncfbench.auditing.estimator_tests import TestFunctions
from ncfbench.config import RunConfig, complete
from ncfbench.data.graph import BipartiteGraph


def configure(sampler: str = "neg", loss: str = "sg", **settings: Any) -> RunConfig:
    usual = {"explicit_negatives": True, "batch_size": 4, "negatives": 2, "noise": "0.5"}
    strata = {"strata": "user", "stratum_size": 2} if sampler == "strat" else {}
    return complete({"sampler": sampler, "loss": loss, **usual, **strata, **settings})


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("loss", ["sg", "log", "softmax"])
def test_exact_expectations_link_by_link(loss: str, mask: bool) -> None:
    config = configure(loss=loss, mask=mask)
    functions = TestFunctions(GRAPH, config)
    x, y = functions.x, functions.y
    n_random = 8
    positive, linked = np.zeros(n_random), 0.0
    weights = target(config.family, 0.5, mask=mask) / len(LINKS)
    negative = np.zeros(x.shape[1])
    for user, item in LINKS:
        own = np.einsum("td,td->t", x[user], y[item])[:n_random]
        positive += own / len(LINKS)
        factor = np.ones(x.shape[1])
        if loss != "sg":
            factor[:n_random] = own
        for other in range(N_ITEMS):
            weight = weights[user, other]
            negative += weight * factor * np.einsum("td,td->t", x[user], y[other])
            linked += weight * ((user, other) in LINKS)
    expected = np.concatenate([positive, negative, [linked]])
    np.testing.assert_allclose(functions.exact(), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("sampler", "loss"), [("neg", "softmax"), ("iid", "sg"), ("strat", "log")])
def test_samplers_conform_to_the_objective_that_they_state(
    monkeypatch: pytest.MonkeyPatch, sampler: str, loss: str
) -> None:
    """With the expectations of one P_n for all users the same batches fail."""
    monkeypatch.setattr("ncfbench.sampling.base.CHUNK_DRAWS", 2**12)
    pairs = np.random.default_rng(0).permutation(1600)[:900]
    users, items = np.divmod(np.sort(pairs[:600]).astype(np.int32), np.int32(40))
    shown = np.divmod(np.sort(pairs[600:]).astype(np.int32), np.int32(40))
    is_shown = shown[0] % 2 == 0  # the other users have no explicit negatives
    graph = BipartiteGraph.from_links(users, items, 40, 40)
    graph = graph.with_negatives(*(ends[is_shown] for ends in shown))
    config = configure(sampler, loss, batch_size=32)
    *others, expectation = conformance(graph, config, batches=60, sums=300)
    assert [result.result for result in others] == ["pass"] * 7
    assert expectation.result == "pass"
    assert expectation.detail.startswith("for the objective in which P_n of a user with explicit")
    monkeypatch.setattr(estimator_tests, "explicit_measure", lambda graph, config: None)
    assert conformance(graph, config, batches=60, sums=300)[-1].result == "fail"


@pytest.mark.long
def test_an_audit_says_what_is_unbiased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``ns``, which reads no explicit negatives, is audited beside ``neg`` for its own L."""
    monkeypatch.setattr("ncfbench.sampling.base.CHUNK_DRAWS", 2**12)
    monkeypatch.setattr("ncfbench.auditing.conformance.SUMMED_LINKS", 3200)
    rng = np.random.default_rng(7)
    shown = {(int(user), int(item)) for user, item in rng.integers(24, size=(500, 2))}
    rows = [{"user": u, "item": v, "clicked": int((u + v) % 3 == 0)} for u, v in sorted(shown)]
    items = as_csv(tmp_path / "m.csv", [{"item": n, "title": f"w{n}"} for n in range(24)])
    links = as_csv(tmp_path / "r.csv", rows)
    prepare(tmp_path, links, items, negative_column="clicked")
    words = ["audit", "--dataset", "x", "--samplers", "neg,ns", "--loss", "sg", "--noise", "1"]
    words += ["--encoder", "mf", "--batch-size", "16", "--batches", "1536"]
    words += ["--explicit-negatives", "--set", "dimension=4"]
    folders = ["--data-dir", str(tmp_path / "data"), "--runs-dir", str(tmp_path / "runs")]
    check(
        invoke(*words, *folders),
        0,
        "(explicit negatives)",
        "Explicit negatives: unbiased is for the objective in which P_n",
    )
    printed = invoke("report", *folders, "--json")
    found = json.loads(printed.stdout)["audit"]
    for row in found:
        is_explicit = row["sampler"] == "neg"
        assert row["negative_items"] == ("explicit" if is_explicit else None)
        assert row["verdict"] == "unbiased"
