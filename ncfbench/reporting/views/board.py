"""The board as a table, and for JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from functools import partial
from typing import Any

from ncfbench.reporting.board import TARGET, Board, Times
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.table import Col, Table


def board_tables(board: Board | None) -> list[Table]:
    """Return the table of a board, the best contestant first; none without a board."""
    if board is None:
        return []
    times = (Col(name, partial(_time, at)) for at, name in enumerate(board.names))
    cols = [Col("contestant", 0, wraps=True), *times]
    notes = [
        f"Seconds to {TARGET:g} of the best {board.metric} of {board.split} links that one of these"
        " contestants reached on a data set. Seconds count features, and for floors the choice of"
        " their penalty. -: this floor was not fitted.",
    ]
    if board.left_out:
        notes.append(
            "Left out, since some data set has no run of them in this environment:"
            f" {', '.join(board.left_out)}."
        )
    title = f"The board: soonest to {TARGET:g} of the best {board.metric}"
    return [Table.of(title, cols, board.standings.items(), notes, name="board")]


def as_row(board: Board | None) -> dict[str, Any] | None:
    """Return the board as a plain object, for JSON; times in seconds, infinity for never; without
    those of floors that were not fitted.
    """
    if board is None:
        return None
    standings = {
        name: {data: at for data, at in zip(board.names, times, strict=True) if at is not None}
        for name, times in board.standings.items()
    }
    return {"target": TARGET, **asdict(board), "standings": standings}


def _time(at: int, row: tuple[str, Times]) -> str:
    seconds = row[1][at]
    if seconds is None:
        return "-"
    return "never" if math.isinf(seconds) else three_digits(seconds)
