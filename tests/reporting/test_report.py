"""Tables of runs that are written as literals, without training or a clock."""

from __future__ import annotations

import dataclasses
import io
import shlex
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ncfbench.config import complete
from ncfbench.reporting import comparison, verdicts
from ncfbench.reporting.marks import marks
from ncfbench.reporting.render.terminal import TableView, make_console
from ncfbench.reporting.rows import recall_rows, run_command, speedup_rows
from ncfbench.reporting.table import Cell, Table
from ncfbench.reporting.views.paper import beside_tables
from ncfbench.reporting.views.results import (
    missing_tables,
    parts_tables,
    recall_tables,
    speedup_tables,
)
from ncfbench.reporting.views.run import run_table
from ncfbench.runs.folder import RunRecord
from ncfbench.storage import schemas, tables


def record(
    sampler: str, losses: list[float], ms: float, recall: float | None = 0.4, **more: Any
) -> RunRecord:
    extra = {
        key: more.pop(key)
        for key in ("key", "status", "fingerprint", "time", "reason")
        if key in more
    }
    config = complete({"sampler": sampler, "dataset": "citeulike"} | more)
    curve = [{"iteration": 100 * place, "probe_loss": loss} for place, loss in enumerate(losses)]
    summary = dict.fromkeys(schemas.SUMMARY.names) | {
        "status": extra.get("status", "finished"),
        "full_iteration_seconds": ms / 1e3,
        "step_iteration_seconds": ms / 2e3,
        "item_slots": 100.0,
        "reported_epoch": 3.0,
        "recall_reason": extra.get("reason"),
        "iterations": 300,
        **{f"test_recall_at_{m}": recall for m in schemas.CUTOFFS},
    }
    return RunRecord(
        folder=Path(f"runs/{sampler}-{config.seed}-{config.digest()}"),
        config=config,
        timing=[],
        ledger=[],
        curve=curve,
        summary=summary,
        data_fingerprint=extra.get("fingerprint", "f" * 64),
        environment={"key": extra.get("key", "one"), "time": extra.get("time", "2026-01-01")},
    )


def rows_of(records: list[RunRecord], **options: Any) -> dict[str, dict[str, Any]]:
    (group,) = comparison.group(records)
    rows = speedup_rows(group, **({"allow_mixed": False, "locations": {}} | options))
    return {(row["sampler"] + " " + row["variant"]).strip(): row for row in rows}


def test_the_papers_three_columns_by_hand() -> None:
    rows = rows_of(
        [record("iid", [9, 5, 3], 200), record("ns", [9, 4, 2], 20), record("strat", [9, 8, 7], 10)]
    )
    assert rows["iid"]["status"] == "baseline"
    assert rows["iid"]["reference_loss"] == 3
    assert (rows["iid"]["per_iteration_speedup"], rows["iid"]["total_speedup"]) == (1, 1)
    ns = rows["ns"]
    assert ns["status"] == "reached"
    assert ns["iterations_to_reference"] == pytest.approx(150)
    assert ns["seconds_to_reference"] == pytest.approx(3)
    assert ns["per_iteration_speedup"] == pytest.approx(10)
    assert ns["step_per_iteration_speedup"] == pytest.approx(10)
    assert ns["iterations_speedup"] == pytest.approx(200 / 150)
    assert ns["total_speedup"] == pytest.approx(10 * 200 / 150)
    strat = rows["strat"]
    assert strat["status"] == "not reached"
    assert strat.get("iterations_to_reference") is None
    assert strat["per_iteration_speedup"] == pytest.approx(20)
    assert strat["total_speedup"] is None
    assert ns["interleaved"] is False


def test_missing_cells_name_their_command() -> None:
    rows = rows_of(
        [record("ns", [9, 2], 20, epochs=7, seed=3, noise="0.75")],
        locations={"--runs-dir": "my runs"},
    )
    assert rows["strat-ns"]["status"] == "missing"
    words = shlex.split(rows["strat-ns"]["command"])
    assert words[:2] == ["ncfbench", "run"]
    for flag, value in (
        ("--sampler", "strat-ns"),
        ("--epochs", "7"),
        ("--noise", "0.75"),
        ("--runs-dir", "my runs"),
        ("--loss", "sg"),
    ):
        assert words[words.index(flag) + 1] == value
    assert rows["ns"]["status"] == "no baseline"
    assert "--sampler iid" in rows["ns"]["command"]
    assert set(rows) == {"iid", "neg", "strat", "ns", "strat-ns"}


