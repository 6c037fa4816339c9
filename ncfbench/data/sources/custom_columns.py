"""Columns of users' own files: which column is what, as asked, or by names and values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ncfbench.data.ids import Ids, encode, positions, unify
from ncfbench.data.table import Table
from ncfbench.data.values import numbers
from ncfbench.errors import DataError, UsageError, nearest

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
IDS = ("id", "key", "index")
"""Usual names of a column of ids in a file about one kind of things."""


def choose(role: str, asked: str | None, table: Table) -> str | None:
    """Return the column of a role: the one asked for, or the first usual name; None without one.

    Raises:
        UsageError: the file has no such column.
    """
    if asked is not None:
        return named(asked, table, f"--{role}-column")
    return next(iter(_with_names(USUAL[role], table)), None)


def choose_id(what: str, table: Table, asked: str | None = None, same: str | None = None) -> str:
    """Return a column of ids: the one asked for, or that which is called as in the other files, or
    a usual name, preferably an id's: one called user may hold a name.

    Args:
        what: "user" or "item".
        same: what the column is called in the other files, if this is a further one.

    Raises:
        UsageError: the file has no such column.
        DataError: no column has a usual name, or several of them might be meant.
    """
    flag = f"--{what}-column"
    if asked is not None:
        return named(asked, table, flag)
    found = same and _with_names([_plain(same)], table)
    found = found or _with_names([*USUAL[what], *(IDS if same else ())], table)
    ids = [name for name in found if _is_id(name)]
    advice = f"Call it {same}, as it is elsewhere" if same else f"Name it: {flag} NAME"
    if not found:
        raise no_column(table, f"the id of {'a' if what == 'user' else 'an'} {what}", advice)
    if len(ids) > 1:
        raise _several(table, ids, what, advice)
    return (ids or found)[0]


class Match(NamedTuple):
    """A column of links and one of items that may name the same items.

    Args:
        fit: the share of links whose item is known, or of items with an id of their own, whichever
            is smaller.
        ids: what each link and each item would be called.
    """

    link: str
    item: str
    fit: float
    ids: tuple[Ids, Ids]

    @property
    def order(self) -> tuple[int, float]:
        """The larger, the likelier: first by names, then by values."""
        return -max(_rank(self.link), _rank(self.item)), self.fit

    def rivals(self, other: Match) -> bool:
        """Return whether a match is as likely as another, and makes another data set."""
        is_same = all(
            np.array_equal(own.codes, others.codes) and own.names.equals(others.names)
            for own, others in zip(self.ids, other.ids, strict=True)
        )
        rank, fit = other.order
        return self.order >= (rank, fit - 0.01) and not is_same


def choose_ids(
    in_links: str | None, in_items: str | None, links: Table, items: Table, user: str
) -> tuple[str, str, list[str]]:
    """Return the columns of an item's id in the links and in the items, and warnings.

    Candidates have a usual name, or one that both files have. Of several, those that both files
    call the same, by a usual name, are preferred; then those whose values fit, with ids' names.

    Args:
        in_links, in_items: the columns asked for, or None to guess.

    Raises:
        UsageError: a file has no such column, or it is that of users.
        DataError: no column has such a name, or several fit as well.
    """
    usual = USUAL["item"]
    others = {"", _plain(user)}.union(*USUAL.values())
    shared = {_plain(name) for name in links.names} & {_plain(name) for name in items.names}
    both = [*usual, *sorted(shared - others)]
    if in_links is not None:
        of_links = [named(in_links, links, "--item-column")]
        both.insert(0, _plain(in_links))
    elif in_items in links.names:
        of_links = [in_items]
    else:
        found = _with_names(both, links)
        of_links = [name for name in found if name != user] or found
    of_items = _with_names([*both, *IDS], items)
    if in_items is not None:
        of_items = [named(in_items, items, "--id-column")]
    for table, found, flag in (
        (links, of_links, "--item-column"),
        (items, of_items, "--id-column"),
    ):
        if not found:
            raise no_column(table, "the id of an item", f"Name it: {flag} NAME")
    if of_links == [user]:
        raise UsageError(
            f"{user} of {links.path.name} cannot be both user and item. Use --user-column or"
            " --item-column."
        )
    pairs = [(link, item) for link in of_links for item in of_items]
    if len(pairs) == 1:
        return *pairs[0], []
    matches = _matches(links, items, pairs)
    better = max(matches, key=lambda match: match.fit)
    asked = {*usual, *(_plain(name) for name in (in_links, in_items) if name)}
    close = [
        match
        for match in matches
        if _plain(match.link) == _plain(match.item) in asked and match.fit >= better.fit / 2
    ]
    close = close or [match for match in matches if match.fit >= better.fit - 0.01]
    chosen = max(close, key=lambda match: match.order)
    rivals = [match for match in close if better.fit > 0 and match.rivals(chosen)]
    flags = "--item-column {0.link} --id-column {0.item}".format
    if rivals:
        names = [f"{match.link} and {match.item}" for match in [chosen, *rivals]]
        advice = f"Name the right ones: {flags(chosen)}, for example"
        raise _several(items, names, "item", advice)
    if better.fit <= chosen.fit + 0.1:
        return chosen.link, chosen.item, []
    warning = (
        f"Warning: {chosen.item} of {items.path.name} fits {chosen.fit:.0%} of the links, and"
        f" {better.item} {better.fit:.0%}. If that is the id: {flags(better)}."
    )
    return chosen.link, chosen.item, [warning]


def _matches(links: Table, items: Table, pairs: Sequence[tuple[str, str]]) -> list[Match]:
    """Compare the values of columns; one that cannot hold ids fits nothing."""
    encoded: dict[tuple[int, str], Ids | None] = {}
    for number, table in enumerate((links, items)):
        for name in {pair[number] for pair in pairs}:
            try:
                encoded[number, name] = encode(table[name])
            except DataError:
                encoded[number, name] = None
    matches = []
    for link, item in pairs:
        one, two = encoded[0, link], encoded[1, item]
        if one is None or two is None or not len(one.names) or not len(two.names):
            continue
        (of_links, of_items), _ = unify([one, two])
        known = np.append(positions(of_links.names, of_items.names) >= 0, False)
        unique = len(of_items.names) / max(int(np.sum(of_items.codes >= 0)), 1)
        fit = min(float(np.mean(known[of_links.codes[of_links.codes >= 0]])), unique)
        matches.append(Match(link, item, fit, (of_links, of_items)))
    if not matches:
        link, item = pairs[0]
        encode(links[link]), encode(items[item])
        raise DataError(f"{items.path} holds no item with {item}, or {links.path} no link.")
    return matches


def choose_texts(
    asked: Sequence[str], asked_tokens: str | None, table: Table, *, may_guess_tokens: bool
) -> tuple[tuple[str, ...], str | None]:
    """Return the columns of text: those asked for, or all with a usual name, in the usual order;
    or the column of tokens.
    """
    if asked:
        return tuple(named(name, table, "--text-columns") for name in dict.fromkeys(asked)), None
    texts = tuple(_with_names(TEXTS, table))
    # A column called words may hold their number, so it is tokens only without any text.
    may_guess = may_guess_tokens and ("tokens" in table.names or not texts)
    tokens = choose("tokens", asked_tokens, table) if asked_tokens or may_guess else None
    return ((), tokens) if tokens else (texts, None)


def named(name: str, table: Table, flag: str) -> str:
    """Return the column of exactly this name.

    Raises:
        UsageError: the file has none.
    """
    if name not in table.names:
        raise UsageError(
            f"{flag} {name}: {table.path.name} has no such column{nearest(name, table.names)} Its"
            f" columns: {_listed(table.names)}."
        )
    return name


def describe_unused(table: Table, used: Sequence[str | None]) -> list[str]:
    """Return a message that names the columns that are not used."""
    unused = [name for name in table.names if name not in used]
    return [f"Not used of {table.path.name}: {_listed(unused)}."] if unused else []


def describe_marks(links: Table, used: Sequence[str | None]) -> list[str]:
    """Return a warning for each unused column that seems to tell positive links from others."""
    return [
        f"Warning: {name} of {links.path.name} is 1 at most, and {count:,} rows where it is less"
        f" count as links too. If they are none: --rating-column {name} --rating-threshold 1."
        for name in links.names
        if name not in used and (count := _count_not_positive(links, name))
    ]


def _count_not_positive(table: Table, name: str) -> int:
    """Return how many rows of a column of 0 and 1, or of -1 and 1, are not 1; 0 for others."""
    try:
        values = numbers(table[name])
    except DataError:
        return 0
    is_mark = (values == 1).any() and np.isin(values, (-1, 0, 1)).all()
    return int(np.sum(values < 1)) if is_mark else 0


def _with_names(usual: Sequence[str], table: Table) -> list[str]:
    """Return the columns with some names, in the order of these."""
    return [name for plain in dict.fromkeys(usual) for name in table.names if _plain(name) == plain]


def _is_id(name: str) -> bool:
    """Return whether a name is one of ids: one called movie may hold a title."""
    return _plain(name).endswith(("id", "asin", "isbn"))


def _rank(name: str) -> int:
    """Return how little a name is one of items' ids: 0 is most."""
    plain = _plain(name)
    if _is_id(name) or plain in IDS:
        return 0
    return 1 if plain in USUAL["item"] else 3 if plain in TEXTS else 2


def no_column(table: Table, what: str, advice: str) -> DataError:
    """Return the error of a file in which no column has a usual name."""
    return DataError(
        f"{table.path} ({table.summary}): no column is called like {what}. Its columns:"
        f" {_listed(table.names)}. {advice}. A file without a header needs one."
    )


def _several(table: Table, names: Sequence[str], what: str, advice: str) -> DataError:
    return DataError(
        f"{table.path}: several columns may hold the {what}'s id: {'; '.join(names)}. {advice}."
    )


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()


def _listed(names: Sequence[str]) -> str:
    # Control characters, which a terminal would obey, are spelled out.
    shown = ", ".join(
        (name or "(no name)" if name.isprintable() else name.encode("unicode_escape").decode())[:40]
        for name in names[:20]
    )
    return (shown or "none") + (", ..." if len(names) > 20 else "")
