"""Tables of a data set's description, with bar charts that need neither colour nor width."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ncfbench.catalog import find_sampler
from ncfbench.reporting.table import Col, Table, facts_table, sentence
from ncfbench.reporting.views.run import statistics_table

Row = Mapping[str, Any]
EIGHTHS = " ▏▎▍▌▋▊▉█"
BAR_WIDTH = 28
"""Characters of the longest bar: a chart with its figures then fits 80 columns."""
MISSING = {
    "items_without_text": "items without text",
    "training_items_without_links": "training items without links",
    "users_without_training_links": "users without training links",
    "users_without_test_items": "users without test {}",
}


def description_tables(found: Row) -> list[Table]:
    """Return the tables of what :func:`ncfbench.data.description.describe` and
    :func:`ncfbench.sampling.contents.describe` found.
    """
    return [
        statistics_table(found["name"], found["statistics"], {}),
        facts_table("Origin", _origin(found)),
        _chart("Training links of a user", found["links_of_a_user"], "users", "links"),
        _chart("Training links of an item", found["links_of_an_item"], "items", "links"),
        _chart(
            "Words of an item, held-out items included", found["words_of_an_item"], "items", "words"
        ),
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
    if features := found["item_features"]:
        columns, constant = features["columns"], features["constant"]
        text = f"{columns:,} columns, standardised over the training items; constant, so set to 0:"
        facts.append(("features of items", f"{text} {constant:,}"))
    for name, derived in found["derived_features"].items():
        columns, seconds = derived["columns"], derived["seconds"]
        text = f"{columns:,} of the items' columns, in {seconds:.1f} s"
        facts.append((f"derived by --{name}", text))
    removed = [
        f"{count:,} {reason.replace('_', ' ')}" for reason, count in found["removed"].items()
    ]
    kind = "links" if "test_links" in found["statistics"] else "items"
    missing = [
        f"{count:,} {MISSING[name].format(kind)}"
        for name, count in found["missing"].items()
        if count
    ]
    return [
        *facts,
        ("held out for the test", found["held_out"]),
        ("left out of it", ", ".join(removed) or "nothing"),
        ("missing", ", ".join(missing) or f"nothing: items have text, users links and test {kind}"),
        *(("caution", caution) for caution in found["cautions"]),
        ("fingerprint", found["fingerprint"][:12]),
    ]


def _chart(title: str, distribution: Row | None, nodes: str, things: str) -> Table:
    bins: Sequence[Row] = distribution["bins"] if distribution else ()
    most = max((bin_["nodes"] for bin_ in bins), default=0)
    all_nodes, total = (distribution["nodes"], distribution["total"]) if distribution else (0, 0)
    cols = [
        Col(things, _range, align="right"),
        Col("", lambda bin_: bar(bin_["nodes"] / most), align="left"),
        Col(nodes, "nodes", ","),
        Col(f"% of {nodes}", lambda bin_: 100 * bin_["nodes"] / all_nodes, ".1f"),
        Col(f"% of {things}", lambda bin_: 100 * bin_["total"] / total if total else None, ".1f"),
    ]
    if distribution is None:
        return Table.of(title, cols, [], [f"There are no {nodes} to count."])
    notes = [
        f"{all_nodes:,} {nodes}, {total:,} {things}: min {distribution['smallest']:,}, median"
        f" {distribution['median']:,g}, mean {distribution['mean']:,.1f}, max"
        f" {distribution['largest']:,}."
    ]
    if distribution["gini"] is not None:
        top_1, top_10 = (100 * distribution[f"top_{share}_percent"] for share in (1, 10))
        notes.append(
            f"The top 1 % of the {nodes} have {top_1:.1f} % of the {things}, the top 10 %"
            f" {top_10:.1f} %; Gini {distribution['gini']:.2f}."
        )
    return Table.of(title, cols, bins, notes)


def _range(bin_: Row) -> str:
    low, high = bin_["low"], bin_["high"]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _most_linked(found: Row) -> Table:
    nobody: Row = {"number": "", "id": None, "links": None}
    pairs = itertools.zip_longest(
        found["most_linked_users"], found["most_linked_items"], fillvalue=nobody
    )
    cols = [
        Col("user", lambda pair: _name(pair[0]), wraps=True),
        Col("links", lambda pair: pair[0]["links"], ",", absent=""),
        Col("item", lambda pair: _name(pair[1]), wraps=True),
        Col("links", lambda pair: pair[1]["links"], ",", absent=""),
    ]
    return Table.of("The most training links", cols, pairs)


def _name(node: Row) -> Any:
    return node["number"] if node["id"] is None else node["id"]


def _batches(found: Row) -> Table:
    rows, settings = found["batches"], found["batch_settings"]
    strata = ", strata by user" if settings["strata"] == "user" else ""
    title = (
        f"Distinct nodes in a batch (b={settings['batch_size']}, k={settings['negatives']},"
        f" s={settings['stratum_size']}, P_n {settings['noise']}{strata})"
    )
    cols = [
        Col("sampler", _sampler),
        Col("items", "distinct_items", ",.1f"),
        Col("items of IID over its own", "fewer_items", ",.2f"),
        Col("users", "distinct_users", ",.1f"),
    ]
    drawn = [row for row in rows if row["reason"] is None]
    notes = []
    if drawn:
        notes.append(
            f"Means of {found['measured_batches']} batches. Items of IID over its own: above 1 is"
            " less work for the item encoder."
        )
    refused: dict[str, list[str]] = {}
    for row in rows:
        if row["reason"] is not None:
            refused.setdefault(row["reason"], []).append(_sampler(row))
    for reason, names in refused.items():
        whose = "" if len(names) == len(rows) else f" of {', '.join(names)}"
        notes.append(sentence(f"No batches{whose}: {reason}"))
    return Table.of(title, cols, drawn, notes)


def _sampler(row: Row) -> str:
    return find_sampler(row["sampler"]).title
