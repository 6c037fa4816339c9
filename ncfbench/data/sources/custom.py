"""Users' own data: a file of links and a file of items, in any of the usual formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.content import (
    Content,
    distinct_links,
    split_items,
    split_newest,
    stays_with_cold_users,
)
from ncfbench.data.features import FeatureArray, FeatureTable, standardised
from ncfbench.data.ids import Ids
from ncfbench.data.markup import clean_markup, has_html
from ncfbench.data.options import TokenizerOptions, as_flags, option
from ncfbench.data.readers.files import sha256
from ncfbench.data.sources import Preparation, Progress, Statistics
from ncfbench.data.sources.custom_columns import (
    choose,
    choose_id,
    choose_ids,
    choose_texts,
    choose_user,
    named,
)
from ncfbench.data.sources.custom_files import Files, describe_missing
from ncfbench.data.sources.filters import count_removed, keep_frequent, sample_users
from ncfbench.data.table import Table, read_table
from ncfbench.data.text import Corpus, Texts, Vocabulary
from ncfbench.errors import DataError, UsageError

STATISTICS: Statistics | None = None
LINKS, ITEMS, SPLIT = "Columns of the links", "Columns of the items", "Links and items to keep"
FEATURES = "Dense features"


@dataclass(frozen=True, kw_only=True)
class Options(TokenizerOptions):
    """Options of the source; a column that is None is found by its usual names."""

    links: Path = option(
        help_="A row for each link: CSV, TSV, JSON Lines or Parquet; may be compressed.",
        is_stored=False,
    )
    items: Path = option(
        help_="A row for each item, with its id and its text; of the same formats.",
        is_stored=False,
    )
    user_column: str | None = option(
        None, "The user's id.", panel=LINKS, shown="user, user_id, ..."
    )
    item_column: str | None = option(
        None, "The item's id.", panel=LINKS, shown="item, item_id, movieId, asin, ..."
    )
    rating_column: str | None = option(
        None, "Ratings, for --rating-threshold.", panel=LINKS, shown="rating, score, ..."
    )
    time_column: str | None = option(
        None,
        "Numbers or dates, for --split time.",
        panel=LINKS,
        shown="timestamp, time, date, ...",
    )
    id_column: str | None = option(
        None, "The item's id.", panel=ITEMS, shown="as in the links, id, ..."
    )
    text_columns: tuple[str, ...] = option(
        (),
        "An item's text is made of these, in order, separated by commas.",
        panel=ITEMS,
        shown="title, abstract, description, ...: all that are there",
    )
    tokens_column: str | None = option(
        None,
        "Instead of a text: tokens already made, a list or separated by spaces.",
        panel=ITEMS,
        shown="tokens, words",
    )
    clean_markup: bool = option(
        False,
        "Remove HTML's tags and entities and LaTeX from the texts.",
        panel=ITEMS,
        omits_default=True,
    )
    split_column: str | None = option(
        None, "Each item's split: train, validation or test.", panel=ITEMS, shown="split, fold, ..."
    )
    item_features: Path | None = option(
        None,
        "Numbers that describe each item, such as an image's embedding: a table with the items'"
        " ids whose other columns are numbers or lists of numbers, or a .npy array with a row for"
        " each row of --items.",
        panel=FEATURES,
        is_stored=False,
    )
    feature_columns: tuple[str, ...] = option(
        (),
        "Or columns of --items that hold such numbers, separated by commas.",
        panel=FEATURES,
        omits_default=True,
    )
    user_features: Path | None = option(
        None,
        "Numbers that describe each user: a table with the users' ids.",
        panel=FEATURES,
        is_stored=False,
    )
    cold_user_fraction: float = option(
        0.0,
        "Share of the users held out: none of their links is trained on, and recall for them"
        " stands by itself. It needs --user-features.",
        panel=FEATURES,
        at_least=0,
        below=1,
        omits_default=True,
    )
    rating_threshold: float | None = option(
        None,
        "A row is a link if its rating is this or more (implicit feedback).",
        panel=SPLIT,
        shown="every row is a link",
    )
    split: str | None = option(
        None,
        "Which items are held out: random; time, those whose first link is newest; column.",
        panel=SPLIT,
        shown="column where there is one, else random",
        choices=("random", "time", "column"),
    )
    min_user_links: int = option(
        1,
        "Leave out users of fewer links, again and again until none is left.",
        panel=SPLIT,
        at_least=0,
    )
    min_item_links: int = option(
        1, "The same for items; 0 keeps those without any link.", panel=SPLIT, at_least=0
    )
    sample_users: int | None = option(
        None,
        "For a quick first answer: keep this many of the users that are left, drawn at random by"
        " --split-seed, with all their links, and no items that they have no link to. The minimum"
        " numbers of links are counted before.",
        panel=SPLIT,
        shown="all",
        at_least=1,
        omits_default=True,
    )
    delimiter: str | None = option(
        None,
        "Delimiter of the CSV files that have it.",
        shown="comma, tab, semicolon or bar",
        is_stored=False,
    )
    quotes: bool = option(
        True, "Whether quotation marks enclose fields of CSV files.", is_stored=False
    )
    encoding: str = option("utf-8", "Encoding of CSV files, such as latin-1.", is_stored=False)
    split_seed: int = option(
        0, "Seed of the choice of held-out items, and of --sample-users.", at_least=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split_column and self.split not in (None, "column"):
            raise UsageError(
                f"--split-column {self.split_column} and --split {self.split} exclude each other."
            )
        if self.tokens_column and self.text_columns:
            raise UsageError(
                "--tokens-column and --text-columns exclude each other: a text is made of one or"
                " the other."
            )
        if self.tokenizer and self.tokens_column:
            raise UsageError(
                "--tokenizer and --tokens-column exclude each other: it makes the tokens itself."
            )
        if self.item_features and self.feature_columns:
            raise UsageError(
                "--item-features and --feature-columns exclude each other: put all features into"
                " one file."
            )
        if self.cold_user_fraction and not self.user_features:
            raise UsageError(
                "--cold-user-fraction needs --user-features: of a user without links nothing else"
                " is known."
            )

    @property
    def has_item_features(self) -> bool:
        """True if items have dense features."""
        return bool(self.item_features or self.feature_columns)

    def arguments(self) -> list[str]:
        """Return the words of a command that name the files and how they are read."""
        reading: dict[str, Any] = {"delimiter": self.delimiter}
        reading |= {} if self.quotes else {"quotes": False}
        reading |= {} if self.encoding == "utf-8" else {"encoding": self.encoding}
        files = {role: path.name for role, path in self.files().items()}
        reading |= {"tokenizer": self.tokenizer.name} if self.tokenizer else {}
        return as_flags(files | reading)

    def files(self) -> dict[str, Path]:
        """Return the user's files by the names of their options."""
        names = ("links", "items", "item_features", "user_features")
        paths = {name: getattr(self, name) for name in names}
        return {name: path for name, path in paths.items() if path is not None}


