"""What devices send each other in an iteration, as a profile found it, on the terminal (Rich)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ncfbench.registry import find_sampler


def traffic_view(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Bytes by the way of sharing, beside measured seconds; rows of
    :data:`ncfbench.storage.schemas.COSTMODEL`.
    """
    first = rows[0]
    title = (
        f"What each of {first['devices']} devices sends in an iteration, and how long that takes"
        f" ({first['share']} sharing)"
    )
    table = Table(title=Text(title), title_justify="left")
    table.add_column("sampler")
    for heading in (
        "item slots",
        "gradients kB",
        "global kB",
        "local kB",
        "by texts kB",
        "collectives ms",
        "step ms",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        shares = find_sampler(row["sampler"]).shares_items
        sent = {
            way: f"{row[f'{way}_sent_bytes'] / 1e3:,.1f}"
            for way in ("gradient", "global", "local", "texts")
        }
        seconds = (
            f"{1e3 * row[f'measured_{name}_seconds']:.2f}"
            for name in ("collectives", "step_iteration")
        )
        local = sent["local"] if shares else "-"
        title = find_sampler(row["sampler"]).title_with(row["strata"])
        table.add_row(
            title,
            f"{row['item_slots']:,}",
            sent["gradient"],
            sent["global"],
            local,
            sent["texts"],
            *seconds,
        )
    notes = [
        "By ring algorithms, gradients included in each way. Global: vectors of all item slots are"
        " gathered, and their gradients summed and scattered. By texts: every device would get all"
        " texts, and make all vectors itself."
    ]
    if first["simulated"]:
        notes.append(
            "SIMULATED devices on the cores of one CPU: the bytes are those of real ones, the"
            " seconds are not, and no speed follows from them."
        )
    return Group(table, *(Text(note, style="dim") for note in notes), Text(""))
