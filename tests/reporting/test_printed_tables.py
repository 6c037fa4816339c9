"""Tables as they are printed: marks, best values, titles, and reasons for empty cells; and the
figures that the paper printed, as they ship.
"""

import pytest
from support.records import record

from ncfbench.catalog import find_encoder, find_loss, find_sampler
from ncfbench.paper import printed
from ncfbench.paper.printed import PrintedCell
from ncfbench.reporting.frames import group
from ncfbench.reporting.rows import compare
from ncfbench.reporting.views.paper import beside_tables
from ncfbench.reporting.views.results import mark_of, recall_tables, speedup_tables, time_notes


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
    texts = texts_of(speedup_tables(compare(group(runs)))[0])
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
    comparisons = compare(group(runs))
    table = speedup_tables(comparisons)[0]
    texts = texts_of(table)
    assert texts["neg"][0] == "40.00 †"
    assert texts["ns"] == ["4.00 †", "2.00", "8.00 †"]
    assert texts["strat"] == ["20.00 †", "1.00", "20.00 †"]
    assert texts["neg (k=20)"] == ["9.00 †", "1.00", "9.00 †"]
    assert [best_of(table, column) for column in range(3)] == [
        {"neg", "neg (k=20)"},
        {"ns", "iid (k=20)", "neg (k=20)"},  # of k = 20 both are as good in iterations
        {"strat", "neg (k=20)"},
    ]
    assert table.notes[0].endswith("CNN k=10: 3.0000; CNN k=20: 3.0000.")
    assert best_of(recall_tables(comparisons)[0], 0) == {"iid (k=20)"}


def test_ties_are_taken_among_the_values_that_are_shown():
    """strat-ns is the soonest by far, on another machine; neg has most recall, and diverged."""
    runs = [record("iid", [9, 5, 3], 200), record("strat", [9, 5, 3], 38, 0.401)]
    runs += [record("ns", [9, 5, 3], 40), record("strat-ns", [9, 5, 3], 4, key="two")]
    runs += [record("neg", [9, 5, 3], 4, 0.9, status="diverged")]
    comparisons = compare(group(runs))
    (speedup,), (recall,) = speedup_tables(comparisons), recall_tables(comparisons)
    assert texts_of(speedup)["strat-ns"] == ["other machine", "1.00", "other machine"]
    assert best_of(speedup, 2) == {"strat", "ns"}
    assert best_of(recall, 0) == {"strat"}


def test_the_papers_tables_have_ties_of_their_own():
    """Without the arm of s = 16, which is soonest and not among them, ns is tied with strat."""
    lengths = {"iid": 200.0, "strat": 38.0, "ns": 40.0}
    runs = [record(name, [9, 5, 3], ms) for name, ms in lengths.items()]
    runs.append(record("strat", [9, 5, 3], 4.0, 0.9, stratum_size=16))
    comparisons = compare(group(runs))
    assert best_of(speedup_tables(comparisons)[0], 2) == {"strat (s=16)"}
    assert best_of(beside_tables(comparisons, {})[0], 2) == {"strat", "ns"}


def test_sheets_say_why_a_cell_has_no_value():
    runs = [record("iid", [9, 5, 3], 200), record("ns", [9, 4, 2], 20, key="two")]
    (comparison,) = compare(group([*runs, record("strat", [9, 5, 3], 20, status="diverged")]))
    (ours, _), (recall,) = beside_tables([comparison], {}), recall_tables([comparison])
    totals = [texts_of(ours)[name][2] for name in ("iid", "strat", "ns")]
    assert totals == ["1.00", "diverged (8.56)", "other machine (19.50)"]
    recalls = [texts_of(recall)[name][0] for name in ("iid", "strat", "ns")]
    assert recalls == ["0.4000", "diverged", "0.4000"]


def test_the_source_says_which_figures_are_printed():
    """Data of any name stand beside the paper's where their manifest says that they are these."""
    comparisons = compare(group([record("iid", [9, 5, 3], 200, dataset="my-texts")]))
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
        (None, "citeulike", "cnn", "ns", "log", "total_speedup"),
    ):
        assert values.get(PrintedCell(*names)) == value
    assert len(values) == 2 * 2 * 4 * 3 + 2 * 2 * (2 * 5 + 2 * 3)


def test_printed_names_are_the_registrys():
    for cell in printed.values():
        assert find_encoder(cell.encoder).title
        assert find_loss(cell.loss).family in find_sampler(cell.sampler).families


def test_the_total_is_about_the_product_of_its_factors():
    """A slip in copying one of the three would show; the paper rounds each."""
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