def test_a_command_recreates_the_settings() -> None:
    """The named command, parsed as the command line does, gives the run of the missing cell."""
    from ncfbench.config import resolve

    odd = {
        "filters": 30,
        "mask": False,
        "unique_items": False,
        "gamma": 0.3,
        "loss": "hinge",
        "learning_rate": 0.003,
        "epochs": 2,
    }
    rows = rows_of([record("neg", [1, 0.5], 10, **odd)])
    words = shlex.split(rows["ns"]["command"])[2:]
    flags: dict[str, Any] = {}
    assignments = []
    while words:
        word = words.pop(0)
        if word == "--set":
            assignments.append(words.pop(0))
        elif word.startswith("--no-"):
            flags[word[5:].replace("-", "_")] = False
        else:
            flags[word[2:].replace("-", "_")] = words.pop(0)
    assert resolve(flags, assignments, environment={})[0] == complete(
        {"dataset": "citeulike", "sampler": "ns"} | odd
    )


def test_pairwise_losses_have_their_baseline() -> None:
    rows = rows_of(
        [record("neg", [1, 0.5], 100, loss="log"), record("ns", [1, 0.5], 10, loss="log")]
    )
    assert set(rows) == {"neg", "ns", "strat-ns"}
    assert rows["neg"]["status"] == "baseline"
    assert rows["ns"]["total_speedup"] == pytest.approx(10)


def test_seeds_are_paired() -> None:
    runs = [
        record("iid", [9, 3], 100, seed=0),
        record("iid", [9, 4], 400, seed=1),
        record("iid", [9, 1], 1, seed=5),
        record("ns", [9, 3], 50, seed=0),
        record("ns", [9, 4], 50, seed=1),
    ]
    ns = rows_of(runs)["ns"]
    assert ns["seeds"] == 2
    assert ns["per_iteration_speedup"] == pytest.approx((2 * 8) ** 0.5)
    assert ns["reference_loss"] == pytest.approx(3.5)


def test_a_seed_without_baseline_names_it() -> None:
    row = rows_of([record("iid", [9, 3], 100, seed=0), record("ns", [9, 3], 50, seed=4)])["ns"]
    assert row["status"] == "no baseline of this seed"
    assert row["command"].endswith("--seed 4")


def test_different_machines_are_not_divided() -> None:
    runs = [record("iid", [9, 3], 100), record("ns", [9, 3], 50, key="two")]
    refused = rows_of(runs)["ns"]
    assert refused["status"] == "different environment"
    assert refused.get("per_iteration_speedup") is None
    mixed = rows_of(runs, allow_mixed=True)["ns"]
    assert mixed["per_iteration_speedup"] == pytest.approx(2)
    assert mixed["same_environment"] is False


def test_other_settings_are_other_comparisons() -> None:
    runs = [
        record("iid", [9, 3], 1),
        record("ns", [9, 3], 1, fingerprint="e" * 64),
        record("ns", [9, 3], 1, epochs=2),
    ]
    assert len(comparison.group(runs)) == 3


def test_s_and_k_are_rows_of_one_comparison() -> None:
    runs = [
        record("iid", [9, 3], 100),
        record("iid", [9, 2], 200, negatives=20),
        record("strat-ns", [9, 3], 10),
        record("strat-ns", [9, 3], 5, stratum_size=8),
        record("neg", [9, 3], 50, negatives=20),
    ]
    rows = rows_of(runs)
    assert rows["strat-ns s=8"]["per_iteration_speedup"] == pytest.approx(20)
    assert rows["neg k=20"]["per_iteration_speedup"] == pytest.approx(4), (
        "the baseline of the same k"
    )
    assert rows["strat-ns"]["per_iteration_speedup"] == pytest.approx(10)


def test_local_sharing_is_a_row_beside_global_sharing() -> None:
    """The devices are the same, and the command for a missing cell asks for local sharing."""
    on = {"devices": 4, "batch_size": 64}
    records = [record("ns", [9, 5, 3], 10, **on), record("ns", [9, 5, 4], 8, share="local", **on)]
    (group,) = comparison.group(records)
    assert {variant.note("cnn") for variant in group.arms} == {"", "local"}
    (local,) = (variant for variant in group.arms if variant.share)
    words = shlex.split(run_command(group.config, local, 0, {}))
    assert words[words.index("--share") + 1] == "local"
    assert words[words.index("--devices") + 1] == "4"


