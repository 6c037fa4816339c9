"""Tables of runs that are written as literals, without training or a clock."""

import dataclasses
import json

import numpy as np
import pytest
from support.cli import check, invoke
from support.records import change, record, rows_of, write_folder, write_run

from ncfbench.errors import UsageError
from ncfbench.paper.printed import RECALL
from ncfbench.reporting import frames
from ncfbench.reporting.quality import Quality
from ncfbench.reporting.rows import compare
from ncfbench.reporting.table import Col
from ncfbench.reporting.views import answers
from ncfbench.reporting.views.results import speedup_tables
from ncfbench.runs.folder import read_all, write_evaluations
from ncfbench.runs.labels import run_command, unusual_label
from ncfbench.runs.quality import Evaluation


def test_the_papers_three_columns_by_hand():
    runs = [record("iid", [9, 5, 3], 200), record("ns", [9, 4, 2], 20)]
    rows = rows_of([*runs, record("strat", [9, 8, 7], 10)])
    for sampler, expected in (
        ("iid", {"status": "baseline", "reference_loss": 3, "total_speedup": 1}),
        ("ns", {"status": "reached", "iterations_to_reference": 150, "seconds_to_reference": 3}),
        ("ns", {"per_iteration_speedup": 10, "step_per_iteration_speedup": 10}),
        ("ns", {"iterations_speedup": 200 / 150, "total_speedup": 10 * 200 / 150}),
        ("ns", {"interleaved": False}),
        ("strat", {"status": "not reached", "iterations_to_reference": None}),
        ("strat", {"per_iteration_speedup": 20, "total_speedup": None}),
    ):
        assert {name: rows[sampler].get(name) for name in expected} == pytest.approx(expected)


def test_pairwise_losses_have_their_baseline():
    both = ("neg", 100), ("ns", 10)
    rows = rows_of([record(sampler, [1, 0.5], ms, loss="log") for sampler, ms in both])
    assert set(rows) == {"neg", "ns"}
    assert rows["neg"]["status"] == "baseline"
    assert rows["ns"]["total_speedup"] == pytest.approx(10)


def test_a_column_of_the_answer_is_a_value_and_its_heading(tmp_path, monkeypatch):
    """What is added in these two places stands in every format, of arms, floors and blends."""
    values, columns = answers.values_of, answers.columns_of
    added = {
        "values_of": lambda answer, row: values(answer, row) | {"letters": 7000 + len(row.name)},
        "columns_of": lambda answer: [*columns(answer), Col("letters", "letters", ",")],
    }
    for name, function in added.items():
        monkeypatch.setattr(answers, name, function)
    write_folder(tmp_path)
    for kind in ("table", "markdown", "latex", "csv"):
        check(invoke("report", tmp_path, "--format", kind), 0, "letters", "7,0")
    check(invoke("report", tmp_path, "--format", "html"), 0)
    assert "7,0" in (tmp_path / "report.html").read_text("utf-8")
    found = json.loads(invoke("report", tmp_path, "--json").stdout)["answers"][0]["arms"]
    assert [arm["letters"] for arm in found] == [7000 + len(arm["name"]) for arm in found]


def test_seeds_are_paired():
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


def test_a_seed_without_baseline_names_it():
    row = rows_of([record("iid", [9, 3], 100, seed=0), record("ns", [9, 3], 50, seed=4)])["ns"]
    assert row["status"] == "no baseline of this seed"


def test_different_machines_are_not_divided():
    runs = [record("iid", [9, 3], 100), record("ns", [9, 3], 50, key="two")]
    refused = rows_of(runs)["ns"]
    assert refused["status"] == "different environment"
    assert refused.get("per_iteration_speedup") is None
    assert refused["same_environment"] is False


def test_other_settings_are_other_comparisons():
    runs = [
        record("iid", [9, 3], 1),
        record("ns", [9, 3], 1, fingerprint="e" * 64),
        record("ns", [9, 3], 1, epochs=2),
    ]
    assert len(frames.group(runs)) == 3


def test_s_and_k_are_rows_of_one_comparison():
    """neg with k = 20 has the baseline of the same k."""
    runs = [
        record("iid", [9, 3], 100),
        record("iid", [9, 2], 200, negatives=20),
        record("strat-ns", [9, 3], 10),
        record("strat-ns", [9, 3], 5, stratum_size=8),
        record("neg", [9, 3], 50, negatives=20),
    ]
    rows = rows_of(runs)
    for name, ratio in (("strat-ns s=8", 20), ("neg k=20", 4), ("strat-ns", 10)):
        assert rows[name]["per_iteration_speedup"] == pytest.approx(ratio)


