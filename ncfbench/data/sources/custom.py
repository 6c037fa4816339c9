"""Users' own data: a file of links and a file of items, in any of the usual formats."""

from __future__ import annotations

from collections.abc import Callable
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
    hold_out,
    split_items,
    stays_with_cold_users,
)
from ncfbench.data.features import Features
from ncfbench.data.files import sha256
from ncfbench.data.markup import clean_markup, has_html
from ncfbench.data.options import TokenizerOptions, as_flags, option
from ncfbench.data.sources import Preparation, Progress, Statistics
from ncfbench.data.sources.custom_columns import (
    choose,
    choose_id,
    choose_ids,
    choose_texts,
    describe_marks,
    describe_unused,
    named,
    no_column,
)
from ncfbench.data.sources.custom_files import Files, Removed
from ncfbench.data.table import Table, read_table
from ncfbench.data.text import Corpus, Texts, Vocabulary
from ncfbench.errors import DataError, UsageError

STATISTICS: Statistics | None = None
_of_links = partial(option, panel="Columns of the links")
_of_items = partial(option, panel="Columns of the items")
_of_split = partial(option, panel="Links and items to keep")
DENSE = "Dense features"
_dense = partial(option, panel=DENSE)
_reading = partial(option, is_stored=False)


@dataclass(frozen=True, kw_only=True)
class Options(TokenizerOptions):
    """Options of the source; a column that is None is found by its usual names."""

    links: Path = option(
        help_="A row for each link: CSV, TSV, JSON Lines or Parquet (or a folder of it).",
        is_stored=False,
    )
    items: Path = option(
        help_="A row for each item, with its id and its text; of the same formats.",
        is_stored=False,
    )
    user_column: str | None = _of_links(None, "The user's id.", shown="user, user_id, ...")
    item_column: str | None = _of_links(
        None, "The item's id.", shown="item, item_id, movieId, asin, ..."
    )
    rating_column: str | None = _of_links(
        None, "Ratings, for --rating-threshold.", shown="rating, score, ..."
    )
    time_column: str | None = _of_links(
        None, "Numbers or dates, for --split time.", shown="timestamp, time, date, ..."
    )
    id_column: str | None = _of_items(None, "The item's id.", shown="as in the links, id, ...")
    text_columns: tuple[str, ...] = _of_items(
        (),
        "An item's text is made of these, in order, separated by commas.",
        shown="title, abstract, description, ...: all that are there",
    )
    tokens_column: str | None = _of_items(
        None,
        "Instead of a text: tokens already made, a list or separated by spaces.",
        shown="tokens, words",
    )
    clean_markup: bool = _of_items(
        False, "Remove HTML's tags and entities and LaTeX from the texts.", omits_default=True
    )
    split_column: str | None = _of_items(
        None, "Each item's split: train, validation or test.", shown="split, fold, ..."
    )
    item_features: Path | None = option(
        None,
        "Numbers that describe each item, such as an image's embedding: a table with the items'"
        " ids whose other columns are numbers or lists of numbers, or a .npy array with a row for"
        " each row of --items.",
        panel=DENSE,
        is_stored=False,
    )
    feature_columns: tuple[str, ...] = _dense(
        (), "Or columns of --items that hold such numbers, separated by commas.", omits_default=True
    )
    user_features: Path | None = option(
        None,
        "Numbers that describe each user: a table with the users' ids.",
        panel=DENSE,
        is_stored=False,
    )
    cold_user_fraction: float = _dense(
        0.0,
        "Share of the users held out: none of their links is trained on, and recall for them"
        " stands by itself. It needs --user-features.",
        at_least=0,
        below=1,
        omits_default=True,
    )
    rating_threshold: float | None = _of_split(
        None,
        "A row is a link if its rating is this or more (implicit feedback).",
        shown="every row is a link",
    )
    split: str | None = _of_split(
        None,
        "Which items are held out: random; time, those whose first link is newest; column.",
        shown="column where there is one, else random",
        choices=("random", "time", "column"),
    )
    min_user_links: int = _of_split(
        1, "Leave out users of fewer links, again and again until none is left.", at_least=0
    )
    min_item_links: int = _of_split(
        1, "The same for items; 0 keeps those without any link.", at_least=0
    )
    sample_users: int | None = _of_split(
        None,
        "For a quick first answer: keep this many of the users that are left, drawn at random by"
        " --split-seed, with all their links, and no items that they have no link to. The minimum"
        " numbers of links are counted before.",
        shown="all",
        at_least=1,
        omits_default=True,
    )
    delimiter: str | None = _reading(
        None, "Delimiter of the CSV files that have it.", shown="comma, tab, semicolon or bar"
    )
    quotes: bool = _reading(True, "Whether quotation marks enclose fields of CSV files.")
    encoding: str = _reading("utf-8", "Encoding of text files, such as latin-1.")
    split_seed: int = option(
        0, "Seed of the choice of held-out items, and of --sample-users.", at_least=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        excluded = {
            ("tokens_column", "text_columns"): "a text is made of one or the other",
            ("tokens_column", "tokenizer"): "it makes the tokens itself",
            ("item_features", "feature_columns"): "put all features into one file",
        }
        if self.split != "column":
            excluded["split", "split_column"] = "the column gives the split"
        for (one, two), why in excluded.items():
            if getattr(self, one) and getattr(self, two):
                flags = " and ".join(f"--{name.replace('_', '-')}" for name in (one, two))
                raise UsageError(f"{flags} exclude each other: {why}.")
        if self.cold_user_fraction and not self.user_features:
            raise UsageError(
                "--cold-user-fraction needs --user-features: of a user without links nothing else"
                " is known."
            )

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
    chosen = _choose_columns(options, say)
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


def _choose_columns(options: Options, say: Callable[[str], None]) -> Files:
    look = partial(
        read_table, quotes=options.quotes, encoding=options.encoding, delimiter=options.delimiter
    )
    links, items = look(options.links), look(options.items)
    user = choose_id("user", links, options.user_column)
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
    texts, tokens = choose_texts(
        options.text_columns, options.tokens_column, items, may_guess_tokens=not options.tokenizer
    )
    if not (texts or tokens or options.item_features or options.feature_columns):
        raise no_column(
            items,
            "a text",
            "Name some: --text-columns A,B; or --tokens-column NAME, or --item-features",
        )
    files = Files(
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
        features=_choose_features(options, items, user, id_, look),
    )
    of_links = (user, item, files.rating, files.time)
    of_items = (id_, *texts, tokens, files.split_column, *(options.feature_columns or ()))
    for line in (
        *files.describe(rating),
        *describe_unused(links, of_links),
        *describe_unused(items, of_items),
        *links.warnings,
        *items.warnings,
        *warnings,
        *(describe_marks(links, of_links) if threshold is None else ()),
    ):
        say(line)
    return files


def _choose_features(
    options: Options, items: Table, user: str, id_: str, look: Callable[[Path], Table]
) -> dict[str, Features]:
    found = {}
    if path := options.user_features:
        if path.suffix == ".npy":
            raise UsageError(
                f"--user-features {path}: an array does not say which user a row belongs to. Give"
                f" a table with a column {user}, such as Parquet with a list in each row."
            )
        table = look(path)
        found["user"] = Features.of_table(table, "user", choose_id("user", table, same=user))
    if options.feature_columns:
        names = [named(name, items, "--feature-columns") for name in options.feature_columns]
        found["item"] = Features.of_table(items, "item", id_, names)
    elif path := options.item_features:
        if path.suffix == ".npy":
            found["item"] = Features.of_array(path, len(items[id_].values))
        else:
            table = look(path)
            found["item"] = Features.of_table(table, "item", choose_id("item", table, same=id_))
    return found


def read_content(options: Options, files: Files, *, say: Callable[[str], None]) -> Content:
    """Read the links, which decide what items are kept, and then those items' texts and features.

    Raises:
        DataError: a file is damaged, nothing is left, or an item or a user lacks its features.
    """
    removed = Removed(say)
    ids = files.read_ids(say)
    items = files.read_items(ids["items"], removed)
    links = files.read_links(ids["links_user"], ids["links_item"], items.ids, removed)
    links.keep_frequent(options.min_user_links, options.min_item_links, removed)
    seed, fractions = options.split_seed, (options.test_fraction, options.validation_fraction)
    if options.sample_users:
        links.sample_users(options.sample_users, seed, not options.min_item_links, removed)
    kept = links.keeps
    if not kept.any():
        raise DataError(
            f"No link is left of {options.links} with --min-user-links {options.min_user_links} and"
            f" --min-item-links {options.min_item_links}."
        )
    user_number, item_number = (
        np.cumsum(flags, dtype=np.int32) - 1 for flags in (links.keeps_user, links.keeps_item)
    )
    item_of_row = item_number[links.items[kept]]
    link_users, link_items, repeated = distinct_links(user_number[links.users[kept]], item_of_row)
    removed.warn("duplicate_links", repeated, f"links of {options.links.name} that are given again")
    user_ids = links.user_ids.filter(pa.array(links.keeps_user))
    item_ids = items.ids.filter(pa.array(links.keeps_item))
    if files.split == "column":
        split = items.splits[links.keeps_item]
    elif files.split == "time":
        first = np.full(len(item_ids), np.inf)
        np.minimum.at(first, item_of_row, links.times[kept])
        first[np.isinf(first)] = -np.inf  # without a link there is nothing to find
        # Newest first; among equals the later item counts as newer.
        split = hold_out(np.argsort(first, kind="stable")[::-1], *fractions)
    else:
        split = split_items(len(item_ids), *fractions, seed)
    is_trained = split == 0
    if not is_trained[link_items].any():
        raise DataError("There is nothing to train on: every link belongs to a held-out item.")
    if options.cold_user_fraction:
        stays = stays_with_cold_users(
            link_users, is_trained[link_items], len(user_ids), options.cold_user_fraction, seed
        )
        what = "Links of cold users that are not trained on"
        removed.add("links_of_cold_users", np.sum(~stays), what)
        link_users, link_items = link_users[stays], link_items[stays]
    has_links = np.bincount(link_users[is_trained[link_items]], minlength=len(user_ids)) > 0
    rows = items.rows[links.keeps_item]
    features = {}
    for what, found in files.features.items():
        is_user = what == "user"
        kept_ids, fitted = (user_ids, has_links) if is_user else (item_ids, is_trained)
        own = ids.get(f"{what}_features")
        at = rows if own is None else found.rows_of(own, kept_ids)
        features[f"{what}_features"] = found.standardised(at, kept_ids, fitted, say)
    texts, vocabulary = (
        Texts(np.zeros(0, np.int32), np.zeros(len(rows), np.int32)),
        Vocabulary((), ()),
    )
    if files.texts or files.tokens:
        corpus = Corpus(options.pieces(), clean_markup if options.clean_markup else None)
        with_html = _fill(corpus, files, rows)
        if with_html and not options.clean_markup:
            say(
                f"{with_html:,} of {len(rows):,} texts hold tags or entities of HTML, which count"
                " as words: --clean-markup removes them."
            )
        texts, vocabulary = corpus.finish(
            options.min_count, options.vocabulary_size, options.max_length
        )
    return Content(
        n_users=len(user_ids),
        users=link_users,
        items=link_items,
        texts=texts,
        vocabulary=vocabulary,
        split=split,
        user_ids=user_ids,
        item_ids=item_ids,
        removed=removed.counts,
        **features,
    )


def _fill(corpus: Corpus, files: Files, rows: NDArray[np.int64]) -> int:
    """Add the texts of the items in some rows; return how many hold HTML."""
    with_html = 0

    def tokenized(text: str) -> list[str]:
        nonlocal with_html
        with_html += has_html(text)
        return corpus.tokenize(text)

    for tokens in files.read_texts(rows, tokenized):
        corpus.add(tokens)
    return with_html
