"""Tables for the terminal (Rich)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ncfbench.registry import ENCODERS, LOSSES, SAMPLERS, find_encoder, find_loss, find_sampler
from ncfbench.report.comparison import Comparison

Row = Mapping[str, Any]
Member = tuple[Comparison, Sequence[Row]]
Cell = Callable[[Row, bool], Text]

STATUS_MARKS = {
    "missing": "-",
    "not reached": "not reached",
    "no baseline": "no baseline",
    "no baseline of this seed": "no baseline",
    "no times": "no times",
    "different environment": "other machine",
}


def make_console(*, stderr: bool = False) -> Console:
    """A console that does not fold tables where no terminal limits them; ``NO_COLOR`` is honoured.

    User's names and paths are text, not Rich's markup.
    """
    console = Console(stderr=stderr, markup=False, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, markup=False, highlight=False, width=400)


def statistics_table(name: str, found: Mapping[str, float], paper: Mapping[str, float]) -> Table:
    """A data set's counts, next to the paper's where it has them."""
    table = Table(title=Text(f"Data set {name}"), title_justify="left")
    table.add_column("")
    table.add_column("prepared", justify="right")
    if paper:
        table.add_column("paper", justify="right")
    for key, value in found.items():
        cells = [key.replace("_", " ").replace("words ", "words per item, "), f"{value:,}"]
        table.add_row(*cells, *([f"{paper[key]:,}" if key in paper else ""] if paper else []))
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
    state = "not a checkout" if commit is None else commit["id"][:12] + (", changed since" if commit["dirty"] else "")
    devices = Counter(f"{device['kind']} ({device['platform']})" for device in environment["devices"])
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
        "variables": ", ".join(f"{name}={value}" for name, value in environment["variables"].items()) or "none that matter",
        "ncfbench": f"{environment['ncfbench']}, commit: {state}",
        "load average": "unknown" if load is None else ", ".join(f"{value:.2f}" for value in load),
        "key": environment["key"],
    }.items():
        table.add_row(name, Text(str(value)))
    return table


def run_table(summary: Row) -> Table:
    """The short table at the end of a run."""
    table = Table(title=Text(f"Run {summary['run']}", no_wrap=True), title_justify="left", show_header=False)
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
    """Where a run's time went: exclusive seconds of the main thread, and the sampling thread beside them."""
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
            table.add_row(f"{line}, in the sampling thread", f"{value:.2f}", f"{100 * value / wall:.1f}")
    return table


def speedup_view(comparisons: Sequence[Comparison], rows: Sequence[Sequence[Row]]) -> RenderableType:
    """The speedup tables: one for each loss and choice of settings, encoder x sampler by data set."""
    parts: list[RenderableType] = []
    for (loss, settings), members in _by_table(comparisons, rows).items():
        baseline = find_sampler(members[0][0].baseline_sampler).title
        table = Table(title=Text(f"Speedup over {baseline}, {find_loss(loss).title} loss" + settings), title_justify="left")
        _fill(
            table,
            members,
            {
                "per it.": (loss, partial(_speedup, "per_iteration_speedup")),
                "# of it.": (loss, partial(_speedup, "iterations_speedup")),
                "total": (loss, partial(_speedup, "total_speedup")),
            },
        )
        details = []
        for data in dict.fromkeys((c.config.dataset, c.data_fingerprint) for c, _ in members):
            detail = Table(title="What the ratios are made of (full account; step beside it)", title_justify="left")
            own = [(c, member) for c, member in members if (c.config.dataset, c.data_fingerprint) == data]
            _fill(
                detail,
                own,
                {
                    "items": (loss, _detail("item_slots", 0)),
                    "full ms": (loss, _detail("full_iteration_seconds", 2, 1e3)),
                    "step ms": (loss, _detail("step_iteration_seconds", 2, 1e3)),
                    "step x": (loss, _detail("step_per_iteration_speedup", 2)),
                    "it. to ref.": (loss, _detail("iterations_to_reference", 0)),
                    "s to ref.": (loss, _detail("seconds_to_reference", 1)),
                },
            )
            details.append(detail)
        references = sorted(
            {
                f"{row['dataset']} {row['encoder']}: {row['reference_loss']:.4f}"
                for _, member in members
                for row in member
                if row["status"] == "baseline"
            }
        )
        note = f"Reference loss (smallest probe of the baseline): {'; '.join(references) or 'none: no baseline has run'}."
        mixed = any(row.get("same_environment") is False for _, member in members for row in member)
        turns = _turns_note([row for _, member in members for row in member])
        notes = [note, turns] + (["Some times are of different machines."] if mixed else [])
        parts += [table, *details, *(Text(text, style="dim") for text in notes), Text("")]
    return Group(*parts)


def _turns_note(rows: Sequence[Row]) -> str:
    """Whether the times that were divided are of runs that took turns."""
    turns = [row["interleaved"] for row in rows if row.get("per_iteration_speedup") is not None]
    if turns and all(turns):
        return "Times are of interleaved runs."
    return f"{'Some times' if any(turns) else 'Times'} are of separate runs, not interleaved."