def test_another_computation_is_another_comparison():
    """Each has its own baseline, its name above its table, and its name in its rows."""
    both = [
        record(sampler, [9, 3], ms, **more)
        for more, slower in (({}, 1), ({"convolution": "plain"}, 10))
        for sampler, ms in (("iid", 100.0 * slower), ("strat-ns", 5.0 * slower**2))
    ]
    groups = {unusual_label(group[0]): group for group in frames.group(both)}
    assert set(groups) == {"", "convolution=plain"}
    for title, speedup in (("", 20), ("convolution=plain", 2)):
        (found,) = compare([groups[title]])
        rows = {row["sampler"]: row for row in found.speedups}
        assert rows["strat-ns"]["per_iteration_speedup"] == pytest.approx(speedup)
        assert rows["strat-ns"]["settings"] == title


def test_labels_and_commands_leave_out_what_a_run_does_not_read():
    found = record("ns", [9, 3], 10, encoder="mf", word_dropout=0.2, dimension=100)
    assert unusual_label(found) == "dimension=100"
    assert "word_dropout" not in run_command(found.config, {})


def test_the_newest_finished_run_counts():
    runs = [
        record("iid", [9, 3], 100),
        record("ns", [9, 3], 10, time="2026-02-01"),
        record("ns", [9, 3], 50, time="2026-01-01"),
        dataclasses.replace(record("strat", [9, 3], 10, status="interrupted")),
    ]
    rows = rows_of(runs)
    assert rows["ns"]["per_iteration_speedup"] == pytest.approx(10)
    assert set(rows) == {"iid", "ns"}


def test_recall_rows():
    two = [record("iid", [9], 1, recall, seed=seed) for seed, recall in enumerate((0.3, 0.5))]
    (found,) = compare(frames.group(two))
    rows = {row["sampler"]: row for row in found.recalls}
    assert rows["iid"]["test_recall_at_50"] == pytest.approx(0.4)
    assert rows["iid"]["seeds"] == 2
    reason = "held-out items have none"
    (mf,) = compare(frames.group([record("iid", [9], 1, None, encoder="mf", reason=reason)]))
    row = mf.recalls[0]
    assert [row[name] for name in ("status", "test_recall_at_50", "reason")] == [
        *("no recall", None, reason)
    ]


def test_a_run_without_times_is_no_crash():
    bad = record("iid", [9, 3], 1)
    bad = dataclasses.replace(bad, summary={**bad.summary, "full_iteration_seconds": None})
    rows = rows_of([bad, record("ns", [9, 3], 1)])
    assert rows["iid"]["status"] == "no times"
    assert (rows["ns"]["status"], rows["ns"]["reason"]) == ("no baseline", "iid has no times.")


TIMES = "full_iteration_seconds", "step_iteration_seconds", "item_slots"


@pytest.mark.parametrize("is_timed", [True, False])
@pytest.mark.parametrize(("seeds", "reason"), [(1, "iid diverged."), (2, "iid diverged with 1 of")])
def test_a_status_is_of_the_arm_and_not_of_its_baseline(tmp_path, seeds, reason, is_timed):
    """ns finished, though iid did not: its iterations are still known to be shorter."""
    for seed in range(seeds):
        status = "finished" if seed else "diverged"
        base = write_run(tmp_path, "iid", [9, 5], 40, seed=seed, status=status)
        if not (seed or is_timed):
            change(base, "timing", lambda rows: rows.clear())
            change(base, "summary", lambda rows: rows[0].update(dict.fromkeys(TIMES)))
        write_run(tmp_path, "ns", [9, 5, 3], 10, seed=seed)
    write_run(tmp_path, "strat", [9, 5], 10, status="diverged")
    done = invoke("report", tmp_path, "--json")
    rows = {row["sampler"]: row for row in json.loads(done.stdout)["speedup"]}
    statuses = {name: rows[name]["status"] for name in ("iid", "ns", "strat")}
    assert statuses == {"iid": "diverged", "ns": "no baseline", "strat": "diverged"}
    assert rows["ns"]["reason"].startswith(reason)
    assert rows["ns"]["tied"] == []
    ratio = rows["ns"].get("per_iteration_speedup")
    assert ratio == (pytest.approx(4) if is_timed else None)
    check(invoke("report", tmp_path), 0, f"No ratio, CNN: {reason}")
    check(invoke("report", tmp_path, "--verify"), 0, "0 do not match")


