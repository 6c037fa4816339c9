"""Who comes down to the baseline's smallest loss soonest, and against which baseline."""

import json

import pytest
from support.cli import check, invoke
from support.records import write_run

from ncfbench.reporting.results import collect


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
    write_run(tmp_path, "strat-ns", [9, 5, 3], 10)
    printed = " ".join(invoke("report", tmp_path).stdout.split())
    assert ("Speedup over iid" in printed) == (losses is not None), "a table without ratios"
    assert sentence in printed
    assert "times sooner" not in printed
    for words in (["--full", "--paper"], ["--json"], ["--verify"]):
        check(invoke("report", tmp_path, *words), 0)


def test_the_speedup_table_says_who_is_soonest(tmp_path):
    """Iterations of 40, 10, 11 and 5 ms: 200 of iid to 3, 100 of ns, 100 of neg, never strat."""
    for seed in range(2):
        write_run(tmp_path, "iid", [9, 5, 3], 40, seed=seed)
        write_run(tmp_path, "ns", [9, 3, 2], 10, seed=seed)
        write_run(tmp_path, "neg", [9, 3, 2], 16 + seed, seed=seed)
        write_run(tmp_path, "strat", [9, 5, 4], 5, seed=seed)
    (table,) = [
        each for each in collect(tmp_path, tmp_path).tables if each.title.startswith("Speedup over")
    ]
    assert table.lead == (
        "citeulike, CNN: ns comes down to the smallest loss of iid 8 times sooner (95 %: 8 to 8, 2"
        " seeds)."
    )
    write_run(tmp_path / "k", "iid", [9, 5, 3], 10)
    write_run(tmp_path / "k", "ns", [9, 5, 3], 40)
    (table,) = [
        each for each in collect(tmp_path / "k").tables if each.title.startswith("Speedup over")
    ]
    assert table.lead == "citeulike, CNN: none is sooner than iid."
    write_run(tmp_path / "k", "strat-ns", [9, 5, 3], 6)
    write_run(tmp_path / "k", "neg", [9, 5, 3], 5)
    write_run(tmp_path / "k", "iid", [9, 5, 2], 50, negatives=20)  # tied with no arm of k = 10
    (table,) = [
        each for each in collect(tmp_path / "k").tables if each.title.startswith("Speedup over")
    ]
    assert table.lead.endswith(" 2 times sooner (1 seed); tied with it: strat-ns.")


def test_another_baseline(tmp_path):
    """Where iid is too dear: ns comes to its smallest loss, 3, at iteration 300 after 9 s, strat-ns
    at iteration 200 after 2 s. What is kept beside the runs has the usual baseline.
    """
    write_run(tmp_path, "ns", [9, 6, 4, 3], 30)
    write_run(tmp_path, "strat-ns", [9, 6, 3, 2], 10)
    check(invoke("report", tmp_path), 0)
    kept = (tmp_path / "speedup.parquet").read_bytes()
    found = json.loads(invoke("report", tmp_path, "--baseline", "ns", "--json").stdout)
    rows = {row["sampler"]: row for row in found["speedup"] if row["runs"]}
    assert {row["baseline"] for row in rows.values()} == {"ns"}
    assert rows["ns"]["status"] == "baseline"
    parts = ("per_iteration_speedup", "iterations_speedup", "total_speedup")
    assert [rows["strat-ns"][part] for part in parts] == pytest.approx([3.0, 1.5, 4.5])
    assert (tmp_path / "speedup.parquet").read_bytes() == kept
    for more in (["--export", tmp_path / "out"], ["--paper"], ["--verify"]):
        check(invoke("report", tmp_path, "--baseline", "ns", *more), 2)
    refused = invoke("report", tmp_path, "--baseline", "iid")
    check(refused, 2, "No run has the sampler 'iid'")
