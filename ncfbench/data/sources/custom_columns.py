"""Columns of users' own files: which column is what, as asked, or by names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ncfbench.data.columns import Column, Table
from ncfbench.data.content import SPLITS
from ncfbench.data.ids import MISSING
from ncfbench.data.options import HOLD_OUTS, NEED_TIMES
from ncfbench.data.sources.custom_options import Options
from ncfbench.errors import DataError, UsageError, nearest

OF_LINKS = ("user", "item", "rating", "time")
OF_ITEMS = ("id", "tokens", "split")
"""Roles of columns; an option gives the column of each."""
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
        "timestamp", "time", "unixreviewtime", "datetime", "createdat", "ts", "reviewtime", "date",
    ),
    "tokens": ("tokens", "words"),
    "split": ("split",),
}
"""Usual names of columns, in lower case without spaces and underscores, in order of preference."""
TEXTS = (
    "title", "movietitle", "name", "headline", "subtitle", "abstract", "summary", "description",
    "overview", "plot", "text", "body", "content", "genres", "genre", "category", "subcategory",
    "categories", "tags", "keywords",
)
"""Usual names of columns of text, in the order in which an item's text is put together."""
# fmt: on
SPLIT_NAMES = {"training": 0, "valid": 1, "val": 1, "dev": 1, "testing": 2} | {
    name: number for number, name in enumerate(SPLITS)
}
IDS = ("id", "key", "index")
"""Usual names of a column of ids in a file about one kind of things."""
TYPED = re.compile(r":(token|token_seq|float|float_seq)$")
"""The type that RecBole's atomic files have behind a name."""
MOST_MARKS = 20  # spellings of marks in a column


def with_columns(options: Options, links: Table, items: Table) -> Options:
    """Return the options with the columns that are used, and what is held out.

    A DataError or UsageError where a column that is needed is missing, or several might be meant.
    """
    used: dict[str, Any] = {role: _choose_id(role, options, links) for role in ("user", "item")}
    if used["item"] == used["user"]:
        raise UsageError(
            f"{used['user']} of {links.path.name} cannot be both user and item. Use --user-column"
            " or --item-column."
        )
    used["id"] = _choose_id("id", options, items, used["item"])
    split, hold_out = None, options.hold_out
    if hold_out is None:
        split = _choose("split", options, items)
        if split and not options.split_column:
            split = split if (split_numbers(items[split]) < len(SPLITS)).all() else None
        hold_out = None if split else "items"
    used["split"] = split
    for role, is_used, flag in (
        ("rating", options.rating_threshold is not None, "--rating-threshold"),
        ("time", hold_out in NEED_TIMES, f"--hold-out {hold_out}"),
    ):
        column = _choose(role, options, links)
        if is_used and column is None:
            raise UsageError(
                f"{flag} needs a column of {role}s, and {links.path.name} has none called so. Name"
                f" it: --{role}-column NAME. Its columns: {_listed(links.names)}."
            )
        used[role] = column if is_used else None
    texts, used["tokens"] = _choose_texts(options, items)
    if not (texts or used["tokens"] or options.item_features):
        advice = "Name some: --text-columns A,B; or --tokens-column NAME, or --item-features"
        raise _no_column(items, "a text", advice)
    columns = {f"{role}_column": name for role, name in used.items()}
    return replace(options, hold_out=hold_out, text_columns=texts, **columns)


def _choose(role: str, options: Options, table: Table) -> str | None:
    """Return the column of a role: the one asked for, or the first usual name; None without one."""
    if (asked := getattr(options, f"{role}_column")) is not None:
        return named(asked, table, f"--{role}-column")
    return next(iter(_with_names(USUAL.get(role, ()), table)), None)


def split_numbers(column: Column) -> NDArray[np.uint8]:
    """Return uint8[n]: an index into :data:`SPLITS` for each row, above all where it has none."""
    rows = np.arange(len(column.values))
    names = (" ".join(parts).strip().lower() for parts in column.texts(rows))
    return np.array([SPLIT_NAMES.get(name, len(SPLITS)) for name in names], np.uint8)


def _choose_id(role: str, options: Options, table: Table, same: str | None = None) -> str:
    """Return a column of ids: the one asked for; or that which is called as in the links
    (``same``); or a usual name, preferably an id's. A DataError where there are several.
    """
    if getattr(options, f"{role}_column") is not None:
        return str(_choose(role, options, table))
    what = "user" if role == "user" else "item"
    advice = f"Name it: --{role}-column NAME"
    names = _with_names([_plain(same)], table) if same else []
    names = names or _with_names([*USUAL[what], *(IDS if same else ())], table)
    if not names:
        raise _no_column(table, f"the id of {'a' if what == 'user' else 'an'} {what}", advice)
    ids = [name for name in names if _plain(name).endswith(("id", "asin", "isbn"))]
    if len(ids) > 1:
        raise DataError(
            f"{table.path}: several columns may hold the {what}'s id: {'; '.join(ids)}. {advice}."
        )
    return (ids or names)[0]


