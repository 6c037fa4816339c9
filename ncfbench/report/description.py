"""A data set's description for the terminal (Rich): tables, and bar charts that need neither colour
nor a wide window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ncfbench.registry import SAMPLERS
from ncfbench.report.render.console import statistics_table

Row = Mapping[str, Any]
EIGHTHS = " ▏▎▍▌▋▊▉█"
BAR_CELLS = 28
"""A chart with its figures then fits 80 columns, and is no wider elsewhere."""
ID_CELLS = 24
MISSING = {
    "items_without_text": "items without text",
    "training_items_without_links": "training items without links",
    "users_without_training_links": "users without training links",
    "users_without_test_items": "users without test items",
}


class Bar:
    """A horizontal bar of some share of :data:`BAR_CELLS`, in eighths of a cell; of ``#`` where
    there is ASCII only.
    """

    def __init__(self, share: float) -> None:
        self.share = min(max(share, 0.0), 1.0)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        drawn = self.text(min(options.max_width, BAR_CELLS), ascii_only=options.ascii_only)
        yield Segment(drawn, console.get_style("cyan"))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        width = min(options.max_width, BAR_CELLS)
        return Measurement(min(8, width), width)

    def text(self, cells: int, *, ascii_only: bool = False) -> str:
        """The bar; what is not zero shows."""
        if ascii_only:
            return "#" * max(round(self.share * cells), self.share > 0)
        eighths = max(round(self.share * cells * 8), self.share > 0)
        return EIGHTHS[8] * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")


def view(found: Row, command: str) -> list[RenderableType]:
    """Everything, part by part; lines of text among them are commands and are not to be folded.

    Args:
        found: of :func:`ncfbench.sampling.description.describe`.
        command: the command line that prepares the data set.
    """
    user_links, item_links, words = (
        found[name] for name in ("links_of_a_user", "links_of_an_item", "words_of_an_item")
    )
    return [
        statistics_table(found["name"], found["statistics"], {}),
        *_origin(found, command),
        _left_out(found),
        Text(""),
        _chart("Training links of a user", user_links, "users", "links"),
        Text(""),
        _chart("Training links of an item", item_links, "items", "links"),
        Text(""),
        _chart("Words of an item, held-out items included", words, "items", "words"),
        Text(""),
        _most(found),
        Text(""),
        _batches(found),
    ]


def _origin(found: Row, command: str) -> list[RenderableType]:
    lines: list[RenderableType] = (
        [Text(f"What it is: {_plain(found['label'])}")] if found["label"] else []
    )
    lines += [Text(f"Source: {_plain(found['source'])}"), f"Prepared by: {_plain(command)}"]
    if found["files"]:
        # Neither one nor the other where nothing was published to verify a file by.
        told = {True: " (verified)", False: " (not verified)"}
        names = [
            f"{file.get('name', name)}{told.get(file.get('verified'), '')}"
            for name, file in found["files"].items()
        ]
        lines.append(Text(f"Files: {_plain(', '.join(names))}"))
    return [*lines, Text(f"Fingerprint: {found['fingerprint'][:12]}")]


def _left_out(found: Row) -> RenderableType:
    removed = [
        f"{count:,} {reason.replace('_', ' ')}" for reason, count in found["removed"].items()
    ]
    missing = [f"{count:,} {MISSING[name]}" for name, count in found["missing"].items() if count]
    lines = [
        f"Left out of the source: {', '.join(removed) if removed else 'nothing'}.",
        (
            f"There are {' and '.join(missing)}."
            if missing
            else "Every item has text, every user a link and a test item."
        ),
    ]
    return Text("\n".join(_plain(line) for line in lines))


def _chart(title: str, distribution: Row | None, nodes: str, things: str) -> RenderableType:
    if distribution is None:
        return Group(Text(title, style="bold"), Text(f"There are no {nodes} to count."))
    each = distribution
    told = [
        f"{each['nodes']:,} {nodes}, {each['total']:,} {things}: min {each['smallest']:,}, median"
        f" {each['median']:,g}, mean {each['mean']:,.1f}, max {each['largest']:,}"
    ]
    if each["gini"] is not None:
        told.append(
            f"the top 1 % of the {nodes} have {100 * each['top_1_percent']:.1f} % of the {things},"
            f" the top 10 % {100 * each['top_10_percent']:.1f} %; Gini {each['gini']:.2f}"
        )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(things, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column(nodes, justify="right", no_wrap=True)
    table.add_column(f"% of {nodes}", justify="right", no_wrap=True)
    table.add_column(f"% of {things}", justify="right", no_wrap=True)
    most = max(bin_["nodes"] for bin_ in each["bins"])
    for bin_ in each["bins"]:
        low, high = bin_["low"], bin_["high"]
        table.add_row(
            f"{low:,}" if low == high else f"{low:,} to {high:,}",
            Bar(bin_["nodes"] / most),
            f"{bin_['nodes']:,}",
            f"{100 * bin_['nodes'] / each['nodes']:.1f}",
            f"{100 * bin_['total'] / each['total']:.1f}" if each["total"] else "-",
        )
    return Group(Text(title, style="bold"), *(Text(line) for line in told), table)


def _most(found: Row) -> RenderableType:
    users, items = found["most_linked_users"], found["most_linked_items"]
    table = Table(title="The most training links", title_justify="left")
    for kind in ("user", "item"):
        table.add_column(kind, no_wrap=True, overflow="ellipsis", max_width=ID_CELLS)
        table.add_column("links", justify="right", no_wrap=True)
    for place in range(max(len(users), len(items))):
        table.add_row(*(cell for side in (users, items) for cell in _node(side[place : place + 1])))
    return table


def _node(rows: Sequence[Row]) -> tuple[Text, Text]:
    for row in rows:
        name = str(row["number"]) if row["id"] is None else _plain(row["id"])
        return Text(name), Text(f"{row['links']:,}")
    return Text(""), Text("")


def _batches(found: Row) -> RenderableType:
    rows, settings = found["batches"], found["batch_settings"]
    title = (
        f"Distinct nodes in a batch (b={settings['batch_size']}, k={settings['negatives']},"
        f" s={settings['stratum_size']}, P_n"
        f" {settings['noise']}{', strata by user' if settings['strata'] == 'user' else ''})"
    )
    table = Table(title=Text(title), title_justify="left")
    table.add_column("sampler", no_wrap=True)
    for heading in ("items", "items of IID over its own", "users"):
        table.add_column(heading, justify="right", no_wrap=True)
    drawn = [row for row in rows if row["reason"] is None]
    for row in drawn:
        numbers = [
            "-" if row[name] is None else f"{row[name]:,.{digits}f}"
            for name, digits in (("distinct_items", 1), ("fewer_items", 2), ("distinct_users", 1))
        ]
        table.add_row(SAMPLERS[row["sampler"]].title, *numbers)
    notes = [
        f"Means of {found['measured_batches']} batches. Items of IID over its own: above 1 is less"
        " work for the item encoder."
    ]
    refused: dict[str, list[str]] = {}
    for row in rows:
        if row["reason"] is not None:
            refused.setdefault(row["reason"], []).append(SAMPLERS[row["sampler"]].title)
    why = []
    for reason, names in refused.items():
        whose = "" if len(names) == len(rows) else f" of {', '.join(names)}"
        why.append(Text(f"No batches{whose}: {reason}"))
    if not drawn:
        return Group(Text(title, style="bold"), *why)
    return Group(table, *(Text(note, style="dim") for note in notes), *why)


def _plain(text: object) -> str:
    """A name from outside, without what could steer a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))