@pytest.mark.parametrize("order", [(16, 4), (4, 16)])
def test_a_chosen_baseline_has_the_papers_settings(order):
    """Whichever run is older; without such an arm one must be chosen."""
    times = {16: 40.0, 4: 20.0, 8: 30.0}
    runs = [
        record("strat-ns", [9, 5, 3], times[s], stratum_size=s, time=f"2026-01-0{day}")
        for day, s in enumerate(order, 1)
    ]
    runs.append(record("ns", [9, 5, 3], 10))
    grouped = frames.group(runs, "strat-ns")
    (found,) = compare(grouped)
    rows = {f"{row['sampler']} {row['variant']}".strip(): row for row in found.speedups}
    assert rows["ns"]["per_iteration_speedup"] == pytest.approx(2)
    assert rows["strat-ns s=16"]["per_iteration_speedup"] == pytest.approx(0.5)
    others = [record("strat-ns", [9, 5, 3], times[s], stratum_size=s) for s in (16, 8)]
    with pytest.raises(UsageError, match=r"several arms: strat-ns .*, strat-ns "):
        frames.group([*others, runs[-1]], "strat-ns")
    (alone,) = compare(frames.group([others[0], runs[-1]], "strat-ns"))
    assert {row["status"] for row in alone.speedups if row["runs"]} == {"baseline", "reached"}


def test_recall_of_new_items_is_the_mean_over_seeds():
    """Recalls of 0.1 and 0.3 with an error of 0.03 each: sqrt((2 * 0.0009 + 0.02) / 2)."""
    runs = []
    for seed, recall in enumerate((0.1, 0.3)):
        run = record("iid", [9, 5, 3], 10, seed=seed)
        own = {f"{RECALL}_new_items": recall, f"{RECALL}_new_items_error": 0.03}
        runs.append(dataclasses.replace(run, summary={**run.summary, **own}))
    (found,) = compare(frames.group(runs))
    row = next(row for row in found.recalls if row["runs"])
    assert row[f"{RECALL}_new_items"] == pytest.approx(0.2)
    assert row[f"{RECALL}_new_items_error"] == pytest.approx(np.sqrt(0.0109))
    assert row[f"{RECALL}_known_items"] is None


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
    (found,) = compare(frames.group(runs))
    assert tied(found.recalls, RECALL) == {"ns", "strat-ns"}


@pytest.mark.parametrize("is_kept", [False, True])
def test_one_seed_is_compared_over_users_and_items(tmp_path, is_kept):
    """400 users, 160 hits of ns; 20 of these are others with strata, and 120 are missed by iid.
    Without evaluations nothing is tied.
    """
    users = np.arange(400)
    hits = users < 160
    arms = {"ns": hits, "strat-ns": hits ^ (users % 16 == 0), "iid": hits & (users < 40)}
    for sampler, found in arms.items():
        folder = write_run(tmp_path, sampler, [9, 5], 10, [0, float(np.mean(found))])
        if is_kept:
            values = found.astype(np.float32)
            kept = Evaluation({}, values, values / len(values))
            write_evaluations(folder, {(100, "test"): kept})
    (compared,) = compare(frames.group(read_all(tmp_path)[0]))
    best = max(arms, key=lambda sampler: float(np.mean(arms[sampler])))
    expected = {"ns", "strat-ns"} if is_kept else {best}
    assert tied(compared.recalls, RECALL) == expected


def test_speedups_with_one_seed_are_tied_when_near():
    """Totals of 10, 9 and 5 times; and the bold cells of the table."""
    lengths = {"iid": 100, "ns": 10, "strat-ns": 100 / 9, "neg": 20}
    found = compare(frames.group([record(name, [9, 5, 3], ms) for name, ms in lengths.items()]))
    assert tied(found[0].speedups, "total_speedup") == {"ns", "strat-ns"}
    (table,) = speedup_tables(found)
    best = {row[1].text for row in table.rows if row[4].style == "best"}
    assert best == {"ns", "strat-ns"}


def test_details_are_folded_until_they_are_wanted(tmp_path):
    for s in (1, 2, 4):
        write_run(tmp_path, "strat-ns", [9, 4, 2], 20 * s * s, [0, 0.2, 0.3], stratum_size=s)
    write_run(tmp_path, "iid", [9, 5, 3], 300, [0, 0.2, 0.3])
    brief, full = (invoke("report", tmp_path, *more).stdout for more in ([], ["--full", "--paper"]))
    titles = ["All arms", "Quality on"]
    assert brief.startswith("What ranks best soonest")
    assert not any(title in brief for title in titles)
    assert all(title in full for title in titles)
    assert "beside the paper's" in full
    assert "with details (--full)" in brief
    named = invoke("report", tmp_path, "--table", "arms").stdout
    assert named.startswith("All arms")


def test_the_errors_of_new_and_known_items_are_named():
    values = {
        f"recall_at_50_{part}{end}": value
        for part, value in (("new_items", 0.1), ("known_items", 0.2))
        for end, value in (("", value), ("_error", value / 10))
    }
    text = "new items 0.100 ± 0.010, known items 0.200 ± 0.020"
    assert Quality(values).kinds == f"{text}, with errors over users alone"