def plan(
    options: Options, *, say: Callable[[str], None], progress: Progress = nullcontext
) -> Preparation:
    """Read the files and choose their columns; see :class:`ncfbench.data.sources.SourceModule`.

    Raises:
        DataError: a file cannot be read, or no column has the name that is needed.
        UsageError: a choice that these files do not allow.
    """
    chosen = choose_columns(options)
    for line in chosen.describe():
        say(line)
    files = {
        role: {"name": path.name, "sha256": sha256(path)} for role, path in options.files().items()
    }
    stored = options.stored() | chosen.stored()
    stored["min_user_links"] = max(options.min_user_links, 1)
    return Preparation(
        {"files": files, "arguments": options.arguments(), **options.tokenizer_origin()},
        stored,
        partial(read_content, options, chosen, say=say),
    )


def choose_columns(options: Options) -> Files:
    """Read the files and choose their columns.

    Raises:
        DataError: a file cannot be read, or no column has the name that is needed.
        UsageError: a column that was asked for is missing, or a choice that these files do not
            allow.
    """
    look = partial(
        read_table, quotes=options.quotes, encoding=options.encoding, delimiter=options.delimiter
    )
    links, items = look(options.links), look(options.items)
    user = choose_user(options.user_column, links)
    item, id_, warnings = choose_ids(options.item_column, options.id_column, links, items, user)
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
    return Files(
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
        user_features=_choose_user_features(options.user_features, user, look),
        item_features=_choose_item_features(options, items, id_, look),
        warnings=tuple(warnings),
    )


