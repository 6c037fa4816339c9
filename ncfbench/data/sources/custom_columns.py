"""Columns of users' own files: which column is what, as asked or by its usual names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ncfbench.data.readers.opening import open_rows
from ncfbench.data.readers.rows import RowFile
from ncfbench.errors import DataError, UsageError, nearest

if TYPE_CHECKING:
    from ncfbench.data.sources.custom import Options

# fmt: off
USUAL: dict[str, tuple[str, ...]] = {
    "user": (
        "user", "userid", "uid", "username", "reviewerid", "visitorid", "customerid", "customer",
        "memberid",
    ),
    "item": (
        "item", "itemid", "iid", "movieid", "movie", "articleid", "article", "newsid", "news",
        "asin", "parentasin", "productid", "product", "bookid", "book", "isbn", "businessid",
        "trackid", "songid", "artistid", "paperid", "docid", "document", "videoid", "gameid",
        "appid", "recipeid", "eventid", "postid",
    ),
    "rating": ("rating", "score", "stars", "overall", "preference", "ratingscore"),
    "time": (
        "timestamp", "time", "unixreviewtime", "datetime", "date", "createdat", "ts", "reviewtime",
    ),
    "tokens": ("tokens", "words"),
    "split": ("split", "fold", "subset"),
}
"""Usual names of columns, in lower case without spaces and underscores, in order of preference."""
TEXTS = (
    "title", "name", "headline", "subtitle", "abstract", "summary", "description", "overview",
    "plot", "text", "body", "content", "genres", "genre", "category", "subcategory", "categories",
    "tags", "keywords",
)
"""Usual names of columns of text, in the order in which an item's text is put together."""
# fmt: on


@dataclass(frozen=True)
class Columns:
    """Two files, and which of their columns is what. Make one with :meth:`choose`."""

    links: RowFile
    items: RowFile
    user: str
    item: str
    rating: str | None
    """None if every row is a link."""
    rating_threshold: float | None
    time: str | None
    """None unless the newest items are held out."""
    id: str
    texts: tuple[str, ...]
    tokens: str | None
    split: str
    """``random``, ``time`` or ``column``."""
    split_column: str | None

    @classmethod
    def choose(cls, options: Options) -> Columns:
        """Look at both files and choose their columns.

        Raises:
            DataError: a file cannot be read, or no column has the name that is needed.
            UsageError: a column that was asked for is missing, or a choice that these files do not
                allow.
        """
        look = partial(
            open_rows, quotes=options.quotes, encoding=options.encoding, delimiter=options.delimiter
        )
        links, items = look(options.links), look(options.items)
        user = str(choose("user", options.user_column, links, needed=True))
        item, id_ = choose_ids(options.item_column, options.id_column, links, items)
        if user == item:
            raise UsageError(
                f"{user} of {links.path.name} cannot be both user and item. Use --user-column or"
                " --item-column."
            )
        threshold, lacks = options.rating_threshold, f"{links.path.name} has no column of"
        rating = choose("rating", options.rating_column, links)
        if threshold is not None and rating is None:
            raise UsageError(
                f"--rating-threshold {threshold:g}: {lacks} ratings. Name it by --rating-column"
                " NAME, or leave --rating-threshold out: then every row is a link."
            )
        time = choose("time", options.time_column, links)
        if options.split == "time" and time is None:
            raise UsageError(f"--split time: {lacks} times. Name it: --time-column NAME.")
        split_column = choose("split", options.split_column, items)
        if options.split == "column" and split_column is None:
            raise UsageError(
                f"--split column: {items.path.name} has no column called split. Name it:"
                " --split-column NAME."
            )
        split = options.split or ("column" if split_column else "random")
        texts, tokens = _choose_text(options, items)
        return cls(
            links=links,
            items=items,
            user=user,
            item=item,
            rating=rating if threshold is not None else None,
            rating_threshold=threshold,
            time=time if split == "time" else None,
            id=id_,
            texts=texts,
            tokens=tokens,
            split=split,
            split_column=split_column if split == "column" else None,
        )

    def describe(self) -> list[str]:
        """Return what was chosen, a line for each file, and warnings."""
        ratings = ", every row a link"
        if self.rating:
            ratings = f", of {self.rating} {self.rating_threshold:g} and more"
        elif unused := choose("rating", None, self.links):
            ratings += f" whatever its {unused} (--rating-threshold)"
        times = f", times {self.time}" if self.time else ""
        text = f"tokens {self.tokens}" if self.tokens else f"text {', '.join(self.texts) or 'none'}"
        splits = {
            "random": "random",
            "time": "the newest items are held out",
            "column": f"column {self.split_column}",
        }
        return [
            (
                f"Links: {self.links.path.name} ({self.links.summary}): user {self.user}, item"
                f" {self.item}{times}{ratings}."
            ),
            (
                f"Items: {self.items.path.name} ({self.items.summary}): id {self.id}, {text}."
                f" Split: {splits[self.split]}."
            ),
            *self.links.warnings,
            *self.items.warnings,
        ]

    def stored(self) -> dict[str, Any]:
        """Return the choices for the manifest, under the names of their options."""
        return {
            "user_column": self.user,
            "item_column": self.item,
            "rating_column": self.rating,
            "time_column": self.time,
            "id_column": self.id,
            "text_columns": list(self.texts),
            "tokens_column": self.tokens,
            "split": self.split,
            "split_column": self.split_column,
        }


