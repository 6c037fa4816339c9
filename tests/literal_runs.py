"""Runs as literals in memory, and the rows that a report makes of them."""

from pathlib import Path

from ncfbench.config import complete, digest
from ncfbench.reporting import frames
from ncfbench.reporting.rows import compare
from ncfbench.runs.folder import RunRecord
from ncfbench.storage import schemas


def record(sampler, losses, ms, recall=0.4, **more):
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
        "smallest_probe_loss": min(losses),
        **{f"test_recall_at_{m}": recall for m in schemas.CUTOFFS},
    }
    return RunRecord(
        folder=Path(f"runs/{sampler}-{config.seed}-{digest(config)}"),
        config=config,
        timing=[],
        ledger=[],
        curve=curve,
        summary=summary,
        data_fingerprint=extra.get("fingerprint", "f" * 64),
        environment={"key": extra.get("key", "one"), "time": extra.get("time", "2026-01-01")},
    )


def rows_of(records):
    (found,) = compare(frames.group(records))
    return {f"{row['sampler']} {row['variant']}".strip(): row for row in found.speedups}