def test_another_computation_is_another_comparison() -> None:
    """Each has its own baseline, its name above its table, and its setting in commands."""
    both = [
        record(sampler, [9, 3], ms, **more)
        for more, slower in (({}, 1), ({"convolution": "plain"}, 10))
        for sampler, ms in (("iid", 100.0 * slower), ("strat-ns", 5.0 * slower**2))
    ]
    groups = {group.title(): group for group in comparison.group(both)}
    assert set(groups) == {"", "convolution=plain"}
    for title, speedup in (("", 20), ("convolution=plain", 2)):
        rows = {
            row["sampler"]: row
            for row in speedup_rows(groups[title], allow_mixed=False, locations={})
        }
        assert rows["strat-ns"]["per_iteration_speedup"] == pytest.approx(speedup)
        assert rows["strat-ns"]["settings"] == title
        assert ("--convolution plain" in rows["ns"]["command"]) == bool(title)


def test_the_newest_finished_run_counts() -> None:
    runs = [
        record("iid", [9, 3], 100),
        record("ns", [9, 3], 10, time="2026-02-01"),
        record("ns", [9, 3], 50, time="2026-01-01"),
        dataclasses.replace(record("strat", [9, 3], 10, status="interrupted")),
    ]
    rows = rows_of(runs)
    assert rows["ns"]["per_iteration_speedup"] == pytest.approx(10)
    assert rows["strat"]["status"] == "missing"


def test_recall_rows() -> None:
    (group,) = comparison.group(
        [record("iid", [9], 1, 0.3, seed=0), record("iid", [9], 1, 0.5, seed=1)]
    )
    rows = {row["sampler"]: row for row in recall_rows(group, locations={})}
    assert rows["iid"]["test_recall_at_50"] == pytest.approx(0.4)
    assert (rows["iid"]["seeds"], rows["ns"]["status"]) == (2, "missing")
    (mf,) = comparison.group(
        [record("iid", [9], 1, None, encoder="mf", reason="held-out items have none")]
    )
    row = recall_rows(mf, locations={})[0]
    assert (row["status"], row["test_recall_at_50"], row["reason"]) == (
        "no recall",
        None,
        "held-out items have none",
    )


def test_a_run_without_times_is_no_crash() -> None:
    bad = record("iid", [9, 3], 1)
    bad = dataclasses.replace(bad, summary={**bad.summary, "full_iteration_seconds": None})
    rows = rows_of([bad, record("ns", [9, 3], 1)])
    assert rows["iid"]["status"] == rows["ns"]["status"] == "no times"


def test_names_are_text_and_not_markup() -> None:
    """Paths such as ``runs[old]`` or ``r[/x]`` are printed as they are."""
    out = io.StringIO()
    plain = make_console()
    plain.file = out
    plain.print("Records: runs[old]/r[/x]", soft_wrap=True)
    summary = record("ns", [9], 1).summary | {"run": "a[/b]", "epochs": 1.0, "train_seconds": 1.0}
    plain.print(TableView(run_table(summary, [])))
    assert "runs[old]/r[/x]" in out.getvalue()
    assert "a[/b]" in out.getvalue()


def rendered(*tables: Table) -> str:
    out = io.StringIO()
    for table in tables:
        Console(file=out, width=160).print(TableView(table))
    return out.getvalue()


def cells_of(table: Table) -> dict[str, tuple[Cell, ...]]:
    """Cells by sampler."""
    return {row[1].text: row[2:] for row in table.rows}


def texts_of(table: Table, count: int = 3) -> dict[str, list[str]]:
    return {
        sampler: [cell.text for cell in row[:count]] for sampler, row in cells_of(table).items()
    }


def test_the_printed_tables_have_the_papers_shape() -> None:
    runs = [
        record("iid", [9, 5, 3], 200),
        record("ns", [9, 4, 2], 20, 0.5),
        record("strat", [9, 8, 7], 10),
        record("iid", [8, 2], 400, encoder="lstm", dataset="mind"),
    ]
    groups = comparison.group(runs)
    rows = [speedup_rows(group, allow_mixed=False, locations={}) for group in groups]
    text = rendered(*speedup_tables(groups, rows))
    for word in (
        "Speedup over IID, SG loss",
        "per it.",
        "# of it.",
        "total",
        "citeulike",
        "mind",
        "CNN",
        "LSTM",
        "13.33",
        "(0/1)",
        "never",
    ):
        assert word in text
    assert "Times are of separate runs, not interleaved." in text
    assert "†" not in text
    recalls = [recall_rows(group, locations={}) for group in groups]
    assert "0.5000" in rendered(*recall_tables(groups, recalls))
    (missing,) = missing_tables([row for part in rows for row in part])
    assert "  ncfbench run --dataset mind --sampler ns --encoder lstm" in rendered(missing)


