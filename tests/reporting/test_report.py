"""Rows of the speedup and recall tables from runs that are written out, their frames, and how the
tables show them: marks, best values, and reasons for empty cells.
"""

import json

import numpy as np
import pytest
from support.cli import check, invoke
from support.records import TIMES, record, rows_of, write_run

import ncfbench
from ncfbench.catalog import find_encoder, find_loss, find_sampler
from ncfbench.errors import UsageError
from ncfbench.paper import printed
from ncfbench.paper.printed import RECALL, PrintedCell
from ncfbench.reporting import frames
from ncfbench.reporting.rows import compare
from ncfbench.reporting.views.paper import beside_tables
from ncfbench.reporting.views.results import mark_of, recall_tables, speedup_tables, time_notes
from ncfbench.runs.folder import read_all, write_evaluations
from ncfbench.runs.labels import run_command, seeds_label, unusual_label
from ncfbench.runs.quality import Evaluation
from ncfbench.storage import schemas

IID = record("iid", [9, 5, 3], 200)
THREE = [IID, record("ns", [9, 4, 2], 20), record("strat", [9, 8, 7], 10)]
SEEDS = [
    record("iid", [9, end], ms, seed=n) for n, end, ms in ((0, 3, 100), (1, 4, 400), (5, 1, 1))
]
SEEDS += [record("ns", [9, end], 50, seed=n) for n, end in ((0, 3), (1, 4))]
SIZES = [record("iid", [9, 3], 100), record("iid", [9, 2], 200, negatives=20)]
SIZES += [record("strat-ns", [9, 3], 10), record("strat-ns", [9, 3], 5, stratum_size=8)]
SIZES.append(record("neg", [9, 3], 50, negatives=20))
NEWEST = [IID, record("ns", [9, 3], 10, time="2026-02"), record("ns", [9, 3], 50, time="2026-01")]
NEWEST.append(record("neg", [9, 3], 10, status="interrupted"))
APART = [IID, record("ns", [9, 3], 50, key="two")]
UNTRAINED = [record("iid", [9, 6.2, 5.9, 6.1, 6.3, 6.2], 200)]
UNTRAINED.append(record("ns", [9, 6, 5, 4, 3, 2], 20))
NO_RATIO = dict.fromkeys(("reference_loss", "iterations_speedup", "total_speedup"))
NO_RATIO["total_speedup_at_most"] = None
PAIRWISE = [record(name, [1, 0.5], ms, loss="log") for name, ms in (("neg", 9), ("ns", 1))]
DIVERGED = [record("iid", [9, 5], 40, status="diverged"), record("ns", [9, 5, 3], 10)]
TWO_SEEDS = [*DIVERGED, *(record(name, [9, 5], 40, seed=1) for name in ("iid", "ns"))]
NO_TIMES = [record("iid", [9, 5], 40, status="diverged", summary={TIMES[0]: None}), DIVERGED[1]]
UNTIMED = [record("iid", [9, 3], 1, summary={TIMES[0]: None}), record("ns", [9, 3], 1)]
ROWS = [
    (THREE, "iid", {"status": "baseline", "reference_loss": 3, "total_speedup": 1}),
    (THREE, "ns", {"status": "reached", "iterations_to_reference": 150, "seconds_to_reference": 3}),
    (THREE, "ns", {"per_iteration_speedup": 10, "step_per_iteration_speedup": 10}),
    (THREE, "ns", {"iterations_speedup": 200 / 150, "total_speedup": 10 * 200 / 150}),
    (THREE, "ns", {"interleaved": False}),
    (THREE, "strat", {"status": "not reached", "iterations_to_reference": None}),
    (THREE, "strat", {"per_iteration_speedup": 20, "total_speedup": None}),
    (SEEDS, "ns", {"seeds": 2, "per_iteration_speedup": 16**0.5, "reference_loss": 3.5}),
    ([IID, record("ns", [9, 3], 50, seed=4)], "ns", {"status": "no baseline of this seed"}),
    (APART, "ns", {"status": "different environment", "same_environment": False}),
    (APART, "ns", {"per_iteration_speedup": None}),
    (SIZES, "strat-ns s=8", {"per_iteration_speedup": 20}),
    (SIZES, "strat-ns", {"per_iteration_speedup": 10}),
    (SIZES, "neg k=20", {"per_iteration_speedup": 4}),  # beside iid of its own k
    (NEWEST, "ns", {"per_iteration_speedup": 20}),
    (UNTRAINED, "iid", {"status": "not trained", "per_iteration_speedup": 1} | NO_RATIO),
    (UNTRAINED, "ns", {"status": "no baseline", "per_iteration_speedup": 10} | NO_RATIO),
    (PAIRWISE, "neg", {"status": "baseline"}),
    (PAIRWISE, "ns", {"total_speedup": 9}),
    # Iterations of ns are known to be shorter, though iid diverged.
    (DIVERGED, "iid", {"status": "diverged"}),
    (DIVERGED, "ns", {"status": "no baseline", "reason": "iid diverged."}),
    (DIVERGED, "ns", {"per_iteration_speedup": 4} | NO_RATIO),
    (TWO_SEEDS, "ns", {"status": "no baseline", "reason": "iid diverged with 1 of 2 seeds."}),
    (NO_TIMES, "ns", {"reason": "iid diverged.", "per_iteration_speedup": None}),
    (UNTIMED, "iid", {"status": "no times"}),
    (UNTIMED, "ns", {"status": "no baseline", "reason": "iid has no times."}),
]


