"""Tables for the terminal (Rich)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # every message of every command comes through this module
    from ncfbench.report.comparison import Comparison
    from ncfbench.report.sheets import Sheet

Row = Mapping[str, Any]


def make_console(*, stderr: bool = False) -> Console:
    """A console that does not fold tables where no terminal limits them; ``NO_COLOR`` is honoured.

    User's names and paths are text, not Rich's markup nor its codes for emoji.
    """
    plain = partial(Console, stderr=stderr, markup=False, highlight=False, emoji=False)
    console = plain()
    return console if console.is_terminal else plain(width=400)


def statistics_table(
    name: str, found: Mapping[str, float], beside: Mapping[str, float], heading: str = "paper"
) -> Table:
    """A data set's counts, next to the paper's, or others under their own heading, where there are
    any.
    """
    table = Table(title=Text(f"Data set {name}"), title_justify="left")
    table.add_column("")
    table.add_column("prepared", justify="right")
    if beside:
        table.add_column(heading, justify="right")
    for key, value in found.items():
        cells = [key.replace("_", " ").replace("words ", "words per item, "), f"{value:,}"]
        table.add_row(*cells, *([f"{beside[key]:,}" if key in beside else ""] if beside else []))
    return table


def environment_table(environment: Row) -> Table:
    """An environment, a line for each thing that times depend on."""
    table = Table(title="Environment", title_justify="left", show_header=False)
    table.add_column("")
    table.add_column("", overflow="fold")
    memory = [environment[name] for name in ("memory_bytes", "memory_available_bytes")]
    total, free = ("unknown" if value is None else f"{value / 2**30:.1f} GiB" for value in memory)
    quota = "" if environment["core_quota"] is None else f", time of {environment['core_quota']:g}"
    commit = environment["commit"]
    state = (
        "not a checkout"
        if commit is None
        else commit["id"][:12] + (", changed since" if commit["dirty"] else "")
    )
    devices = Counter(
        f"{device['kind']} ({device['platform']})" for device in environment["devices"]
    )
    load = environment["load_average"]
    for name, value in {
        "processor": environment["cpu"],
        "cores": f"{environment['cores']} of {environment['machine_cores']}{quota}",
        "memory": f"{total}, {free} free",
        "accelerators": ", ".join(environment["accelerators"]) or "none",
        "JAX devices": ", ".join(f"{count} x {name}" for name, count in devices.items()),
        "precision": environment["precision"],
        "system": environment["system"],
        "python": environment["python"],
        **environment["packages"],
        "variables": (
            ", ".join(f"{name}={value}" for name, value in environment["variables"].items())
            or "none that matter"
        ),
        "ncfbench": f"{environment['ncfbench']}, commit: {state}",
        "load average": "unknown" if load is None else ", ".join(f"{value:.2f}" for value in load),
        "key": environment["key"],
    }.items():
        table.add_row(name, Text(str(value)))
    return table


def run_table(summary: Row) -> Table:
    """The short table at the end of a run."""
    table = Table(
        title=Text(f"Run {summary['run']}", no_wrap=True), title_justify="left", show_header=False
    )
    table.add_column("")
    table.add_column("", justify="right")
    rows = [
        ("iterations", f"{summary['iterations']:,} ({summary['epochs']:g} epochs)"),
        ("smallest probe loss", _number(summary["smallest_probe_loss"], 4)),
        ("full iteration", _milliseconds(summary["full_iteration_seconds"])),
        ("step iteration", _milliseconds(summary["step_iteration_seconds"])),
        ("distinct items in a batch", _number(summary["item_slots"], 1)),
        ("training time", f"{summary['train_seconds']:.1f} s"),
    ]
    if summary["recall_reason"]:
        rows.append(("test recall@50", f"none: {summary['recall_reason']}"))
    elif summary["test_recall_at_50"] is not None:
        epoch = f" (epoch {summary['reported_epoch']:g})"
        rows.append(("test recall@50", _number(summary["test_recall_at_50"], 4) + epoch))
    for row in rows:
        table.add_row(*row)
    return table


def ledger_table(rows: Sequence[Row]) -> RenderableType:
    """Where a run's time went: exclusive seconds of the main thread, and the sampling thread beside
    them.
    """
    seconds: dict[tuple[str, str], float] = {}
    for row in rows:
        key = row["thread"], row["line"]
        seconds[key] = seconds.get(key, 0.0) + row["seconds"]
    main = {line: value for (thread, line), value in seconds.items() if thread == "main"}
    wall = sum(main.values())
    table = Table(title="Where the time went", title_justify="left")
    table.add_column("main thread")
    table.add_column("seconds", justify="right")
    table.add_column("share %", justify="right")
    for line, value in sorted(main.items(), key=lambda item: -item[1]):
        if value > 0:
            table.add_row(line, f"{value:.2f}", f"{100 * value / wall:.1f}")
    table.add_section()
    table.add_row("all, with compilation (cold)", f"{wall:.2f}", "100.0")
    warm = wall - main.get("compile", 0.0)
    table.add_row("without compilation (warm)", f"{warm:.2f}", f"{100 * warm / wall:.1f}")
    table.add_section()
    for (thread, line), value in seconds.items():
        if thread == "sampler":
            table.add_row(
                f"{line}, in the sampling thread", f"{value:.2f}", f"{100 * value / wall:.1f}"
            )
    return table


def speedup_view(
    comparisons: Sequence[Comparison], rows: Sequence[Sequence[Row]]
) -> RenderableType:
    """The speedup tables, and what the ratios are made of."""
    from ncfbench.report import sheets

    return sheets_view(sheets.speedup_sheets(comparisons, rows))


def recall_view(comparisons: Sequence[Comparison], rows: Sequence[Sequence[Row]]) -> RenderableType:
    """The paper's recall table."""
    from ncfbench.report import sheets

    return sheets_view(sheets.recall_sheets(comparisons, rows))


def sheets_view(shown: Sequence[Sheet]) -> RenderableType:
    """Sheets, one below the other, each with its notes."""
    parts: list[RenderableType] = []
    for sheet in shown:
        table = Table(title=Text(sheet.title), title_justify="left")
        for heading in ("encoder", "sampler"):
            table.add_column(heading, no_wrap=True)
        for group in sheet.groups:
            for place, heading in enumerate(sheet.columns):
                title = f"{group}\n{heading}" if place == 0 else f"\n{heading}"
                table.add_column(Text(title), justify="right", no_wrap=True)
        for place, line in enumerate(sheet.lines):
            if place and line.encoder:
                table.add_section()
            styles = ["bold" if cell.best else "dim" if cell.muted else "" for cell in line.cells]
            texts = [
                Text(cell.text, style=style) for cell, style in zip(line.cells, styles, strict=True)
            ]
            table.add_row(line.encoder, line.sampler, *texts)
        parts += [table, *(Text(note, style="dim") for note in sheet.notes), Text("")]
    return Group(*parts)


def missing_lines(rows: Sequence[Row]) -> list[str]:
    """The commands that would fill missing cells; never folded, so that they can be pasted."""
    commands = sorted({str(row["command"]) for row in rows if row.get("command")})
    return (
        ["To fill the missing cells:", *(f"  {command}" for command in commands)]
        if commands
        else []
    )


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:,.2f} ms"
