"""Verification of tables of any runs: nothing right is called wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import change, write_run
from invoked import invoke

from ncfbench.reporting.verify import verification
from ncfbench.reporting.verify.recomputed import figures_of
from ncfbench.runs import evaluations
from ncfbench.runs import folder as runs
from ncfbench.runs.quality import Evaluation
from ncfbench.runs.reported import choose_epoch
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


@pytest.mark.parametrize("seed", range(12))
def test_the_reported_epoch_comes_out_again(tmp_path: Path, seed: int) -> None:
    """Runs with ties, few or many users, and any patience."""
    rng = np.random.default_rng(seed)
    users, patience = int(rng.choice([1, 40, 2000])), int(rng.integers(1, 5))
    run = write_run(tmp_path, "iid", range(9, 1, -1), 200, [0.1] * 8, patience=patience)
    curve = tables.read_rows(run / "curve.parquet", schemas.CURVE)
    found = {}
    for row in curve[1:]:
        values = np.round(rng.choice([0.2, 0.3, 0.4]) + rng.normal(0, 0.1, users), 2)
        row["validation_recall_at_50"] = 0.1 * round(10 * float(values.mean()))
        found[row["iteration"], "validation"] = Evaluation(
            {}, values.astype(np.float32), (values / users).astype(np.float32)
        )
    evaluations.write(run, found)
    tables.write_rows(run / "curve.parquet", curve, schemas.CURVE)
    validation = {iteration: one for (iteration, _), one in found.items()}
    chosen = choose_epoch(curve, patience, validation)
    assert chosen.row is not None
    change(
        run / "summary.parquet",
        schemas.SUMMARY,
        lambda rows: rows[0].update(reported_by=chosen.by, reported_epoch=chosen.row["epoch"]),
    )
    assert figures_of(runs.read(run)).reported["reported_epoch"] == chosen.row["epoch"]


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
