"""Tables of one run, of an environment, and of a data set's counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ncfbench.reporting.table import Col, Table, facts_table
from ncfbench.runs.quality import CERTAIN
from ncfbench.runs.reported import BY_VALIDATION, evaluations_of

Row = Mapping[str, Any]


def statistics_table(
    name: str, found: Mapping[str, float], beside: Mapping[str, float], heading: str = "paper"
) -> Table:
    """Return a data set's counts, beside the paper's or others where there are any."""
    cols = [
        Col("", lambda name: name.replace("_", " ").replace("words ", "words per item, ")),
        Col("prepared", found.get, ","),
    ]
    cols += [Col(heading, beside.get, ",", absent="")] if beside else []
    return Table.of(f"Data set {name}", cols, found)


def known_table(title: str, entries: Row, left_out: Collection[str] = ()) -> Table:
    """Return a line for each entry that is known, such as of an environment."""
    facts = [
        (name.replace("_bytes", "").replace("_", " "), _words(name, value))
        for name, value in entries.items()
        if name not in left_out and value not in (None, "", [], {})
    ]
    return facts_table(title, facts)


def _words(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(key, item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_words(name, item) for item in value)
    return f"{value / 2**30:.1f} GiB" if name.endswith("_bytes") else str(value)


def run_table(summary: Row, curve: Sequence[Row], feature_seconds: float = 0.0) -> Table:
    """Return the short table at the end of a run, whose derived item features took some seconds."""
    lowest = min(curve, key=lambda row: float(row["probe_loss"]), default=None)
    at = "" if lowest is None else f" (epoch {lowest['epoch']:.2f})"
    facts = [
        ("iterations", f"{summary['iterations']:,} ({summary['epochs']:g} epochs)"),
        ("smallest probe loss", _number(summary["smallest_probe_loss"], 4) + at),
        ("full iteration", _milliseconds(summary["full_iteration_seconds"])),
        ("step iteration", _milliseconds(summary["step_iteration_seconds"])),
        ("distinct items in a batch", _number(summary["item_slots"], 1)),
        ("training time", f"{summary['train_seconds']:.1f} s"),
    ]
    if feature_seconds:
        facts.append(("item features", f"{feature_seconds:.1f} s before training"))
    if summary["recall_reason"]:
        facts.append(("test recall@50", f"none: {summary['recall_reason']}"))
    chosen = ", chosen by validation" * (summary["reported_by"] == BY_VALIDATION)
    last = evaluations_of(curve)[-1:]
    for split in ("test", "validation"):
        name = f"{split}_recall_at_50"
        recall, chance = (summary[f"{name}{end}"] for end in ("", "_chance"))
        if recall is None:
            continue
        epoch, by_chance = summary["reported_epoch"], f"chance {_number(chance, 4)}"
        facts.append((f"{split} recall@50", f"{recall:.4f} (epoch {epoch:g}{chosen}; {by_chance})"))
        if last and last[0]["epoch"] != epoch:
            at_end = f"{_number(last[0][name], 4)} (epoch {last[0]['epoch']:g})"
            facts.append(("at the last epoch", at_end))
        for part in ("new_items", "known_items"):
            if (recall := summary[f"{name}_{part}"]) is not None:
                facts.append((f"of {part.replace('_', ' ')}", _number(recall, 4)))
        if users := summary.get(f"{split}_cold_users"):
            apart = f"apart, {users:,.0f} users without training links"
            facts.append((apart, _number(summary[f"{name}_cold_users"], 4)))
        if (chance or 0) >= 1:
            facts.append(("", CERTAIN))
    return facts_table(f"Run {summary['run']}", facts)


def ledger_table(rows: Sequence[Row]) -> Table:
    """Return where a run's time went, line by line.

    Seconds of the main thread exclude each other and sum to all; those of the sampler
    are a part of the waiting, or passed beside it in a thread.
    """
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    for row in rows:
        seconds[row["thread"], row["line"]] += row["seconds"]
    by_time = sorted(seconds.items(), key=lambda item: -item[1])
    main = {line: value for (thread, line), value in by_time if thread == "main" and value > 0}
    wall = sum(main.values())
    lines = [("main", *item) for item in main.items()]
    lines.append(("all", "with compilation (cold)", wall))
    lines.append(("all", "without compilation (warm)", wall - main.get("compile", 0.0)))
    lines += [(*name, value) for name, value in seconds.items() if name[0] == "sampler"]
    cols = [
        Col("thread", 0),
        Col("line", 1),
        Col("seconds", 2, ".2f"),
        Col("share %", lambda line: 100 * line[2] / wall if wall else None, ".1f"),
    ]
    return Table.of("Where the time went", cols, lines, labels=2, grouped=1)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:,.2f} ms"