@pytest.mark.parametrize(("records", "arm", "values"), ROWS)
def test_rows_by_hand(records, arm, values):
    row = rows_of(records)[arm]
    assert {column: row.get(column) for column in values} == pytest.approx(values)


def test_runs_that_are_not_over_have_no_row():
    assert rows_of(NEWEST).keys() == {"iid", "ns"}


def test_the_frames_have_targets_and_ratios_of_a_seed(tmp_path):
    """iid ends at 3 after 200 iterations of 40 ms, ns is there after 150 of 10 ms."""
    write_run(tmp_path, "iid", [9, 5, 3], 40, [0, 0.1, 0.2])
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.2, 0.3])
    write_run(tmp_path, "neg", [9, 8, 7], 20)
    results = ncfbench.report(tmp_path)
    assert results.arms.column_names == schemas.ARMS.names
    rows = {row["sampler"]: row for row in results.arms.to_pylist()}
    expected = {"target": 3, "iterations_to_target": 150, "reached": True}
    expected |= {"seconds_to_target": 1.5, "baseline_run": rows["iid"]["run"]}
    expected |= {"times_shorter": 4, "times_fewer": 200 / 150, "times_sooner": 4 * 200 / 150}
    assert {name: rows["ns"][name] for name in expected} == pytest.approx(expected)
    assert [rows["neg"][name] for name in ("reached", "iterations_to_target")] == [False, None]
    *_, last = (row for row in results.probes.to_pylist() if row["run"] == rows["ns"]["run"])
    expected = {"iteration": 200, "probe_loss": 2, "test_recall_at_50": 0.3, "seconds": 2}
    assert {name: last[name] for name in expected} == pytest.approx(expected)


def test_other_settings_are_other_comparisons():
    """Each has its own baseline, and its name in its rows."""
    runs = [IID, record("ns", [9, 3], 1, fingerprint="e" * 64), record("ns", [9, 3], 1, epochs=2)]
    assert len(frames.group(runs)) == 3
    both = [
        record(sampler, [9, 3], ms, convolution=convolution)
        for convolution, lengths in (("auto", (100, 5)), ("plain", (1000, 500)))
        for sampler, ms in zip(("iid", "strat-ns"), lengths, strict=True)
    ]
    rows = [row for each in compare(frames.group(both)) for row in each.speedups]
    own = [row for row in rows if row["sampler"] == "strat-ns" and not row["variant"]]
    ratios = {row["settings"]: row["per_iteration_speedup"] for row in own}
    assert ratios == pytest.approx({"": 20, "convolution=plain": 2})


def test_labels_leave_out_what_a_run_does_not_read():
    run = record("ns", [9, 3], 10, encoder="mf", word_dropout=0.2, dimension=100)
    assert unusual_label(run) == "dimension=100"
    assert "word_dropout" not in run_command(run.config, {})
    assert (seeds_label([2, 0, 1]), seeds_label([5, 0, 1])) == ("seeds 0 to 2", "seeds 0, 1, 5")


def recalls_of(records):
    (comparison,) = compare(frames.group(records))
    return {row["sampler"]: row for row in comparison.recalls}