def _choose_text(options: Options, items: RowFile) -> tuple[tuple[str, ...], str | None]:
    """Choose the columns of text, or the column of tokens."""
    texts = choose_texts(options.text_columns, items)
    # A column called words may hold their number, so it is tokens only without any text.
    may_guess = ("tokens" in items.columns or not texts) and not options.tokenizer
    tokens = None
    if not options.text_columns and (may_guess or options.tokens_column):
        tokens = choose("tokens", options.tokens_column, items)
    if tokens:
        return (), tokens
    if not texts and options.has_item_features:
        return (), None
    if not texts:
        raise DataError(
            f"{items.path} ({items.summary}): no column is called like a text. Its columns:"
            f" {', '.join(items.columns)}. Name some: --text-columns A,B, or --tokens-column NAME;"
            " or give --item-features."
        )
    return texts, None


def choose(role: str, asked: str | None, rows: RowFile, *, needed: bool = False) -> str | None:
    """Return the column of a role: the one asked for, or the one with a usual name.

    Raises:
        UsageError: the file has no such column.
        DataError: no column has a usual name, and one is needed.
    """
    return _chosen(
        asked, USUAL[role], rows, f"--{role}-column", f"the id of a {role}" if needed else ""
    )


def choose_ids(
    in_links: str | None, in_items: str | None, links: RowFile, items: RowFile
) -> tuple[str, str]:
    """Return the columns of an item's id in the links and in the items, preferably the first usual
    name that both files have.

    Args:
        in_links, in_items: the columns asked for, or None to guess.

    Raises:
        UsageError, DataError: as :func:`choose`.
    """
    present = {_plain(name) for name in items.columns}
    both = tuple(usual for usual in USUAL["item"] if usual in present)
    of_links = _chosen(
        in_links, (*both, *USUAL["item"]), links, "--item-column", "the id of an item"
    )
    # A column called movie may hold a title; one called movieId holds an id.
    ids = tuple(usual for usual in USUAL["item"] if usual.endswith(("id", "asin", "isbn")))
    usual = (_plain(str(of_links)), *ids, "id", "key", "index", *USUAL["item"])
    return str(of_links), str(_chosen(in_items, usual, items, "--id-column", "the id of an item"))


def choose_id(what: str, same: str, rows: RowFile) -> str:
    """Return the column of ids in a further file of users or items: preferably the one that is
    called as in the other files.

    Args:
        what: "user" or "item".
        same: what the column is called there.

    Raises:
        DataError: no column has that name or a usual one.
    """
    usual = (_plain(same), *USUAL[what], "id", "key", "index")
    plain = {_plain(name): name for name in reversed(rows.columns)}
    for name in usual:
        if name in plain:
            return plain[name]
    raise DataError(
        f"{rows.path} ({rows.summary}): no column is called {same}, as the {what}s' ids are"
        f" elsewhere. Its columns: {_listed(rows)}."
    )


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
    """Return the columns of text: those asked for, or all with a usual name, in the usual order."""
    if asked:
        return tuple(named(name, rows, "--text-columns") for name in dict.fromkeys(asked))
    plain = {_plain(name): name for name in reversed(rows.columns)}
    return tuple(plain[usual] for usual in TEXTS if usual in plain)


def named(name: str, rows: RowFile, flag: str) -> str:
    """Return the column of exactly this name.

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
    # Control characters, which a terminal would obey, are spelled out.
    names = (
        name if name.isprintable() else name.encode("unicode_escape").decode()
        for name in rows.columns[:20]
    )
    shown = ", ".join(name[:40] for name in names)
    return (shown or "none") + (", ..." if len(rows.columns) > 20 else "")
