"""What users choose of their own data, and what the two files have to choose from."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ncfbench.data.custom.guesses import choose, choose_ids, choose_texts
from ncfbench.data.options import ItemOptions
from ncfbench.data.readers.rows import RowFile, open_rows
from ncfbench.errors import DataError, UsageError
from ncfbench.registry import nearest

SPLIT_WAYS = ("random", "time", "column")
READING = ("delimiter", "quotes", "encoding")
"""Options that decide how the files are read, and so nothing of the content that they have."""


@dataclass(frozen=True, kw_only=True)
class Options(ItemOptions):
    """What decides the prepared content; of columns, None stands for the usual names."""

    user_column: str | None = None
    item_column: str | None = None
    rating_column: str | None = None
    time_column: str | None = None
    id_column: str | None = None
    text_columns: tuple[str, ...] = ()
    tokens_column: str | None = None
    split_column: str | None = None
    rating_threshold: float | None = None
    split: str | None = None
    min_user_links: int = 1
    min_item_links: int = 1
    delimiter: str | None = None
    quotes: bool = True
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split is not None and self.split not in SPLIT_WAYS:
            raise UsageError(
                f"split = {self.split!r}{nearest(self.split, SPLIT_WAYS)} Valid:"
                f" {', '.join(SPLIT_WAYS)}."
            )
        if self.split_column and self.split not in (None, "column"):
            raise UsageError(
                f"--split-column {self.split_column} and --split {self.split} exclude each other."
            )
        if self.tokens_column and self.text_columns:
            raise UsageError(
                "--tokens-column and --text-columns exclude each other: a text is made of one or"
                " the other."
            )
        if self.rating_threshold is not None and not np.isfinite(self.rating_threshold):
            raise UsageError(f"rating_threshold = {self.rating_threshold}: it must be a number.")
        for name in ("min_user_links", "min_item_links"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} = {getattr(self, name)}: it must be at least 0.")


@dataclass(frozen=True)
class Plan:
    """Two files, and which of their columns is what."""

    links: RowFile
    items: RowFile
    user: str
    item: str
    rating: str | None
    time: str | None
    id: str
    texts: tuple[str, ...]
    tokens: str | None
    split: str
    """One of :data:`SPLIT_WAYS`."""
    split_column: str | None
    options: Options = field(repr=False)

    @classmethod
    def make(cls, links: Path, items: Path, options: Options) -> Plan:
        """Look at both files and choose their columns.

        Raises:
            DataError: a file cannot be read, or no column has the name that is needed.
            UsageError: a column that was asked for is not there, or a choice that these files do
                not allow.
        """
        look = partial(
            open_rows, quotes=options.quotes, encoding=options.encoding, delimiter=options.delimiter
        )
        of_links, of_items = look(links), look(items)
        user = str(choose("user", options.user_column, of_links, needed=True))
        item, id_ = choose_ids(options.item_column, options.id_column, of_links, of_items)
        if user == item:
            raise UsageError(
                f"{user} of {links.name} cannot be both user and item. Use --user-column or"
                " --item-column."
            )
        threshold, lacks = options.rating_threshold, f"{links.name} has no column of"
        rating = choose("rating", options.rating_column, of_links)
        if threshold is not None and rating is None:
            raise UsageError(
                f"--rating-threshold {threshold:g}: {lacks} ratings. Name it: --rating-column NAME."
            )
        time = choose("time", options.time_column, of_links)
        if options.split == "time" and time is None:
            raise UsageError(f"--split time: {lacks} times. Name it: --time-column NAME.")
        split_column = choose("split", options.split_column, of_items)
        if options.split == "column" and split_column is None:
            raise UsageError(
                f"--split column: {items.name} has no column called split. Name it: --split-column"
                " NAME."
            )
        split = options.split or ("column" if split_column else "random")
        texts = choose_texts(options.text_columns, of_items)
        guess = "tokens" in of_items.columns or not texts  # words may be how many there are
        is_open = not options.text_columns and (guess or options.tokens_column)
        tokens = choose("tokens", options.tokens_column, of_items) if is_open else None
        texts = () if tokens else texts
        if not texts and not tokens:
            raise DataError(
                f"{items} ({of_items.summary}): no column is called like a text. Its columns:"
                f" {', '.join(of_items.columns)}. Name some: --text-columns A,B, or --tokens-column"
                " NAME."
            )
        return cls(
            links=of_links,
            items=of_items,
            user=user,
            item=item,
            rating=rating if threshold is not None else None,
            time=time if split == "time" else None,
            id=id_,
            texts=texts,
            tokens=tokens,
            split=split,
            split_column=split_column if split == "column" else None,
            options=options,
        )

    def describe(self) -> list[str]:
        """What was chosen, a line for each file."""
        ratings = ", every row a link"
        if self.rating:
            ratings = f", of {self.rating} {self.options.rating_threshold:g} and more"
        elif unused := choose("rating", None, self.links):
            ratings += f" whatever its {unused} (--rating-threshold)"
        times = f", times {self.time}" if self.time else ""
        text = f"tokens {self.tokens}" if self.tokens else f"text {', '.join(self.texts)}"
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

    def settings(self) -> dict[str, Any]:
        """The options as they were carried out, for the manifest: guesses are spelled out."""
        chosen = {
            "user_column": self.user,
            "item_column": self.item,
            "rating_column": self.rating,
            "time_column": self.time,
            "id_column": self.id,
            "text_columns": list(self.texts),
            "tokens_column": self.tokens,
            "split": self.split,
            "split_column": self.split_column,
            "min_user_links": max(self.options.min_user_links, 1),
        }
        stored = self.options.stored()
        for name in READING:
            del stored[name]
        return stored | chosen

    def arguments(self) -> list[str]:
        """Words of the command that say where the content is and how it is read, but not what it
        is.
        """
        words = ["--links", self.links.path.name, "--items", self.items.path.name]
        if self.options.delimiter is not None:
            words += ["--delimiter", self.options.delimiter]
        if not self.options.quotes:
            words.append("--no-quotes")
        return words + (
            ["--encoding", self.options.encoding] if self.options.encoding != "utf-8" else []
        )