def _choose_text(options: Options, items: Table) -> tuple[tuple[str, ...], str | None]:
    """Choose the columns of text, or the column of tokens."""
    texts = choose_texts(options.text_columns, items)
    # A column called words may hold their number, so it is tokens only without any text.
    may_guess = ("tokens" in items.names or not texts) and not options.tokenizer
    tokens = None
    if not options.text_columns and (may_guess or options.tokens_column):
        tokens = choose("tokens", options.tokens_column, items)
    if tokens:
        return (), tokens
    if not texts and not options.has_item_features:
        raise DataError(
            f"{items.path} ({items.summary}): no column is called like a text. Its columns:"
            f" {', '.join(items.names)}. Name some: --text-columns A,B, or --tokens-column NAME;"
            " or give --item-features."
        )
    return texts, None


def _choose_item_features(
    options: Options, items: Table, id_: str, look: Callable[[Path], Table]
) -> FeatureTable | FeatureArray | None:
    if options.feature_columns:
        names = tuple(named(name, items, "--feature-columns") for name in options.feature_columns)
        return FeatureTable(items, "item", id_, names)
    path = options.item_features
    if path is None:
        return None
    if path.suffix == ".npy":
        return FeatureArray.open(path)
    table = look(path)
    return FeatureTable.of(table, "item", choose_id("item", id_, table))


def _choose_user_features(
    path: Path | None, user: str, look: Callable[[Path], Table]
) -> FeatureTable | None:
    if path is None:
        return None
    if path.suffix == ".npy":
        raise UsageError(
            f"--user-features {path}: an array does not say which user a row belongs to. Give a"
            f" table with a column {user}, such as Parquet with a list in each row."
        )
    table = look(path)
    return FeatureTable.of(table, "user", choose_id("user", user, table))


def read_content(options: Options, files: Files, *, say: Callable[[str], None]) -> Content:
    """Read the links, which decide what items are kept, and then those items' texts and features.

    Raises:
        DataError: a file is damaged, nothing is left, or an item or a user lacks its features.
    """
    removed: dict[str, int] = {}
    ids = files.read_ids(say)
    items = files.read_items(ids["items"], removed)
    links = files.read_links(ids["links_user"], ids["links_item"], items.ids, removed, say)
    frequent = keep_frequent(links, len(items.ids), options.min_user_links, options.min_item_links)
    sampled = sample_users(
        links,
        frequent,
        options.sample_users,
        options.split_seed,
        keep_items=not options.min_item_links,
    )
    removed |= count_removed(frequent, sampled)
    kept_users, kept_items, kept = sampled
    if not kept.any():
        raise DataError(
            f"No link is left of {options.links} with --min-user-links {options.min_user_links} and"
            f" --min-item-links {options.min_item_links}."
        )
    user_number, item_number = (
        np.cumsum(flags, dtype=np.int32) - 1 for flags in (kept_users, kept_items)
    )
    link_users, link_items, removed["duplicate_links"] = distinct_links(
        user_number[links.users[kept]], item_number[links.items[kept]]
    )
    n_items = int(kept_items.sum())
    if files.split == "column":
        split = items.splits[kept_items]
    elif files.split == "time":
        first = np.full(n_items, np.inf)
        np.minimum.at(first, item_number[links.items[kept]], links.times[kept])
        first[np.isinf(first)] = -np.inf  # without a link there is nothing to find
        split = split_newest(first, options.test_fraction, options.validation_fraction)
    else:
        split = split_items(
            n_items, options.test_fraction, options.validation_fraction, options.split_seed
        )
    is_trained = split == 0
    if not is_trained[link_items].any():
        raise DataError("There is nothing to train on: every link belongs to a held-out item.")
    user_ids = links.user_ids.filter(pa.array(kept_users))
    item_ids = items.ids.filter(pa.array(kept_items))
    rows = items.rows[kept_items]
    if options.cold_user_fraction:
        stays = stays_with_cold_users(
            link_users,
            is_trained[link_items],
            len(user_ids),
            options.cold_user_fraction,
            options.split_seed,
        )
        removed["links_of_cold_users"] = int(np.sum(~stays))
        link_users, link_items = link_users[stays], link_items[stays]
    has_links = np.bincount(link_users[is_trained[link_items]], minlength=len(user_ids)) > 0
    user_features = item_features = None
    if files.user_features:
        found = files.user_features.read(ids["user_features"], user_ids)
        user_features = standardised(found, files.user_features, user_ids, has_links, say)
    if files.item_features:
        if isinstance(files.item_features, FeatureTable):
            found = files.item_features.read(ids["item_features"], item_ids)
        else:
            found = files.item_features.read(rows, len(ids["items"].codes))
        item_features = standardised(found, files.item_features, item_ids, is_trained, say)
    texts, vocabulary = _corpus(options, files, rows, say)
    for line in describe_removed(removed, ids, len(user_ids), options):
        say(line)
    return Content(
        n_users=len(user_ids),
        users=link_users,
        items=link_items,
        texts=texts,
        vocabulary=vocabulary,
        split=split,
        user_ids=user_ids,
        item_ids=item_ids,
        removed=removed,
        user_features=user_features,
        item_features=item_features,
    )


