"""Which column is what, by the names that data sets usually give them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ncfbench.data.readers.rows import RowFile
from ncfbench.errors import DataError, UsageError
from ncfbench.registry import nearest

USUAL: dict[str, tuple[str, ...]] = {
    "user": (
        "user",
        "userid",
        "uid",
        "username",
        "reviewerid",
        "visitorid",
        "customerid",
        "customer",
        "memberid",
    ),
    "item": (
        "item",
        "itemid",
        "iid",
        "movieid",
        "movie",
        "articleid",
        "article",
        "newsid",
        "news",
        "asin",
        "parentasin",
        "productid",
        "product",
        "bookid",
        "book",
        "isbn",
        "businessid",
        "trackid",
        "songid",
        "artistid",
        "paperid",
        "docid",
        "document",
        "videoid",
        "gameid",
        "appid",
        "recipeid",
        "eventid",
        "postid",
    ),
    "rating": ("rating", "score", "stars", "overall", "preference", "ratingscore"),
    "time": (
        "timestamp",
        "time",
        "unixreviewtime",
        "datetime",
        "date",
        "createdat",
        "ts",
        "reviewtime",
    ),
    "tokens": ("tokens", "words"),
    "split": ("split", "fold", "subset"),
}
"""Names of columns, in lower case without spaces and underscores; what stands first is
preferred.
"""
TEXTS = (
    "title",
    "name",
    "headline",
    "subtitle",
    "abstract",
    "summary",
    "description",
    "overview",
    "plot",
    "text",
    "body",
    "content",
    "genres",
    "genre",
    "category",
    "subcategory",
    "categories",
    "tags",
    "keywords",
)
"""Names of columns of text, in the order in which an item's text is put together."""


def choose(role: str, asked: str | None, rows: RowFile, *, needed: bool = False) -> str | None:
    """The column of a role: the one asked for, or the one that has a usual name.

    Raises:
        UsageError: the file has no such column.
        DataError: none has a usual name, and one is needed.
    """
    return _chosen(
        asked, USUAL[role], rows, f"--{role}-column", f"the id of a {role}" if needed else ""
    )


def choose_ids(
    in_links: str | None, in_items: str | None, links: RowFile, items: RowFile
) -> tuple[str, str]:
    """The columns of an item's id in the links and in the items: of usual names the first that both
    have, if there is one.

    Args:
        in_links, in_items: the columns asked for, or None to guess.

    Raises:
        UsageError, DataError: as :func:`choose`.
    """
    there = {_plain(name) for name in items.columns}
    both = tuple(usual for usual in USUAL["item"] if usual in there)
    of_links = _chosen(
        in_links, (*both, *USUAL["item"]), links, "--item-column", "the id of an item"
    )
    # A movie is called by its title, and its movieId is an id.
    ids = tuple(usual for usual in USUAL["item"] if usual.endswith(("id", "asin", "isbn")))
    usual = (_plain(str(of_links)), *ids, "id", "key", "index", *USUAL["item"])
    return str(of_links), str(_chosen(in_items, usual, items, "--id-column", "the id of an item"))


def _chosen(
    asked: str | None, usual: Sequence[str], rows: RowFile, flag: str, needed: str
) -> str | None:
    if asked is not None:
        return named(asked, rows, flag)
    plain = {_plain(name): name for name in reversed(rows.columns)}
    found = next((plain[name] for name in usual if name in plain), None)
    if needed and found is None:
        raise DataError(
            f"{rows.path} ({rows.summary}): no column is called like {needed}. Its columns:"
            f" {_listed(rows)}. Name it: {flag} NAME. A file without a header needs one."
        )
    return found


def choose_texts(asked: Sequence[str], rows: RowFile) -> tuple[str, ...]:
    """The columns of text: those asked for, or all that have a usual name, in the usual order."""
    if asked:
        return tuple(named(name, rows, "--text-columns") for name in asked)
    plain = {_plain(name): name for name in reversed(rows.columns)}
    return tuple(plain[usual] for usual in TEXTS if usual in plain)


def named(name: str, rows: RowFile, flag: str) -> str:
    """The column of that very name.

    Raises:
        UsageError: the file has none.
    """
    if not rows.has(name):
        raise UsageError(
            f"{flag} {name}: {rows.path.name} has no such column{nearest(name, rows.columns)} Its"
            f" columns: {_listed(rows)}."
        )
    return name


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()


def _listed(rows: RowFile) -> str:
    # What would be a command to a terminal is spelled.
    names = (
        name if name.isprintable() else name.encode("unicode_escape").decode()
        for name in rows.columns[:20]
    )
    shown = ", ".join(name[:40] for name in names)
    return (shown or "none") + (", ..." if len(rows.columns) > 20 else "")
