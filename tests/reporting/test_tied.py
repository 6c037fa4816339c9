"""Ties of the speedup and recall tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from folders import write_run

from ncfbench.paper.printed import RECALL
from ncfbench.reporting import comparison
from ncfbench.reporting.rows import recall_rows, speedup_rows
from ncfbench.reporting.views.results import speedup_tables
from ncfbench.runs import evaluations
from ncfbench.runs.folder import read_all
from ncfbench.runs.quality import Evaluation


def compared(folder: Path) -> comparison.Comparison:
    (found,) = comparison.group(read_all(folder)[0])
    return found


def tied(rows: list[dict[str, Any]], column: str) -> list[str]:
    return [row["sampler"] for row in rows if column in row.get("tied", ())]


def test_recalls_are_tied_by_paired_differences(tmp_path: Path) -> None:
    """Seeds differ by more than the arms do. Stratified is below N.S. by 0.01 in each seed; the
    other one is above it in half of them.
    """
    for seed, recall in enumerate((0.30, 0.42, 0.35, 0.47)):
        own = {
            "ns": recall,
            "strat": recall - 0.01 - 0.001 * seed,
            "strat-ns": recall - 0.001 + 0.02 * (-1) ** seed,
        }
        for sampler, value in own.items():
            write_run(tmp_path, sampler, [9, 5], 10, [0, value], seed=seed)
    rows = recall_rows(compared(tmp_path), locations={})
    assert sorted(tied(rows, RECALL)) == ["ns", "strat-ns"]


def test_one_seed_is_compared_over_users_and_items(tmp_path: Path) -> None:
    """400 users, 160 hits of N.S.; 20 of these are others with strata, and 120 are missed by IID.
    Without evaluations nothing is tied.
    """
    hits = np.arange(400) < 160
    others, few = np.arange(400) % 16 == 0, np.arange(400) < 40
    arms = {"ns": hits, "strat-ns": hits ^ others, "iid": hits & few}
    for is_kept in (False, True):
        for sampler, own in arms.items():
            recall = float(np.mean(own))
            folder = write_run(tmp_path / str(is_kept), sampler, [9, 5], 10, [0, recall])
            if is_kept:
                shares = own.astype(np.float32) / len(own)
                found = Evaluation({}, own.astype(np.float32), shares)
                evaluations.write(folder, {(100, "test"): found})
        rows = recall_rows(compared(tmp_path / str(is_kept)), locations={})
        best = max(arms, key=lambda name: float(np.mean(arms[name])))
        expected = {"ns", "strat-ns"} if is_kept else {best}
        assert set(tied(rows, RECALL)) == expected


def test_speedups_with_one_seed_are_tied_when_near(tmp_path: Path) -> None:
    """Totals of 10, 9 and 5 times; and the bold cells of the table."""
    write_run(tmp_path, "iid", [9, 5, 3], 100)
    for sampler, ms in (("ns", 10), ("strat-ns", 100 / 9), ("neg", 20)):
        write_run(tmp_path, sampler, [9, 5, 3], ms)
    group = compared(tmp_path)
    rows = speedup_rows(group, allow_mixed=False, locations={})
    assert tied(rows, "total_speedup") == ["ns", "strat-ns"]
    (table,) = speedup_tables([group], [rows])
    totals = {row[1].text: row[4].style for row in table.rows}
    best = {name for name, style in totals.items() if style == "best"}
    assert best == {"N.S.", "Strat. w. N.S."}
