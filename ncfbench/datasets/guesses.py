"""Which column is what, by the names that data sets usually give them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ncfbench.datasets.rows import RowFile
from ncfbench.errors import DataError, UsageError
from ncfbench.registry import nearest

USUAL: dict[str, tuple[str, ...]] = {
    "user": ("user", "userid", "uid", "username", "reviewerid", "visitorid", "customerid", "customer", "memberid"),
    "item": (
        "item", "itemid", "iid", "movieid", "movie", "articleid", "article", "newsid", "news", "asin", "parentasin",
        "productid", "product", "bookid", "book", "isbn", "businessid", "trackid", "songid", "artistid", "paperid", "docid",
        "document", "videoid", "gameid", "appid", "recipeid", "eventid", "postid",
    ),
    "rating": ("rating", "score", "stars", "overall", "preference", "ratingscore"),
    "time": ("timestamp", "time", "unixreviewtime", "datetime", "date", "createdat", "ts", "reviewtime"),
    "tokens": ("tokens", "words"),
    "split": ("split", "fold", "subset"),
}  # fmt: skip
"""Names of columns, in lower case without spaces and underscores; what stands first is preferred."""
TEXTS = (
    "title", "name", "headline", "subtitle", "abstract", "summary", "description", "overview", "plot", "text", "body",
    "content", "genres", "genre", "category", "subcategory", "categories", "tags", "keywords",
)  # fmt: skip
"""Names of columns of text, in the order in which an item's text is put together."""


def choose(role: str, asked: str | None, rows: RowFile, *, needed: bool, more: Sequence[str] = ()) -> str | None:
    """The column of a role: the one asked for, or the one that has a usual name.

    Args:
        asked: the user's choice, or None to guess.
        more: further names, that count only where none of the usual ones is there.

    Raises:
        UsageError: the file has no such column.
        DataError: none has a usual name, and one is needed.
    """
    if asked is not None:
        return named(asked, rows, f"--{'id' if role == 'item' and more else role}-column")
    plain = {_plain(name): name for name in reversed(rows.columns)}
    for usual in (*USUAL[role], *more):
        if usual in plain:
            return plain[usual]
    if needed:
        what = {"user": "a user", "item": "an item"}[role]
        flag = "--id-column" if more else f"--{role}-column"
        raise DataError(
            f"{rows.path} ({rows.summary}): no column is called like the id of {what}. Its columns: {_listed(rows)}. "
            f"Name it: {flag} NAME. A file without a header needs one."
        )
    return None


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
    if name not in rows.columns:
        raise UsageError(
            f"{flag} {name}: {rows.path.name} has no such column{nearest(name, rows.columns)} Its columns: {_listed(rows)}."
        )
    return name


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()


def _listed(rows: RowFile) -> str:
    shown = ", ".join(name[:40] for name in rows.columns[:20])
    return (shown or "none") + (", ..." if len(rows.columns) > 20 else "")