def test_recall_rows():
    """Two seeds, whose recalls have a variance of 0.02. Errors of 0.03 over users and 0.04 over
    items: sqrt(0.0009 + 0.0016 + 0.02 / 2); of new items 0.03: sqrt((2 * 0.0009 + 0.02) / 2).
    """
    errors = {f"{RECALL}_error": 0.03, f"{RECALL}_item_error": 0.04}
    errors[f"{RECALL}_new_items_error"] = 0.03
    two = [
        record("iid", [9], 1, recall, seed=seed, summary=errors | {f"{RECALL}_new_items": of_new})
        for seed, (recall, of_new) in enumerate(((0.3, 0.1), (0.5, 0.3)))
    ]
    row = recalls_of(two)["iid"]
    assert (row[RECALL], row["seeds"]) == (pytest.approx(0.4), 2)
    assert row[f"{RECALL}_error"] == pytest.approx(np.sqrt(0.0125))
    assert row[f"{RECALL}_new_items"] == pytest.approx(0.2)
    assert row[f"{RECALL}_new_items_error"] == pytest.approx(np.sqrt(0.0109))
    assert row[f"{RECALL}_known_items"] is None
    diverged = record("iid", [9], 1, seed=2, status="diverged")
    row = recalls_of([*two, diverged])["iid"]
    assert (row.get(RECALL), row["reason"]) == (None, "1 of 3 seeds diverged")
    reason = "held-out items have none"
    row = recalls_of([record("iid", [9], 1, None, encoder="mf", reason=reason)])["iid"]
    assert [row[name] for name in ("status", RECALL, "reason")] == ["no recall", None, reason]


@pytest.mark.parametrize("order", [(16, 4), (4, 16)])
def test_a_chosen_baseline_has_the_papers_settings(order):
    """Whichever run is older; without such an arm one must be chosen."""
    times = {16: 40.0, 4: 20.0, 8: 30.0}
    runs = [
        record("strat-ns", [9, 5, 3], times[s], stratum_size=s, time=f"2026-01-0{day}")
        for day, s in enumerate(order, 1)
    ]
    runs.append(record("ns", [9, 5, 3], 10))
    (comparison,) = compare(frames.group(runs, "strat-ns"))
    rows = {f"{row['sampler']} {row['variant']}".strip(): row for row in comparison.speedups}
    assert rows["ns"]["per_iteration_speedup"] == pytest.approx(2)
    assert rows["strat-ns s=16"]["per_iteration_speedup"] == pytest.approx(0.5)
    unusual = [record("strat-ns", [9, 5, 3], times[s], stratum_size=s) for s in (16, 8)]
    with pytest.raises(UsageError, match=r"several arms: strat-ns .*, strat-ns "):
        frames.group([*unusual, runs[-1]], "strat-ns")


# --- ties: arms that cannot be told from the best of their column


def tied(rows, column):
    return {row["sampler"] for row in rows if column in row.get("tied", ())}


def test_recalls_are_tied_by_paired_differences():
    """Seeds differ by more than the arms do. strat is below ns by 0.01 in each seed; the
    other one is above it in half of them.
    """
    runs = []
    for seed, recall in enumerate((0.30, 0.42, 0.35, 0.47)):
        runs.append(record("ns", [9, 5], 10, recall, seed=seed))
        runs.append(record("strat", [9, 5], 10, recall - 0.01 - 0.001 * seed, seed=seed))
        above = -0.001 + 0.02 * (-1) ** seed
        runs.append(record("strat-ns", [9, 5], 10, recall + above, seed=seed))
    (comparison,) = compare(frames.group(runs))
    assert tied(comparison.recalls, RECALL) == {"ns", "strat-ns"}


@pytest.mark.parametrize("is_kept", [False, True])
def test_one_seed_is_compared_over_users_and_items(tmp_path, is_kept):
    """400 users, 160 hits of ns; 20 of these are others with strata, and 120 are missed by iid.
    Without evaluations nothing is tied.
    """
    users = np.arange(400)
    hits = users < 160
    arms = {"ns": hits, "strat-ns": hits ^ (users % 16 == 0), "iid": hits & (users < 40)}
    for sampler, is_hit in arms.items():
        folder = write_run(tmp_path, sampler, [9, 5], 10, [0, float(np.mean(is_hit))])
        if is_kept:
            values = is_hit.astype(np.float32)
            kept = Evaluation({}, values, values / len(values))
            write_evaluations(folder, {(100, "test"): kept})
    (compared,) = compare(frames.group(read_all(tmp_path)[0]))
    best = max(arms, key=lambda sampler: float(np.mean(arms[sampler])))
    expected = {"ns", "strat-ns"} if is_kept else {best}
    assert tied(compared.recalls, RECALL) == expected


# --- who comes down to the baseline's smallest loss soonest