def test_times_of_separate_runs_are_marked() -> None:
    def together(sessions: list[str | None], *given: Any, **more: Any) -> RunRecord:
        made = record(*given, **more)
        return dataclasses.replace(made, environment={**made.environment, "interleaved": sessions})

    runs = [
        together(["a"], "iid", [9, 5, 3], 200),
        together(["a"], "ns", [9, 4, 2], 20),
        together(["b"], "strat-ns", [9, 4, 2], 10, stratum_size=8),
        together(["a", None], "strat-ns", [9, 4, 2], 40),
        record("iid", [9, 6, 4], 100, negatives=20),
    ]
    (group,) = comparison.group(runs)
    rows = speedup_rows(group, allow_mixed=False, locations={})
    table = speedup_tables([group], [rows])[0]
    shown = texts_of(table)
    assert shown["N.S."] == ["10.00", "1.33", "13.33"]
    assert shown["Strat. w. N.S. (s=8)"] == ["20.00 †", "1.33", "26.67 †"]
    assert shown["Strat. w. N.S."] == ["5.00 †", "1.33", "6.67 †"]
    assert shown["IID"] == ["1.00", "1.00", "1.00"]
    assert [
        note
        for note in table.notes
        if note.startswith("†: times of separate runs, not interleaved")
    ]
    assert table.notes[0].endswith("citeulike cnn k=10: 3.0000; citeulike cnn k=20: 4.0000.")
    found = verdicts.judge_all([group], [rows], [recall_rows(group, locations={})], {})
    beside = beside_tables([group], [rows], [[]], found)[0]
    texts = texts_of(beside)
    assert texts["Strat. w. N.S."][0].endswith(" †")
    assert not texts["N.S."][0].endswith("†")
    assert [note for note in beside.notes if note.startswith("†")]


def test_times_of_a_busy_machine_are_marked() -> None:
    row = {
        "status": "reached",
        "per_iteration_speedup": 2.0,
        "interleaved": True,
        "full_iteration_spread": 0.13,
    }
    busy, base = (
        row | {"full_iteration_spread": 0.24},
        row | {"status": "baseline", "full_iteration_spread": 0.24},
    )
    notes, mark = marks([base, row])
    assert (notes, mark(row), mark(base)) == (["Times are of interleaved runs."], "", "")
    notes, mark = marks([base, row, busy, busy | {"interleaved": False}])
    assert [mark(row), mark(busy), mark(busy | {"interleaved": False})] == ["", " ‡", " †‡"]
    assert [note[0] for note in notes] == ["†", "‡"]


def test_the_best_of_each_column_and_baseline() -> None:
    runs = [
        record("iid", [9, 5, 3], 200, 0.45),
        record("ns", [9, 3, 2], 50, 0.4),
        record("strat", [9, 8, 3], 10, 0.3),
        record("neg", [9, 8, 4], 5, 0.2),
        record("iid", [9, 5, 3], 900, 0.5, negatives=20),
        record("neg", [9, 5, 3], 100, 0.3, negatives=20),
    ]
    (group,) = comparison.group(runs)
    rows = speedup_rows(group, allow_mixed=False, locations={})
    table = speedup_tables([group], [rows])[0]
    texts = texts_of(table)
    best = {
        sampler: [cell.style == "best" for cell in row] for sampler, row in cells_of(table).items()
    }
    # Over IID of k=10: Negative is the quickest by iteration, N.S. needs fewest, Stratified is the
    # first to arrive.
    assert texts["Negative"][0] == "40.00"
    assert best["Negative"] == [True, False, False, False]
    assert (texts["N.S."], best["N.S."]) == (["4.00", "2.00", "8.00"], [False, True, False, False])
    assert (texts["Stratified"], best["Stratified"]) == (
        ["20.00", "1.00", "20.00"],
        [False, False, True, False],
    )
    assert best["IID"] == [False] * 4
    # Over IID of k=20 there is a best by itself, and it takes nothing from the others.
    assert (texts["Negative (k=20)"], best["Negative (k=20)"]) == (
        ["9.00", "1.00", "9.00"],
        [True, True, True, False],
    )
    assert best["IID (k=20)"] == [False, True, False, False], "as good in iterations"
    recalls = cells_of(recall_tables([group], [recall_rows(group, locations={})])[0])
    assert [sampler for sampler, row in recalls.items() if row[0].style == "best"] == ["IID (k=20)"]


