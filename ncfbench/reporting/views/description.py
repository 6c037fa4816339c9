"""Tables of a data set's description, with bar charts that need neither colour nor width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncfbench.catalog import find_sampler
from ncfbench.reporting.table import Column, Header, Table, facts_table, sentence, text_column
from ncfbench.reporting.views.run import statistics_table

Row = Mapping[str, Any]
EIGHTHS = " ▏▎▍▌▋▊▉█"
BAR_WIDTH = 28
"""Characters of the longest bar: a chart with its figures then fits 80 columns."""
MISSING = {
    "items_without_text": "items without text",
    "training_items_without_links": "training items without links",
    "users_without_training_links": "users without training links",
    "users_without_test_items": "users without test items",
}

FITTED = {"users": "users with training links", "items": "training items"}
"""Rows over which dense features are standardised."""


def description_tables(found: Row) -> list[Table]:
    """Return the tables of what :func:`ncfbench.reporting.contents.describe` found."""
    user_links, item_links, words = (
        found[name] for name in ("links_of_a_user", "links_of_an_item", "words_of_an_item")
    )
    return [
        statistics_table(found["name"], found["statistics"], {}),
        facts_table("Origin", _origin(found)),
        _chart("Training links of a user", user_links, "users", "links"),
        _chart("Training links of an item", item_links, "items", "links"),
        _chart("Words of an item, held-out items included", words, "items", "words"),
        _most_linked(found),
        _batches(found),
    ]


def bar(share: float, width: int = BAR_WIDTH) -> str:
    """Return a horizontal bar of a share of some width, in eighths of a character.

    A share above zero always shows.
    """
    eighths = max(round(share * width * 8), share > 0)
    return EIGHTHS[8] * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")


def _origin(found: Row) -> list[tuple[str, str]]:
    facts = [("what", found["label"])] if found["label"] else []
    facts.append(("source", found["source"]))
    if found["files"]:
        # A file is neither verified nor unverified where nothing was published to verify it by.
        words = {True: " (verified)", False: " (not verified)"}
        names = [
            f"{file.get('name', name)}{words.get(file.get('verified'), '')}"
            for name, file in found["files"].items()
        ]
        facts.append(("files", ", ".join(names)))
    removed = [
        f"{count:,} {reason.replace('_', ' ')}" for reason, count in found["removed"].items()
    ]
    missing = [f"{count:,} {MISSING[name]}" for name, count in found["missing"].items() if count]
    features = [
        (
            f"features of {kind}",
            f"{each['columns']:,} columns, standardised over the {FITTED[kind]};"
            f" constant, so set to 0: {each['constant']:,}",
        )
        for kind, each in found["features"].items()
    ]
    return [
        *facts,
        *features,
        ("left out of it", ", ".join(removed) or "nothing"),
        ("missing", ", ".join(missing) or "nothing: items have text, users links and test items"),
        *(("caution", caution) for caution in found["cautions"]),
        ("fingerprint", found["fingerprint"][:12]),
    ]


def _chart(title: str, distribution: Row | None, nodes: str, things: str) -> Table:
    header: Header = [Column(things), Column("", "left"), nodes, f"% of {nodes}", f"% of {things}"]
    if distribution is None:
        return Table(title, header, [], [f"There are no {nodes} to count."])
    each = distribution
    notes = [
        f"{each['nodes']:,} {nodes}, {each['total']:,} {things}: min {each['smallest']:,}, median"
        f" {each['median']:,g}, mean {each['mean']:,.1f}, max {each['largest']:,}."
    ]
    if each["gini"] is not None:
        notes.append(
            f"The top 1 % of the {nodes} have {100 * each['top_1_percent']:.1f} % of the {things},"
            f" the top 10 % {100 * each['top_10_percent']:.1f} %; Gini {each['gini']:.2f}."
        )
    most = max(bin_["nodes"] for bin_ in each["bins"])
    rows = []
    for bin_ in each["bins"]:
        low, high = bin_["low"], bin_["high"]
        rows.append(
            [
                f"{low:,}" if low == high else f"{low:,} to {high:,}",
                bar(bin_["nodes"] / most),
                f"{bin_['nodes']:,}",
                f"{100 * bin_['nodes'] / each['nodes']:.1f}",
                f"{100 * bin_['total'] / each['total']:.1f}" if each["total"] else "-",
            ]
        )
    return Table(title, header, rows, notes)


def _most_linked(found: Row) -> Table:
    users, items = found["most_linked_users"], found["most_linked_items"]
    rows = [
        [*_node(users[rank : rank + 1]), *_node(items[rank : rank + 1])]
        for rank in range(max(len(users), len(items)))
    ]
    header = [text_column("user"), Column("links"), text_column("item"), Column("links")]
    return Table("The most training links", header, rows)


def _node(rows: Sequence[Row]) -> tuple[str, str]:
    for row in rows:
        return str(row["number"] if row["id"] is None else row["id"]), f"{row['links']:,}"
    return "", ""


def _batches(found: Row) -> Table:
    rows, settings = found["batches"], found["batch_settings"]
    strata = ", strata by user" if settings["strata"] == "user" else ""
    title = (
        f"Distinct nodes in a batch (b={settings['batch_size']}, k={settings['negatives']},"
        f" s={settings['stratum_size']}, P_n {settings['noise']}{strata})"
    )
    drawn = [row for row in rows if row["reason"] is None]
    columns = (("distinct_items", 1), ("fewer_items", 2), ("distinct_users", 1))
    cells = [
        [
            find_sampler(row["sampler"]).title,
            *("-" if row[name] is None else f"{row[name]:,.{digits}f}" for name, digits in columns),
        ]
        for row in drawn
    ]
    notes = [
        f"Means of {found['measured_batches']} batches. Items of IID over its own: above 1 is less"
        " work for the item encoder."
    ]
    refused: dict[str, list[str]] = {}
    for row in rows:
        if row["reason"] is not None:
            refused.setdefault(row["reason"], []).append(find_sampler(row["sampler"]).title)
    why = []
    for reason, names in refused.items():
        whose = "" if len(names) == len(rows) else f" of {', '.join(names)}"
        why.append(sentence(f"No batches{whose}: {reason}"))
    header = ["sampler", "items", "items of IID over its own", "users"]
    return Table(title, header, cells, [*(notes if drawn else []), *why])
