"""The tables as CSV: one row for each cell of the paper's tables, units in the names of the
columns.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from ncfbench.paper.printed import MEASURES
from ncfbench.report.verdicts import KEY, Verdict, key_of
from ncfbench.storage import schemas

_CELL = ("dataset", "encoder", "loss", "sampler", "variant", "settings", "data_fingerprint")
_LISTS = ("runs", "baseline_runs")


def columns() -> list[str]:
    """Of :func:`long_form`. Seconds, shares and ratios are plain numbers; a ratio above 1 is
    faster.
    """
    speedup = [
        name for name in schemas.SPEEDUP.names if name not in (*_CELL, "status", "seeds", "command")
    ]
    recall = [
        name
        for name in schemas.RECALL.names
        if name.startswith("test_recall") or name in ("reported_epoch", "reason")
    ]
    beside = [
        f"{measure}_{what}"
        for measure in MEASURES
        for what in ("printed", "verdict", "figures_alone", "verdict_reason")
    ]
    return [
        *_CELL,
        "speedup_status",
        "speedup_seeds",
        *speedup,
        "recall_status",
        "recall_seeds",
        *recall,
        *beside,
    ]


def long_form(
    speedup: Sequence[dict[str, Any]], recall: Sequence[dict[str, Any]], verdicts: Sequence[Verdict]
) -> str:
    """One line for each (data set, encoder, loss, sampler, variant, settings); what is unknown is
    empty.
    """
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for kind, rows in (("speedup", speedup), ("recall", recall)):
        for row in rows:
            own = {
                f"{kind}_{name}" if name in ("status", "seeds") else name: value
                for name, value in row.items()
            }
            if kind == "recall":
                own.pop("runs", None)
            merged.setdefault(tuple(row[name] for name in _CELL), {}).update(own)
    by_key = {key_of(verdict): verdict for verdict in verdicts}
    for row in merged.values():
        for measure in MEASURES:
            place = (*(row[name] for name in KEY), measure)
            if not row["variant"] and place in by_key:
                verdict = by_key[place]
                row[f"{measure}_printed"], row[f"{measure}_verdict"] = (
                    verdict.printed,
                    verdict.verdict,
                )
                row[f"{measure}_figures_alone"], row[f"{measure}_verdict_reason"] = (
                    verdict.figures_alone,
                    verdict.reason,
                )
        for name in _LISTS:
            row[name] = " ".join(row.get(name) or ())
    out = io.StringIO()
    writer = csv.DictWriter(out, columns(), extrasaction="ignore", restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(merged.values())
    return out.getvalue()