def test_sheets_say_why_a_cell_has_no_value() -> None:
    (group,) = comparison.group(
        [record("iid", [9, 5, 3], 200), record("ns", [9, 4, 2], 20, key="two")]
    )
    rows = speedup_rows(group, allow_mixed=False, locations={})
    recalls = recall_rows(group, locations={})
    for row in (*rows, *recalls):
        if row["sampler"] == "strat":
            row |= {"status": "diverged", "runs": ["a"]}
    texts = texts_of(speedup_tables([group], [rows])[0])
    assert {sampler: row[2] for sampler, row in texts.items()} == {
        "IID": "1.00",
        "Negative": "no run",
        "Stratified": "diverged",
        "N.S.": "other machine",
        "Strat. w. N.S.": "no run",
    }
    shown = texts_of(recall_tables([group], [recalls])[0])
    assert (shown["Stratified"][0], shown["N.S."][0]) == ("diverged", "0.4000")
    next(row for row in recalls if row["sampler"] == "iid")["reported_epoch"] = 1.5
    epochs = texts_of(recall_tables([group], [recalls])[0])
    assert [epochs[name][0] for name in ("IID", "N.S.")] == ["0.4000 @1.5", "0.4000 @3"]
    found = verdicts.judge_all([group], [rows], [recalls], {})
    speedup, recall = beside_tables([group], [rows], [recalls], found)
    texts = texts_of(speedup)
    assert texts["Stratified"][2] == "diverged (8.56, missing)"
    assert texts["N.S."][2] == "other machine (19.50)"
    assert texts_of(recall)["Stratified"][0] == "diverged (0.4761, missing)"


def test_an_impossible_arm_is_no_missing_run() -> None:
    """IID cannot train with a pairwise loss; Stratified could with SG, but only log has a run."""
    runs = [
        *(record(name, [9, 5, 3], 200) for name in ("iid", "neg")),
        *(record(name, [9, 5, 3], 200, loss="log") for name in ("neg", "strat-ns")),
        record("strat-ns", [9, 5, 3], 200, loss="log", stratum_size=8),
    ]
    groups = comparison.group(runs)
    rows = [recall_rows(group, locations={}) for group in groups]
    (table,) = recall_tables(groups, rows)
    assert [column.heading for column in table.header[2:]] == ["SG", "Log"]
    assert texts_of(table) == {
        "IID": ["0.4000", "invalid"],
        "Negative": ["0.4000", "0.4000"],
        "Stratified": ["no run", "invalid"],
        "N.S.": ["no run", "no run"],
        "Strat. w. N.S.": ["no run", "0.4000"],
        "Strat. w. N.S. (s=8)": ["no run", "0.4000"],
    }
    assert [note for note in table.notes if note.startswith("invalid: ")]


def test_titles_name_b_s_k_and_seeds() -> None:
    """Each in the table's title, or beside the arm that differs from it."""
    runs = [
        record("iid", [9, 3], 1, seed=seed, batch_size=64, epochs=6, encoder=encoder)
        for seed in (0, 1, 5)
        for encoder in ("cnn", "lstm")
    ]
    runs += [record("strat", [9, 3], 1, batch_size=64, epochs=6, stratum_size=8)]
    groups = comparison.group(runs)
    rows = [speedup_rows(group, allow_mixed=False, locations={}) for group in groups]
    (speedup,), (parts,) = speedup_tables(groups, rows), parts_tables(groups, rows)
    settings = "b=64, k=10 (CNN), k=5 (LSTM), epochs=6, seeds 0, 1, 5"
    assert speedup.title == f"Speedup over IID, SG loss: {settings}"
    assert settings in parts.title
    assert "Stratified (s=8)" in cells_of(speedup)
    assert comparison.seeds_label([2, 0, 1]) == "seeds 0 to 2"


def test_tables_are_written_and_read_back(tmp_path: Path) -> None:
    (group,) = comparison.group([record("iid", [9, 5, 3], 200), record("ns", [9, 4, 2], 20)])
    rows = speedup_rows(group, allow_mixed=False, locations={})
    tables.write_rows(tmp_path / "speedup.parquet", rows, schemas.SPEEDUP)
    back = tables.read_rows(tmp_path / "speedup.parquet", schemas.SPEEDUP)
    assert {row["sampler"]: row["total_speedup"] for row in back}["ns"] == pytest.approx(
        10 * 200 / 150
    )
    tables.write_rows(tmp_path / "recall.parquet", recall_rows(group, locations={}), schemas.RECALL)
    assert len(tables.read_rows(tmp_path / "recall.parquet", schemas.RECALL)) == 5
