"""Verification of tables of any runs: nothing right is called wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from folders import change, write_run
from invoked import invoke

from ncfbench.reporting.verify import verification
from ncfbench.storage import schemas, tables


@pytest.mark.parametrize("seeds", [1, 2, 6, 7])
def test_any_number_of_seeds_verifies(tmp_path: Path, seeds: int) -> None:
    for seed in range(seeds):
        write_run(
            tmp_path,
            "iid",
            [9, 5, 3],
            200 + 7 * (seed * 5 % 4),
            [0.1, 0.2, 0.3 + 0.01 * seed],
            seed=seed,
        )
        write_run(
            tmp_path,
            "ns",
            [9, 4, 2],
            20 + (seed * 3 % 5),
            [0.1, 0.2, 0.4 - 0.01 * (seed % 3)],
            seed=seed,
        )
    assert invoke("report", tmp_path).exit_code == 0
    assert verification.verify(tmp_path).mismatches == []


def test_validation_recall_chooses_the_epoch(tmp_path: Path) -> None:
    run = write_run(tmp_path, "iid", [9, 5, 4, 3], 200, [0.1, 0.2, 0.3, 0.4], patience=1)
    curve = tables.read_rows(run / "curve.parquet", schemas.CURVE)
    for row, value in zip(curve, (0.1, 0.5, 0.4, 0.9), strict=True):
        row["validation_recall_at_50"] = value
    tables.write_rows(run / "curve.parquet", curve, schemas.CURVE)
    (summary,) = tables.read_rows(run / "summary.parquet", schemas.SUMMARY)
    summary |= {"reported_epoch": 1.0} | {
        f"test_recall_at_{m}": curve[1][f"test_recall_at_{m}"] for m in schemas.CUTOFFS
    }
    tables.write_rows(run / "summary.parquet", [summary], schemas.SUMMARY)
    assert invoke("report", tmp_path).exit_code == 0
    assert verification.verify(tmp_path).mismatches == []


def test_every_kind_of_row_verifies(tmp_path: Path) -> None:
    """Rows of one comparison, of several comparisons, and rows without a baseline."""

    def two(*words: Any, **more: Any) -> None:
        for seed in range(2):
            write_run(tmp_path, *words, seed=seed, **more)

    two("iid", [9, 5, 3], 200)
    two("iid", [9, 5, 2], 300, negatives=20)
    two("neg", [9, 5, 2], 100, negatives=20)
    two("neg", [9, 5, 2], 100, negatives=5)
    two("strat-ns", [9, 4, 2], 10, stratum_size=8)
    two("strat-ns", [9, 4, 2], 10, strata="user")
    two("mixed-ns", [9, 4, 2], 10, uniform_items=64)
    write_run(tmp_path, "ns", [9, 4, 2], 30, seed=7)
    write_run(tmp_path, "neg", [9, 4, 2], 30, loss="log", encoder="lstm", negatives=3)
    write_run(tmp_path, "ns", [9, 4, 2], 30, loss="log", encoder="lstm")
    write_run(tmp_path, "neg", [9, 4, 2], 30, loss="log", negatives=3)
    write_run(tmp_path, "neg", [9, 4, 2], 30, loss="log", negatives=4)
    write_run(tmp_path, "ns", [9, 4, 2], 30, loss="log")
    write_run(tmp_path, "ns", [9, 4, 2], 30, epochs=7, noise="0.75", mask=False)
    write_run(tmp_path, "ns", [9, 4, 2], 30, fingerprint="e" * 64)
    for sampler, rate in (("iid", 0.02), ("ns", 0.03)):
        write_run(tmp_path, sampler, [9, 4, 2], 30, tuned="learning_rate:4x2", learning_rate=rate)
    for place, status in enumerate(("finished", "diverged")):
        write_run(tmp_path, "iid", [9, 4, 2], 30, epochs=8 + place, status=status)
        untimed = write_run(tmp_path, "ns", [9, 4, 2], 30, epochs=8 + place, status=status)
        change(untimed / "timing.parquet", schemas.TIMING, lambda rows: rows.clear())
        nothing = dict.fromkeys(("full_iteration_seconds", "step_iteration_seconds", "item_slots"))
        change(
            untimed / "summary.parquet",
            schemas.SUMMARY,
            lambda rows, gone=nothing: rows[0].update(gone),
        )
    assert invoke("report", tmp_path).exit_code == 0
    assert verification.verify(tmp_path).mismatches == []
    rows = tables.read_rows(tmp_path / "speedup.parquet", schemas.SPEEDUP)
    assert {row["status"] for row in rows} >= {
        "no times",
        "diverged",
        "baseline",
        "reached",
        "missing",
        "no baseline",
        "no baseline of this seed",
    }
    assert (
        sum(
            row["settings"] == "tuned=learning_rate:4x2" and row["status"] != "missing"
            for row in rows
        )
        == 2
    )