@pytest.mark.parametrize(
    ("losses", "sentence"),
    [
        (None, ""),
        ([9, 3, 5, 5, 5, 5, 5, 5, 5], "iid has not trained: its smallest loss comes at"),
        ([3, 4, 5], "iid has not trained: its loss was never below the 3 before training."),
    ],
)
def test_without_a_baseline_there_is_no_ratio(tmp_path, losses, sentence):
    if losses is not None:
        write_run(tmp_path, "iid", losses, 10)
    write_run(tmp_path, "ns", [9, 5, 3], 10)
    text = " ".join(invoke("report", tmp_path).stdout.split())
    assert ("Speedup over iid" in text) == (losses is not None), "a table without ratios"
    assert sentence in text
    assert "times sooner" not in text
    for words in (["--full", "--paper"], ["--json"], ["--verify"]):
        check(invoke("report", tmp_path, *words), 0)


def test_the_speedup_table_says_who_is_soonest():
    def lead_of(runs):
        (table,) = speedup_tables(compare(frames.group(runs)))
        return table.lead

    runs = [record("iid", [9, 5, 3], 10), record("ns", [9, 5, 3], 40)]
    assert lead_of(runs) == "citeulike, CNN: none is sooner than iid."
    runs += [record("strat-ns", [9, 5, 3], 6), record("neg", [9, 5, 3], 5)]
    runs.append(record("iid", [9, 5, 2], 50, negatives=20))  # tied with no arm of k = 10
    assert lead_of(runs).endswith(" 2 times sooner (1 seed); tied with it: strat-ns.")


def test_another_baseline(tmp_path):
    """Where iid is too dear: ns comes to its smallest loss, 3, at iteration 300 after 9 s, strat-ns
    at iteration 200 after 2 s. What is kept beside the runs has the usual baseline.
    """
    write_run(tmp_path, "ns", [9, 6, 4, 3], 30)
    write_run(tmp_path, "strat-ns", [9, 6, 3, 2], 10)
    check(invoke("report", tmp_path), 0)
    kept = (tmp_path / "speedup.parquet").read_bytes()
    document = json.loads(invoke("report", tmp_path, "--baseline", "ns", "--json").stdout)
    rows = {row["sampler"]: row for row in document["speedup"] if row["runs"]}
    assert (rows["ns"]["status"], rows["strat-ns"]["baseline"]) == ("baseline", "ns")
    parts = ("per_iteration_speedup", "iterations_speedup", "total_speedup")
    assert [rows["strat-ns"][part] for part in parts] == pytest.approx([3.0, 1.5, 4.5])
    assert (tmp_path / "speedup.parquet").read_bytes() == kept


# --- how tables show them


def cells_of(table):
    """Cells by sampler."""
    return {row[1].text: row[2:] for row in table.rows}


def texts_of(table):
    return {name: [cell.text for cell in row[:3]] for name, row in cells_of(table).items()}


def best_of(table, column):
    return {name for name, row in cells_of(table).items() if row[column].style == "best"}


@pytest.mark.parametrize(
    ("sessions", "expected"), [(["a"], True), (["b"], False), (["a", None], False), ([], False)]
)
def test_runs_of_the_same_sessions_are_interleaved(sessions, expected):
    runs = [record("iid", [9, 5, 3], 200, interleaved=["a"])]
    runs.append(record("ns", [9, 4, 2], 20, interleaved=sessions))
    texts = texts_of(speedup_tables(compare(frames.group(runs)))[0])
    assert texts["ns"] == [f"10.00{' †' * (not expected)}", "1.33", f"13.33{' †' * (not expected)}"]


def test_times_of_a_busy_machine_are_marked():
    """Spreads of 0.13 and 0.24: the latter is that of a busy machine."""
    row = {"per_iteration_speedup": 2.0, "interleaved": True, "simulated": False}
    row |= {"runs": ["a"], "baseline_runs": ["b"]}
    quiet, busy = (row | {"full_iteration_spread": spread} for spread in (0.13, 0.24))
    base, apart = busy | {"baseline_runs": ["a"]}, busy | {"interleaved": False}
    assert time_notes([base, quiet]) == []
    rows = [base, quiet, busy, apart]
    assert [mark_of(row) for row in rows] == ["", "", " ‡", " †‡"]
    assert [note[0] for note in time_notes(rows)] == ["†", "‡"]


def test_the_best_of_each_column_and_baseline():
    """Over iid of k=10 neg is the quickest by iteration, ns needs fewest, and strat is
    the first to arrive. Over iid of k=20 there is a best by itself: it takes nothing from others.
    """
    runs = [
        record("iid", [9, 5, 3], 200, 0.45),
        record("ns", [9, 3, 2], 50, 0.4),
        record("strat", [9, 8, 3], 10, 0.3),
        record("neg", [9, 8, 4], 5, 0.2),
        record("iid", [9, 5, 3], 900, 0.5, negatives=20),
        record("neg", [9, 5, 3], 100, 0.3, negatives=20),
    ]
    comparisons = compare(frames.group(runs))
    (table,), (recall,) = speedup_tables(comparisons), recall_tables(comparisons)
    assert [best_of(table, column) for column in range(3)] == [
        {"neg", "neg (k=20)"},
        {"ns", "iid (k=20)", "neg (k=20)"},  # of k = 20 both are as good in iterations
        {"strat", "neg (k=20)"},
    ]
    assert best_of(recall, 0) == {"iid (k=20)"}
    assert table.notes[0].endswith("CNN k=10: 3.0000; CNN k=20: 3.0000.")


