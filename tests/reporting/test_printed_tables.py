"""Tables as they are printed: marks, best values, titles, and reasons for empty cells."""

import dataclasses
import io

from rich.console import Console
from support.records import record

from ncfbench.reporting.frames import group
from ncfbench.reporting.render.terminal import TableView, make_console
from ncfbench.reporting.rows import compare
from ncfbench.reporting.views.paper import beside_tables
from ncfbench.reporting.views.results import (
    mark_of,
    recall_tables,
    speedup_tables,
    time_notes,
)
from ncfbench.reporting.views.run import run_table
from ncfbench.runs.labels import seeds_label


def test_names_are_text_and_not_markup():
    """Paths such as ``runs[old]`` or ``r[/x]`` are printed as they are."""
    out = io.StringIO()
    plain = make_console()
    plain.file = out
    plain.print("Records: runs[old]/r[/x]", soft_wrap=True)
    summary = record("ns", [9], 1).summary | {"run": "a[/b]", "epochs": 1.0, "train_seconds": 1.0}
    plain.print(TableView(run_table(summary, [])))
    assert "runs[old]/r[/x]" in out.getvalue()
    assert "a[/b]" in out.getvalue()


def rendered(*tables):
    out = io.StringIO()
    for table in tables:
        Console(file=out, width=160).print(TableView(table))
    return out.getvalue()


def cells_of(table):
    """Cells by sampler."""
    return {row[1].text: row[2:] for row in table.rows}


def texts_of(table, count=3):
    return {name: [cell.text for cell in row[:count]] for name, row in cells_of(table).items()}


def test_times_of_separate_runs_are_marked():
    def together(sessions, *given, **more):
        made = record(*given, **more)
        return dataclasses.replace(made, environment={**made.environment, "interleaved": sessions})

    runs = [
        together(["a"], "iid", [9, 5, 3], 200),
        together(["a"], "ns", [9, 4, 2], 20),
        together(["b"], "strat-ns", [9, 4, 2], 10, stratum_size=8),
        together(["a", None], "strat-ns", [9, 4, 2], 40),
        record("iid", [9, 6, 4], 100, negatives=20),
    ]
    found = compare(group(runs))
    table = speedup_tables(found)[0]
    shown = texts_of(table)
    assert shown["ns"] == ["10.00", "1.33", "13.33"]
    assert shown["strat-ns (s=8)"] == ["20.00 †", "1.33", "26.67 †"]
    assert shown["strat-ns"] == ["5.00 †", "1.33", "6.67 †"]
    assert shown["iid"] == ["1.00", "1.00", "1.00"]
    explained = "†: times of separate runs, not interleaved"
    assert any(note.startswith(explained) for note in table.notes)
    assert table.notes[0].endswith("CNN k=10: 3.0000; CNN k=20: 4.0000.")
    table = beside_tables(found, {})[0]
    texts = texts_of(table)
    assert texts["strat-ns"][0].endswith(" †")
    assert not texts["ns"][0].endswith("†")
    assert any(note.startswith("†") for note in table.notes)


def test_times_of_a_busy_machine_are_marked():
    """Spreads of 0.13 and 0.24: the latter is that of a busy machine."""
    row = {
        "status": "reached",
        "per_iteration_speedup": 2.0,
        "interleaved": True,
        "simulated": False,
        "runs": ["a"],
        "baseline_runs": ["b"],
    }
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
    found = compare(group(runs))
    table = speedup_tables(found)[0]
    texts = texts_of(table)
    assert texts["neg"][0] == "40.00 †"
    assert texts["ns"] == ["4.00 †", "2.00", "8.00 †"]
    assert texts["strat"] == ["20.00 †", "1.00", "20.00 †"]
    assert texts["neg (k=20)"] == ["9.00 †", "1.00", "9.00 †"]
    best = {
        name: [cell.style == "best" for cell in row[:3]] for name, row in cells_of(table).items()
    }
    assert best == {
        "iid": [False, False, False],
        "neg": [True, False, False],
        "strat": [False, False, True],
        "ns": [False, True, False],
        "iid (k=20)": [False, True, False],  # as good in iterations
        "neg (k=20)": [True, True, True],
    }
    shown = cells_of(recall_tables(found)[0])
    assert [name for name, row in shown.items() if row[0].style == "best"] == ["iid (k=20)"]


def best_of(table, place):
    return {name for name, row in cells_of(table).items() if row[place].style == "best"}


