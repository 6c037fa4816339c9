"""Frames of numbers as CSV: null is empty, and the values of a list stand side by side."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def render(frames: Mapping[str, Rows]) -> str:
    """Return a single frame as plain CSV; several are separated by an empty line, each under a line
    ``# NAME``.
    """
    if len(frames) == 1:
        return _text(*frames.values())
    return "\n".join(f"# {name}\n{_text(rows)}" for name, rows in frames.items())


def _text(rows: Rows) -> str:
    out = io.StringIO()
    names = [*dict.fromkeys(name for row in rows for name in row)]
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        lists = {name: " ".join(value) for name, value in row.items() if isinstance(value, list)}
        writer.writerow({**row, **lists})
    return out.getvalue()