def _choose_texts(options: Options, items: Table) -> tuple[tuple[str, ...], str | None]:
    """Return the columns of text: those asked for, or all with a usual name, in the usual order;
    or the column of tokens.
    """
    if asked := dict.fromkeys(options.text_columns or ()):
        return tuple(named(name, items, "--text-columns") for name in asked), None
    texts = tuple(_with_names(TEXTS, items))
    # A column called words may hold their number, so it is tokens only without any text.
    may_guess = not options.tokenizer and ("tokens" in items.names or not texts)
    tokens = _choose("tokens", options, items) if options.tokens_column or may_guess else None
    return ((), tokens) if tokens else (texts, None)


def named(name: str, table: Table, flag: str) -> str:
    """Return the column of exactly this name, or of it without RecBole's type; a UsageError if the
    file has none.
    """
    typed = [column for column in table.names if TYPED.sub("", column) == name]
    if name not in table.names and len(typed) == 1:
        return typed[0]
    if name not in table.names:
        raise UsageError(
            f"{flag} {name}: {table.path.name} has no such column{nearest(name, table.names)} Its"
            f" columns: {_listed(table.names)}."
        )
    return name


def describe(options: Options, chosen: Options, links: Table, items: Table) -> Iterator[str]:
    """Yield what was chosen of each file, what is not used, and warnings, a line each."""
    ratings = ", every row a link"
    if chosen.rating_column:
        ratings = f", of {chosen.rating_column} {chosen.rating_threshold:g} and more"
    elif rating := _choose("rating", options, links):
        ratings += f" whatever its {rating} (--rating-threshold)"
    times = f", times {chosen.time_column}" if chosen.time_column else ""
    yield (
        f"Links: {links.path.name} ({links.summary}): user {chosen.user_column}, item"
        f" {chosen.item_column}{times}{ratings}."
    )
    text = f"text {', '.join(chosen.text_columns) or 'none'}"
    text = f"tokens {chosen.tokens_column}" if chosen.tokens_column else text
    held_out = HOLD_OUTS.get(chosen.hold_out or "", f"as column {chosen.split_column} says")
    yield (
        f"Items: {items.path.name} ({items.summary}): id {chosen.id_column}, {text}."
        f" Held out: {held_out}."
    )
    unused = []
    for table, roles, texts in ((links, OF_LINKS, ()), (items, OF_ITEMS, chosen.text_columns)):
        used = {*texts, *(getattr(chosen, f"{role}_column") for role in roles)}
        unused.append([name for name in table.names if name not in used])
        if unused[-1]:
            yield f"Not used of {table.path.name}: {_listed(unused[-1])}."
    split = _choose("split", options, items)
    if split and not chosen.split_column and options.hold_out is None:
        yield (
            f"Warning: {split} of {items.path.name} is not used as the split, since it has other"
            f" values than {', '.join(SPLITS)}. --split-column {split} names the first such row."
        )
    yield from dict.fromkeys([*links.warnings, *items.warnings])
    if options.rating_threshold is None:
        yield from _marks(links, unused[0])


def _marks(links: Table, names: Sequence[str]) -> Iterator[str]:
    """Yield a warning for each column that is 1 in some rows, and 0, -1 or missing in others: it
    seems to mark the positive links.
    """
    for name in names:
        try:
            column = links[name]
            found = pc.value_counts(column.values)
            spelled = pc.utf8_trim_whitespace(found.field("values").cast(pa.string()))
            is_missing = pc.or_kleene(pc.is_null(spelled), pc.is_in(spelled, pa.array(MISSING)))
            is_missing = pc.or_kleene(is_missing, pc.match_substring_regex(spelled, r"^\pP+$"))
            present = spelled.filter(pc.invert(is_missing))
            if len(present) > MOST_MARKS:
                continue
            values = replace(column, values=pa.chunked_array([present])).numbers()
        except (DataError, pa.ArrowException):
            continue
        counts, missing = found.field("counts").to_numpy(), is_missing.to_numpy(False)
        n_missing, n_less = counts[missing].sum(), counts[~missing][values < 1].sum()
        if (values == 1).any() and n_missing + n_less and np.isin(values, (-1, 0, 1)).all():
            less, fill = "less", ""
            if n_missing:
                less, fill = "less or missing", "write 0 where it is missing, and use "
            yield (
                f"Warning: {name} of {links.path.name} is 1 at most, and {n_missing + n_less:,}"
                f" rows where it is {less} count as links too. If they are none: {fill}"
                f"--rating-column {name} --rating-threshold 1."
            )


def _with_names(usual: Sequence[str], table: Table) -> list[str]:
    """Return the columns with some names, in the order of these."""
    return [name for plain in dict.fromkeys(usual) for name in table.names if _plain(name) == plain]


def _no_column(table: Table, what: str, advice: str) -> DataError:
    return DataError(
        f"{table.path} ({table.summary}): no column is called like {what}. Its columns:"
        f" {_listed(table.names)}. {advice}. A file without a header needs one."
    )


def _plain(name: str) -> str:
    """Return the letters and digits of a name, without RecBole's type."""
    return re.sub(r"[\W_]+", "", TYPED.sub("", name)).lower()


def _listed(names: Sequence[str]) -> str:
    # Control characters, which a terminal would obey, are spelled out.
    shown = ", ".join(
        (name or "(no name)" if name.isprintable() else name.encode("unicode_escape").decode())[:40]
        for name in names[:20]
    )
    return (shown or "none") + (", ..." if len(names) > 20 else "")