def _corpus(
    options: Options,
    files: Files,
    rows: NDArray[np.int64],
    say: Callable[[str], None],
) -> tuple[Texts, Vocabulary]:
    """Return the texts of the items in some rows; no words where no column holds a text."""
    if not files.texts and not files.tokens:
        return Texts(np.zeros(0, np.int32), np.zeros(len(rows), np.int32)), Vocabulary((), ())
    corpus = Corpus(options.pieces(), clean_markup if options.clean_markup else None)
    with_html = 0

    def tokenized(text: str) -> list[str]:
        nonlocal with_html
        with_html += not options.clean_markup and has_html(text)
        return corpus.tokenize(text)

    for tokens in files.read_texts(rows, tokenized):
        corpus.add(tokens)
    if with_html:
        say(
            f"{with_html:,} of {len(rows):,} texts hold tags or entities of HTML, which count as"
            " words: --clean-markup removes them."
        )
    return corpus.finish(options.min_count, options.vocabulary_size, options.max_length)


def describe_removed(
    removed: Mapping[str, int], ids: Mapping[str, Ids], n_users: int, options: Options
) -> Iterator[str]:
    """Yield a message for each reason for which something was left out.

    Args:
        n_users: number of users who are kept.
    """
    links, items, id_ = options.links.name, options.items.name, ids["items"].column.name
    fewer = {
        name: "without a link" if least <= 1 else f"of fewer than {least} links"
        for name, least in (("users", options.min_user_links), ("items", options.min_item_links))
    }
    messages = {
        "items_without_id": f"rows of {items} without {id_}",
        "duplicate_items": f"rows of {items} that repeat the {id_} of an earlier one",
        "links_without_id": f"rows of {links} without a user or an item",
        "links_to_unknown_items": f"links to items that {items} does not have",
        "duplicate_links": f"links of {links} that are given again",
        "links_of_rare": "links of users or items that are left out",
        "rare_users": f"users {fewer['users']}",
        "rare_items": f"items {fewer['items']}",
    }
    spelled = {
        "items_without_id": describe_missing(ids["items"]),
        "links_without_id": describe_missing(ids["links_user"], ids["links_item"]),
    }
    for reason, message in messages.items():
        if removed.get(reason):
            yield f"Warning: left out, {message}: {removed[reason]:,}.{spelled.get(reason, '')}"
    if removed["links_below_threshold"]:
        yield (
            f"Rows of {links} below the threshold, which are not links:"
            f" {removed['links_below_threshold']:,}."
        )
    if cold := removed.get("links_of_cold_users"):
        yield f"Links of cold users that are not trained on: {cold:,}."
    if options.sample_users is None:
        return
    not_drawn = removed["users_not_drawn"]
    if not_drawn:
        yield (
            f"A sample: {n_users:,} of {n_users + not_drawn:,} users; left out with the others:"
            f" {removed['links_of_users_not_drawn']:,} links,"
            f" {removed['items_not_drawn']:,} items without a link."
        )
    else:
        yield f"--sample-users {options.sample_users:,}: there are {n_users:,} users; all are kept."
