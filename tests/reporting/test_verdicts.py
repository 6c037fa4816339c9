"""Printed figures, and the rule that judges ours beside them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from folders import write_folder, write_run

from ncfbench.catalog import find_encoder, find_loss, find_sampler
from ncfbench.paper import printed
from ncfbench.paper.printed import PrintedCell
from ncfbench.reporting import verdicts
from ncfbench.reporting.comparison import group
from ncfbench.reporting.rows import recall_rows, speedup_rows
from ncfbench.reporting.verdicts import data_differences, judge, setting_differences
from ncfbench.runs.folder import read_all


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
        (row(RATIO, None, iterations_speedup_at_most=1.5, seeds_reached=1), RATIO, 2.0, "worse"),
        (
            row(RATIO, None, iterations_speedup_at_most=2.5, seeds_reached=1),
            RATIO,
            2.0,
            "undecided",
        ),
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


def test_undecided_cells_are_counted() -> None:
    one = verdicts.Verdict(
        dataset="citeulike",
        printed_dataset="citeulike",
        data_fingerprint="f",
        encoder="cnn",
        loss="sg",
        sampler="ns",
        measure="iterations_speedup",
        settings="",
        printed=2.0,
        value=2.6,
        lower=1.9,
        upper=3.3,
        seeds=3,
        verdict="undecided",
        figures_alone="undecided",
        reason="",
    )
    other = dataclasses.replace(one, sampler="strat", verdict="not comparable")
    line = verdicts.summary_lines([one, other])[1]
    assert line.endswith(
        "2 printed cells: 1 undecided, 1 not comparable (by the figures alone 1 undecided)."
    )


def test_differences_from_the_paper(tmp_path: Any) -> None:
    (comparison,) = group(read_all(write_folder(tmp_path))[0])
    options = {"text": ["title", "abstract"], "max_length": 300, "test_fraction": 0.2}
    manifest = {
        "fingerprint": "f" * 64,
        "options": options,
        "files": {"users.dat": {"verified": True}},
    }
    assert data_differences(comparison, manifest) == []
    assert data_differences(comparison, None) == [
        "text not known: the data set is not prepared here"
    ]
    assert data_differences(comparison, manifest | {"fingerprint": "e" * 64}) == data_differences(
        comparison, None
    )
    tags = manifest | {"options": options | {"text": ["title", "tags"]}}
    assert data_differences(comparison, tags) == ["other text (title,tags)"]
    short = manifest | {"options": options | {"max_length": 40}}
    assert data_differences(comparison, short) == ["other text (cut at 40 words)"]
    edited = manifest | {"files": {"raw-data.csv": {"verified": False}}}
    assert data_differences(comparison, edited) == ["other data (not as published: raw-data.csv)"]
    assert setting_differences(comparison) == []


def test_every_printed_cell_has_a_verdict(tmp_path: Any) -> None:
    comparisons = group(read_all(write_folder(tmp_path))[0])
    speedups = [speedup_rows(each, allow_mixed=False, locations={}) for each in comparisons]
    recalls = [recall_rows(each, locations={}) for each in comparisons]
    found = verdicts.judge_all(comparisons, speedups, recalls, {})
    assert len(found) == len(printed.values())
    by_cell = {(one.dataset, one.encoder, one.loss, one.sampler, one.measure): one for one in found}
    ns = by_cell["citeulike", "cnn", "sg", "ns", "total_speedup"]
    assert (ns.printed, ns.seeds, ns.verdict) == (19.50, 3, "not comparable")
    assert "other hardware" in ns.reason
    assert (
        "other hardware" not in by_cell["citeulike", "cnn", "sg", "ns", "test_recall_at_50"].reason
    )
    assert by_cell["news", "cnn", "sg", "ns", "total_speedup"].verdict == "missing"
    lines = verdicts.summary_lines(found)
    assert lines[2].startswith(
        "Speedup in total, 16 printed cells: 3 not comparable (by the figures alone"
    )
    assert lines[2].endswith("13 missing.")
    assert by_cell["news", "cnn", "sg", "ns", "total_speedup"].reason == "no run"


def judged(runs_dir: Path, manifests: Any) -> list[verdicts.Verdict]:
    comparisons = group(read_all(runs_dir)[0])
    speedups = [speedup_rows(each, allow_mixed=False, locations={}) for each in comparisons]
    return verdicts.judge_all(
        comparisons, speedups, [recall_rows(each, locations={}) for each in comparisons], manifests
    )


def test_a_printed_cell_counts_once(tmp_path: Path) -> None:
    for more in ({"epochs": 2}, {}, {"epochs": 4}):
        write_run(tmp_path, "iid", [9, 5, 3], 200, **more)
        write_run(tmp_path, "ns", [9, 4, 3.5] if more else [9, 2, 1], 20, **more)
    found = judged(tmp_path, {})
    own = [
        one
        for one in found
        if (one.sampler, one.encoder, one.measure) == ("ns", "cnn", "iterations_speedup")
    ]
    assert [one.settings for one in own if one.dataset == "citeulike"] == [
        "epochs=2",
        "",
        "epochs=4",
    ]
    line = verdicts.summary_lines(found)[1]
    assert line.startswith("Speedup in number of iterations, 16 printed cells: 1 not comparable")
    assert (
        "4 are of several comparisons: one counts, one without other settings before the others."
        in line
    )
    # Ours is 2.33 without other settings (printed: 2.31); with them the reference is never reached.
    assert [one.figures_alone for one in own if one.dataset == "citeulike"] == [
        "worse",
        "reproduced",
        "worse",
    ]
    assert "(by the figures alone 1 reproduced), 15 missing." in line
    assert [
        line.partition(" printed")[0].rpartition(" ")[2] for line in verdicts.summary_lines(found)
    ] == ["16"] * 3 + ["64"]


def test_data_of_unknown_source_is_named(tmp_path: Path) -> None:
    write_run(tmp_path, "iid", [9, 5, 3], 200, dataset="my-texts")
    by_cell = {
        (one.dataset, one.encoder, one.sampler, one.measure): one
        for one in judged(tmp_path, {})
        if one.loss == "sg"
    }
    own = by_cell["citeulike", "cnn", "ns", "total_speedup"]
    assert own.verdict == "missing"
    assert own.reason.startswith("no run, unless runs of my-texts are")
    assert by_cell["citeulike", "lstm", "ns", "total_speedup"].reason == "no run"
    manifest = {"fingerprint": "f" * 64, "source": "citeulike", "options": {}, "statistics": {}}
    known = [one for one in judged(tmp_path, {"f" * 64: manifest}) if one.dataset == "my-texts"]
    assert {one.printed_dataset for one in known} == {"citeulike"}
    assert {one.sampler for one in known if one.measure == "test_recall_at_50"} == {
        "iid",
        "neg",
        "strat",
        "ns",
        "strat-ns",
    }