def test_ties_are_taken_among_the_values_that_are_shown():
    """strat-ns is the soonest by far, on another machine; neg has most recall, and diverged."""
    runs = [record("iid", [9, 5, 3], 200), record("strat", [9, 5, 3], 38, 0.401)]
    runs += [record("ns", [9, 5, 3], 40), record("strat-ns", [9, 5, 3], 4, key="two")]
    runs += [record("neg", [9, 5, 3], 4, 0.9, status="diverged")]
    found = compare(group(runs))
    (speedup,), (recall,) = speedup_tables(found), recall_tables(found)
    assert texts_of(speedup)["strat-ns"] == ["other machine", "1.00", "other machine"]
    assert best_of(speedup, 2) == {"strat", "ns"}
    assert best_of(recall, 0) == {"strat"}


def test_the_papers_tables_have_ties_of_their_own():
    """Without the arm of s = 16, which is soonest and not among them, ns is tied with strat."""
    lengths = {"iid": 200.0, "strat": 38.0, "ns": 40.0}
    runs = [record(name, [9, 5, 3], ms) for name, ms in lengths.items()]
    runs.append(record("strat", [9, 5, 3], 4.0, 0.9, stratum_size=16))
    found = compare(group(runs))
    assert best_of(speedup_tables(found)[0], 2) == {"strat (s=16)"}
    assert best_of(beside_tables(found, {})[0], 2) == {"strat", "ns"}


def test_sheets_say_why_a_cell_has_no_value():
    runs = [record("iid", [9, 5, 3], 200), record("ns", [9, 4, 2], 20, key="two")]
    (found,) = compare(group([*runs, record("strat", [9, 5, 3], 20, status="diverged")]))
    texts = texts_of(speedup_tables([found])[0])
    assert {sampler: row[2] for sampler, row in texts.items()} == {
        "iid": "1.00",
        "strat": "diverged",
        "ns": "other machine",
    }
    shown = texts_of(recall_tables([found])[0])
    assert (shown["strat"][0], shown["ns"][0]) == ("diverged", "0.4000")
    next(row for row in found.recalls if row["sampler"] == "iid")["reported_epoch"] = 1.5
    epochs = texts_of(recall_tables([found])[0])
    assert [epochs[name][0] for name in ("iid", "ns")] == ["0.4000 @1.5", "0.4000 @3"]
    speedup, recall = beside_tables([found], {})
    texts = texts_of(speedup)
    assert texts["strat"][2] == "diverged (8.56)"
    assert texts["ns"][2] == "other machine (19.50)"
    assert texts_of(recall)["strat"][0] == "diverged (0.4761)"


def test_printed_figures_are_found_by_the_source():
    """Data of any name stand beside the paper's where their manifest says that they are these."""
    found = compare(group([record("iid", [9, 5, 3], 200, dataset="my-texts")]))
    assert beside_tables(found, {}) == []
    assert beside_tables(found, {"f" * 64: {"source": "mind"}}) == []
    speedup, recall = beside_tables(found, {"f" * 64: {"source": "citeulike"}})
    assert texts_of(recall)["iid"] == ["0.4000 (0.4746)"]
    assert texts_of(speedup)["iid"][2] == "1.00"


def test_an_impossible_arm_is_no_missing_run():
    """iid cannot train with a pairwise loss; strat-ns could with SG, but only log has a run."""
    runs = [
        *(record(name, [9, 5, 3], 200) for name in ("iid", "neg", "strat")),
        *(record(name, [9, 5, 3], 200, loss="log") for name in ("neg", "strat-ns")),
        record("strat-ns", [9, 5, 3], 200, loss="log", stratum_size=8),
    ]
    (table,) = recall_tables(compare(group(runs)))
    assert [column.heading for column in table.header[2:]] == ["SG", "Log"]
    assert texts_of(table) == {
        "iid": ["0.4000", "invalid"],
        "neg": ["0.4000", "0.4000"],
        "strat": ["0.4000", "invalid"],
        "strat-ns": ["no run", "0.4000"],
        "strat-ns (s=8)": ["no run", "0.4000"],
    }
    assert any(note.startswith("invalid: ") for note in table.notes)


def test_titles_name_b_s_k_and_seeds():
    """Each in the table's title, or beside the arm that differs from it."""
    runs = [
        record("iid", [9, 3], 1, seed=seed, batch_size=64, epochs=6, encoder=encoder)
        for seed in (0, 1, 5)
        for encoder in ("cnn", "lstm")
    ]
    runs += [record("strat", [9, 3], 1, batch_size=64, epochs=6, stratum_size=8)]
    found = compare(group(runs))
    (speedup,) = speedup_tables(found)
    settings = "b=64, k=10 (CNN), k=5 (LSTM), epochs=6, seeds 0, 1, 5"
    assert speedup.title == f"Speedup over iid, SG loss: citeulike, {settings}"
    assert "strat (s=8)" in cells_of(speedup)
    assert seeds_label([2, 0, 1]) == "seeds 0 to 2"
