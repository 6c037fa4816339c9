"""The board as a table, and for JSON."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from ncfbench.reporting.board import TARGET, Board, Times
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.table import Cell, Col, Table, under

TIES_NOTE = (
    "Bold: the soonest, and what is statistically tied with it. -: this floor was not fitted."
)
ONE_SEED_NOTE = "Some have one seed: the spread of others was assumed for what is tied."


def board_tables(board: Board | None) -> list[Table]:
    """Return the table of a board, the best contestant first; none without a board."""
    if board is None:
        return []
    cols = [
        Col("contestant", 0, wraps=True),
        *under(
            "s to the target",
            *(Col(name, partial(_time, at)) for at, name in enumerate(board.names)),
        ),
    ]
    notes = [
        f"The target of each data set is {TARGET:g} of the best {board.metric} of {board.split}"
        " links that one of these contestants reached there. Seconds count features, and for floors"
        " the choice of their penalty.",
        TIES_NOTE,
        *([ONE_SEED_NOTE] if board.seeds == 1 else []),
    ]
    for name, values in board.differences.items():
        own = zip(board.names, values, strict=True)
        notes.append(f"{name}: {', '.join(f'{value} on {data}' for data, value in own)}.")
    if board.left_out:
        notes.append(
            "Left out, since some data set has no run of them in this environment:"
            f" {', '.join(board.left_out)}."
        )
    title = f"The board: soonest to {TARGET:g} of the best {board.metric}"
    return [Table.of(title, cols, board.standings.items(), notes, name="board")]


def as_row(board: Board | None) -> dict[str, Any] | None:
    """Return the board as a plain object, for JSON; times in seconds, None for never."""
    if board is None:
        return None
    rows = []
    for name, own in board.standings.items():
        on = [
            {
                "dataset": board.names[at],
                "data_fingerprint": board.fingerprints[at],
                "seconds": None if math.isinf(standing.seconds) else standing.seconds,
                "is_tied": standing.is_tied,
                "runs": board.runs[name][at] if name in board.runs else [],
            }
            for at, standing in enumerate(own)
            if standing is not None
        ]
        rows.append({"contestant": name, "on": on})
    names = ("metric", "split", "seeds", "differences", "left_out")
    known = {name: getattr(board, name) for name in names}
    return known | {"target": TARGET, "standings": rows}


def _time(at: int, row: tuple[str, Times]) -> Cell:
    standing = row[1][at]
    if standing is None:
        return Cell("-", "muted")
    if math.isinf(standing.seconds):
        return Cell("never", "muted")
    return Cell(three_digits(standing.seconds), "best" if standing.is_tied else "plain")