def recall_view(comparisons: Sequence[Comparison], rows: Sequence[Sequence[Row]]) -> RenderableType:
    """The paper's recall table: encoder x sampler by data set and loss; one for each choice of other settings."""
    parts: list[RenderableType] = []
    by_settings: dict[str, list[Member]] = {}
    for (_, settings), members in _by_table(comparisons, rows).items():
        by_settings.setdefault(settings, []).extend(members)
    for settings, members in by_settings.items():
        table = Table(title=Text("Recall@50 on cold test items" + settings), title_justify="left")
        present = {comparison.config.loss for comparison, _ in members}
        losses = sorted(present, key=lambda name: (list(LOSSES).index(name) if name in LOSSES else len(LOSSES), name))
        _fill(table, members, {find_loss(name).title: (name, partial(_recall, "test_recall_at_50")) for name in losses})
        reasons = sorted({str(row["reason"]) for _, member in members for row in member if row.get("reason")})
        parts += [table, *(Text(f"No recall: {reason}.", style="dim") for reason in reasons), Text("")]
    return Group(*parts)


def missing_lines(rows: Sequence[Row]) -> list[str]:
    """The commands that would fill missing cells; never folded, so that they can be pasted."""
    commands = sorted({str(row["command"]) for row in rows if row.get("command")})
    return ["To fill the missing cells:", *(f"  {command}" for command in commands)] if commands else []


def _by_table(
    comparisons: Sequence[Comparison], rows: Sequence[Sequence[Row]]
) -> dict[tuple[str, str], list[tuple[Comparison, Sequence[Row]]]]:
    """Comparisons that share a table: of one loss and the same unusual settings."""
    tables: dict[tuple[str, str], list[tuple[Comparison, Sequence[Row]]]] = {}
    for comparison, member in zip(comparisons, rows, strict=True):
        title = comparison.title()
        key = (comparison.config.loss, f" ({title})" if title else "")
        tables.setdefault(key, []).append((comparison, member))
    return tables


def _fill(table: Table, members: Sequence[Member], columns: Mapping[str, tuple[str, Cell]]) -> None:
    """Rows: encoder x sampler x variant. Columns: for each data set the given headings, each with its loss and its cell."""
    data = list(dict.fromkeys((c.config.dataset, c.data_fingerprint) for c, _ in members))
    names = [name for name, _ in data]
    for heading in ("encoder", "sampler"):
        table.add_column(heading, no_wrap=True)
    for name, fingerprint in data:
        shown = name if names.count(name) == 1 else f"{name} {fingerprint[:6]}"
        for place, heading in enumerate(columns):
            table.add_column(f"{shown}\n{heading}" if place == 0 else f"\n{heading}", justify="right", no_wrap=True)
    cells: dict[tuple[str, str, str], dict[tuple[str, str, str], Row]] = {}
    for comparison, member in members:
        for row in member:
            place_of = (comparison.config.dataset, comparison.data_fingerprint, comparison.config.loss)
            cells.setdefault((row["encoder"], row["sampler"], row["variant"]), {})[place_of] = row
    order = {name: place for place, name in enumerate([*ENCODERS, *SAMPLERS])}
    last = ""
    # Plug-ins stand behind what is built in.
    for key in sorted(cells, key=lambda key: (order.get(key[0], 99), key[0], order.get(key[1], 99), key)):
        encoder, sampler, variant = key
        if last and encoder != last:
            table.add_section()
        label = find_sampler(sampler).title + (f" ({variant})" if variant else "")
        texts = []
        for name, fingerprint in data:
            for loss, render in columns.values():
                here = (name, fingerprint, loss)
                rivals = [own[here] for (other, _, _), own in cells.items() if other == encoder and here in own]
                found = cells[key].get(here)
                texts.append(Text("-", style="dim") if found is None else render(found, _is_best(found, rivals)))
        table.add_row(find_encoder(encoder).title if encoder != last else "", label, *texts)
        last = encoder


def _is_best(row: Row, rivals: Sequence[Row]) -> bool:
    """Whether a row has the largest total speedup, or recall@50, of its encoder, data and loss."""
    measure = "total_speedup" if "baseline" in row else "test_recall_at_50"
    known = [other[measure] for other in rivals if other.get(measure) is not None]
    return bool(known) and row.get(measure) == max(known)


def _speedup(column: str, row: Row, best: bool) -> Text:
    value = row.get(column)
    if value is None:
        return Text(STATUS_MARKS.get(row["status"], "-"), style="dim")
    mark = "" if row.get("same_environment", True) else " mixed"
    return Text(f"{value:.2f}{mark}", style="bold" if best else "")


def _recall(column: str, row: Row, best: bool) -> Text:
    value = row.get(column)
    return Text("-", style="dim") if value is None else Text(f"{value:.4f}", style="bold" if best else "")


def _detail(column: str, digits: int, scale: float = 1) -> Cell:
    """A cell that shows a column as a number."""

    def render(row: Row, best: bool) -> Text:
        value = row.get(column)
        return Text(_number(None if value is None else value * scale, digits))

    return render


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:,.2f} ms"