def test_ties_are_taken_among_the_values_that_are_shown():
    """strat-ns is the soonest by far, on another machine; neg has most recall, and diverged. The
    paper's figures stand in brackets.
    """
    runs = [record("iid", [9, 5, 3], 200), record("strat", [9, 5, 3], 38, 0.401)]
    runs += [record("ns", [9, 5, 3], 40), record("strat-ns", [9, 5, 3], 4, key="two")]
    runs += [record("neg", [9, 5, 3], 4, 0.9, status="diverged")]
    comparisons = compare(frames.group(runs))
    (speedup,), (recall,) = speedup_tables(comparisons), recall_tables(comparisons)
    assert texts_of(speedup)["strat-ns"] == ["other machine", "1.00", "other machine"]
    assert best_of(speedup, 2) == {"strat", "ns"}
    assert best_of(recall, 0) == {"strat"}
    speedup, recall = beside_tables(comparisons, {})
    totals = [texts_of(speedup)[name][2] for name in ("neg", "strat-ns")]
    assert totals == ["diverged (1.02)", "other machine (29.12)"]
    assert texts_of(recall)["neg"][0].startswith("diverged (")


def test_the_papers_tables_have_ties_of_their_own():
    """Without the arm of s = 16, which is soonest and not among them, ns is tied with strat."""
    lengths = {"iid": 200.0, "strat": 38.0, "ns": 40.0}
    runs = [record(name, [9, 5, 3], ms) for name, ms in lengths.items()]
    runs.append(record("strat", [9, 5, 3], 4.0, 0.9, stratum_size=16))
    comparisons = compare(frames.group(runs))
    assert best_of(speedup_tables(comparisons)[0], 2) == {"strat (s=16)"}
    assert best_of(beside_tables(comparisons, {})[0], 2) == {"strat", "ns"}


def test_the_source_says_which_figures_are_printed():
    """Data of any name stand beside the paper's where their manifest says that they are these."""
    comparisons = compare(frames.group([record("iid", [9, 5, 3], 200, dataset="my-texts")]))
    assert beside_tables(comparisons, {}) == []
    assert beside_tables(comparisons, {"f" * 64: {"source": "mind"}}) == []
    speedup, recall = beside_tables(comparisons, {"f" * 64: {"source": "citeulike"}})
    assert texts_of(recall)["iid"] == ["0.4000 (0.4746)"]
    assert texts_of(speedup)["iid"][2] == "1.00"


# --- the paper's figures


def test_printed_figures_are_found_by_name():
    values = printed.values()
    for value, *names in (
        (29.12, "citeulike", "cnn", "strat-ns", "sg", "total_speedup"),
        (4.14, "news", "lstm", "ns", "sg", "iterations_speedup"),
        (0.4877, "citeulike", "lstm", "strat-ns", "mse", "test_recall_at_50"),
        (None, "citeulike", "cnn", "iid", "hinge", "test_recall_at_50"),
    ):
        assert values.get(PrintedCell(*names)) == value
    assert len(values) == 2 * 2 * 4 * 3 + 2 * 2 * (2 * 5 + 2 * 3)
    for cell in values:
        assert find_encoder(cell.encoder).title
        assert find_loss(cell.loss).family in find_sampler(cell.sampler).families
    # A slip in copying one of the three would show; the paper rounds each.
    for row in printed.table("speedup"):
        product = float(row["per_iteration"]) * float(row["iterations"])
        assert float(row["total"]) == pytest.approx(product, rel=0.02)


def test_the_printed_cost_table_is_the_cost_models():
    for row in printed.table("cost"):
        negatives, users, items, interactions, kind = find_sampler(row["sampler"]).symbols
        ours = {"user_nodes": users, "item_nodes": items, "interactions": interactions}
        assert {name: row[name].replace("*", "").replace("bb", "b^2") for name in ours} == ours
        assert kind.startswith({"vector": "vec", "matrix": "mat"}[row["interaction_kind"]])
        if row["sampler"] != "strat-ns":  # where ours leaves out a link's own stratum
            assert row["negative_links"].replace("*", "") == negatives
