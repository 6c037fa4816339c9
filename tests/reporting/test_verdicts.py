"""Printed figures, and the rule that judges ours beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from literal_runs import record

from ncfbench.catalog import find_encoder, find_loss, find_sampler
from ncfbench.paper import printed
from ncfbench.paper.cells import (
    CellVerdict,
    data_differences,
    judge,
    judge_cells,
    setting_differences,
    summary_lines,
)
from ncfbench.paper.printed import PrintedCell
from ncfbench.reporting.frames import group
from ncfbench.reporting.rows import compare
from ncfbench.runs.folder import RunRecord


def test_printed_figures_are_found_by_name() -> None:
    values = printed.values()
    for value, *names in (
        (29.12, "citeulike", "cnn", "strat-ns", "sg", "total_speedup"),
        (4.14, "news", "lstm", "ns", "sg", "iterations_speedup"),
        (0.4877, "citeulike", "lstm", "strat-ns", "mse", "test_recall_at_50"),
        (None, "citeulike", "cnn", "iid", "hinge", "test_recall_at_50"),
        (None, "citeulike", "cnn", "ns", "log", "total_speedup"),
    ):
        assert values.get(PrintedCell(*names)) == value
    assert len(values) == 2 * 2 * 4 * 3 + 2 * 2 * (2 * 5 + 2 * 3)


def test_printed_names_are_the_registrys() -> None:
    for cell in printed.values():
        assert find_encoder(cell.encoder).title
        assert find_loss(cell.loss).family in find_sampler(cell.sampler).families


def test_the_total_is_about_the_product_of_its_factors() -> None:
    """A slip in copying one of the three would show; the paper rounds each."""
    for row in printed.table("speedup"):
        product = float(row["per_iteration"]) * float(row["iterations"])
        assert float(row["total"]) == pytest.approx(product, rel=0.02)


def test_the_printed_cost_table_is_the_cost_models() -> None:
    for row in printed.table("cost"):
        negatives, users, items, interactions, kind = find_sampler(row["sampler"]).symbols
        ours = {"user_nodes": users, "item_nodes": items, "interactions": interactions}
        assert {name: row[name].replace("*", "").replace("bb", "b^2") for name in ours} == ours
        assert kind.startswith({"vector": "vec", "matrix": "mat"}[row["interaction_kind"]])
        if row["sampler"] != "strat-ns":  # where ours leaves out a link's own stratum
            assert row["negative_links"].replace("*", "") == negatives


RATIO, RECALL = "iterations_speedup", "test_recall_at_50"


def row(
    measure: str,
    value: float | None,
    lower: float | None = None,
    upper: float | None = None,
    **more: Any,
) -> Any:
    return {
        "status": "reached",
        "seeds": 3,
        measure: value,
        f"{measure}_lower": lower,
        f"{measure}_upper": upper,
    } | more


@pytest.mark.parametrize(
    ("found", "measure", "printed_value", "verdict"),
    [
        (None, RATIO, 2.0, "missing"),
        (row(RATIO, None, status="missing"), RATIO, 2.0, "missing"),
        (row(RATIO, None, status="no baseline"), RATIO, 2.0, "missing"),
        (row(RATIO, 2.2, 1.9, 2.5), RATIO, 2.0, "reproduced"),
        (row(RATIO, 2.2, 2.1, 2.3), RATIO, 2.0, "better"),
        (row(RATIO, 7.33, 0.28, 193.8), RATIO, 19.5, "undecided"),
        (row(RATIO, 19.0, 0.28, 1300.0), RATIO, 19.5, "reproduced"),
        (row(RATIO, 2.6, 1.9, 3.3), RATIO, 2.0, "undecided"),
        (row(RATIO, 2.4, 1.9, 2.9), RATIO, 2.0, "reproduced"),
        (row(RECALL, 0.49, 0.46, 0.52), RECALL, 0.47, "undecided"),
        (row(RECALL, 0.476, 0.46, 0.492), RECALL, 0.47, "reproduced"),
        (row(RATIO, 1.8, 1.7, 1.9), RATIO, 2.0, "worse"),
        (row(RATIO, 2.4, seeds=1), RATIO, 2.0, "reproduced"),
        (row(RATIO, 2.6, seeds=1), RATIO, 2.0, "better"),
        (row(RATIO, 1.4, seeds=1), RATIO, 2.0, "worse"),
        (row(RECALL, 0.476, seeds=1), RECALL, 0.47, "reproduced"),
        (row(RECALL, 0.49, seeds=1), RECALL, 0.47, "better"),
        (row(RECALL, 0.46, 0.45, 0.465), RECALL, 0.47, "worse"),
        (row(RATIO, None, **{f"{RATIO}_at_most": 1.5}, seeds_reached=1), RATIO, 2.0, "worse"),
        (row(RATIO, None, **{f"{RATIO}_at_most": 2.5}, seeds_reached=1), RATIO, 2.0, "undecided"),
    ],
)
def test_the_rule(found: Any, measure: Any, printed_value: float, verdict: str) -> None:
    word, alone, reason = judge(found, measure, printed_value, [])
    assert word == verdict
    assert alone == (None if word == "missing" else word)
    assert ("one seed" in reason) == (found is not None and found["seeds"] == 1)


def test_differences_make_a_cell_incomparable() -> None:
    word, alone, reason = judge(row(RATIO, 2.2, 1.9, 2.5), RATIO, 2.0, ["other text (title,tags)"])
    assert (word, alone) == ("not comparable", "reproduced")
    assert reason == "other text (title,tags); printed value in our 95 % interval, ours within 25 %"
    assert judge(None, RATIO, 2.0, ["other text"])[0] == "missing", (
        "what has not run has nothing to compare"
    )


def test_diverged_runs_and_other_machines() -> None:
    gone = row(RATIO, None, status="diverged", reason="held-out items have no vector")
    assert judge(gone, RATIO, 2.0, ["other text"]) == ("missing", None, "diverged")
    apart = row("total_speedup", None, status="different environment")
    word, alone, reason = judge(apart, "total_speedup", 2.0, ["other hardware"])
    assert (word, alone) == ("not comparable", None)
    assert "not comparable (other machine)" in reason
    assert (
        judge(row(RATIO, 2.2, 1.9, 2.5, status="different environment"), RATIO, 2.0, [])[0]
        == "reproduced"
    )


def test_a_wider_interval_never_reproduces_more() -> None:
    """From a point to the widest interval, only a near value is ``reproduced``."""
    for value in (1.0, 1.4, 1.6, 2.0, 2.4, 2.6, 4.0):
        words = [
            judge(row(RATIO, value, value / width, value * width), RATIO, 2.0, [])[1]
            for width in (1.0, 1.2, 2.0, 100.0)
        ]
        near = abs(value - 2.0) <= 0.5
        assert words[-1] == ("reproduced" if near else "undecided")
        assert near or "reproduced" not in words


def judged(
    runs: Sequence[RunRecord], manifests: Mapping[str, Mapping[str, Any]] | None = None
) -> list[CellVerdict]:
    rows = [(each.speedups, each.recalls) for each in compare(group(runs))]
    return judge_cells(rows, manifests or {})


def test_undecided_cells_are_counted() -> None:
    one = dataclasses.replace(
        judged([])[0],
        measure=RATIO,
        value=2.6,
        lower=1.9,
        upper=3.3,
        verdict="undecided",
        figures_alone="undecided",
    )
    other = dataclasses.replace(one, sampler="another", verdict="not comparable")
    assert summary_lines([one, other])[1].endswith(
        "2 printed cells: 1 undecided, 1 not comparable (by the figures alone 1 undecided)."
    )


OPTIONS = {"text": ["title", "abstract"], "max_length": 300, "test_fraction": 0.2}
MANIFEST = {"fingerprint": "f", "options": OPTIONS, "files": {"users.dat": {"verified": True}}}
UNKNOWN = ["text not known: the data set is not prepared here"]


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (MANIFEST, []),
        (None, UNKNOWN),
        (MANIFEST | {"fingerprint": "e"}, UNKNOWN),
        (
            MANIFEST | {"options": OPTIONS | {"text": ["title", "tags"]}},
            ["other text (title,tags)"],
        ),
        (
            MANIFEST | {"options": OPTIONS | {"max_length": 40}},
            ["other text (cut at 40 words)"],
        ),
        (
            MANIFEST | {"options": OPTIONS | {"hold_out": "links"}},
            ["other items or links held out (links)"],
        ),
        (
            MANIFEST | {"files": {"raw-data.csv": {"verified": False}}},
            ["other data (not as published: raw-data.csv)"],
        ),
    ],
)
def test_data_that_differ_from_the_papers(manifest: Any, expected: list[str]) -> None:
    assert data_differences("f", manifest) == expected


def test_settings_that_differ_from_the_papers() -> None:
    assert setting_differences("") == setting_differences("patience=3, user_l2=1e-05") == []
    assert setting_differences("patience=3, epochs=2") == ["other settings (epochs=2)"]


def test_every_printed_cell_has_a_verdict() -> None:
    lengths = {"iid": 200, "ns": 20, "strat-ns": 10, "strat": 12}
    runs = [
        record(sampler, [9, 5, 3 - (sampler != "iid")], ms, seed=seed)
        for seed in range(3)
        for sampler, ms in lengths.items()
    ]
    found = judged(runs)
    assert len(found) == len(printed.values())
    by_cell = {(one.dataset, one.encoder, one.loss, one.sampler, one.measure): one for one in found}
    ns = by_cell["citeulike", "cnn", "sg", "ns", "total_speedup"]
    assert (ns.printed, ns.seeds, ns.verdict) == (19.50, 3, "not comparable")
    assert "other hardware" in ns.reason
    assert "other hardware" not in by_cell["citeulike", "cnn", "sg", "ns", RECALL].reason
    absent = by_cell["news", "cnn", "sg", "ns", "total_speedup"]
    assert (absent.verdict, absent.reason) == ("missing", "no run")
    line = summary_lines(found)[2]
    beginning = "Speedup in total, 16 printed cells: 3 not comparable (by the figures alone"
    assert line.startswith(beginning)
    assert line.endswith("13 missing.")


def test_a_printed_cell_counts_once() -> None:
    """Ours is 2.33 without other settings (printed: 2.31); with them the reference is never
    reached.
    """
    runs = []
    for more in ({"epochs": 2}, {}, {"epochs": 4}):
        losses = [9, 4, 3.5] if more else [9, 2, 1]
        runs += [record("iid", [9, 5, 3], 200, **more), record("ns", losses, 20, **more)]
    found = judged(runs)
    cell = ("citeulike", "cnn", "ns", RATIO)
    own = [one for one in found if (one.dataset, one.encoder, one.sampler, one.measure) == cell]
    assert [(one.settings, one.figures_alone) for one in own] == [
        ("epochs=2", "worse"),
        ("", "reproduced"),
        ("epochs=4", "worse"),
    ]
    lines = summary_lines(found)
    assert lines[1].startswith(
        "Speedup in number of iterations, 16 printed cells: 1 not comparable"
    )
    assert "(by the figures alone 1 reproduced), 15 missing." in lines[1]
    once = "4 are of several comparisons: one counts, one without other settings before the others."
    assert once in lines[1]
    counted = [line.partition(" printed")[0].rpartition(" ")[2] for line in lines]
    assert counted == ["16"] * 3 + ["64"]


def test_data_of_unknown_source_is_named() -> None:
    runs = [record("iid", [9, 5, 3], 200, dataset="my-texts")]
    by_cell = {
        (one.dataset, one.encoder, one.sampler): one
        for one in judged(runs)
        if (one.loss, one.measure) == ("sg", "total_speedup")
    }
    own = by_cell["citeulike", "cnn", "ns"]
    assert own.verdict == "missing"
    assert own.reason.startswith("no run, unless runs of my-texts are")
    assert by_cell["citeulike", "lstm", "ns"].reason == "no run"
    manifest = {"fingerprint": "f" * 64, "source": "citeulike", "options": {}, "statistics": {}}
    known = [one for one in judged(runs, {"f" * 64: manifest}) if one.dataset == "my-texts"]
    assert {one.printed_dataset for one in known} == {"citeulike"}
    samplers = {one.sampler for one in known if one.measure == RECALL}
    assert samplers == {"iid", "neg", "strat", "ns", "strat-ns"}
