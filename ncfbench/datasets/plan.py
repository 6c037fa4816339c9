"""What users choose of their own data, and what the two files have to choose from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ncfbench.datasets.guesses import choose, choose_texts
from ncfbench.datasets.options import ItemOptions
from ncfbench.datasets.rows import RowFile, open_rows
from ncfbench.errors import DataError, UsageError
from ncfbench.registry import nearest

SPLIT_WAYS = ("random", "time", "column")


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
            raise UsageError(f"split = {self.split!r}{nearest(self.split, SPLIT_WAYS)} Valid: {', '.join(SPLIT_WAYS)}.")
        if self.split_column and self.split not in (None, "column"):
            raise UsageError(f"--split-column {self.split_column} and --split {self.split} exclude each other.")
        if self.tokens_column and self.text_columns:
            raise UsageError("--tokens-column and --text-columns exclude each other: a text is made of one or the other.")
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
            UsageError: a column that was asked for is not there, or a choice that these files do not allow.
        """
        more = {"quotes": options.quotes, "encoding": options.encoding, "delimiter": options.delimiter}
        of_links, of_items = open_rows(links, **more), open_rows(items, **more)  # type: ignore[arg-type]
        user = str(choose("user", options.user_column, of_links, needed=True))
        item = str(choose("item", options.item_column, of_links, needed=True))
        id_ = str(choose("item", options.id_column, of_items, needed=True, more=("id", "key", "index")))
        threshold, lacks = options.rating_threshold, f"{links.name} has no column of"
        rating = choose("rating", options.rating_column, of_links, needed=False)
        if threshold is not None and rating is None:
            raise UsageError(f"--rating-threshold {threshold:g}: {lacks} ratings. Name it: --rating-column NAME.")
        time = choose("time", options.time_column, of_links, needed=False)
        if options.split == "time" and time is None:
            raise UsageError(f"--split time: {lacks} times. Name it: --time-column NAME.")
        split_column = choose("split", options.split_column, of_items, needed=False)
        if options.split == "column" and split_column is None:
            raise UsageError(f"--split column: {items.name} has no column called split. Name it: --split-column NAME.")
        split = options.split or ("column" if split_column else "random")
        tokens = None if options.text_columns else choose("tokens", options.tokens_column, of_items, needed=False)
        texts = () if tokens else choose_texts(options.text_columns, of_items)
        if not texts and not tokens:
            raise DataError(
                f"{items} ({of_items.summary}): no column is called like a text. Its columns: {', '.join(of_items.columns)}. "
                f"Name some: --text-columns A,B, or --tokens-column NAME."
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
        elif unused := choose("rating", None, self.links, needed=False):
            ratings += f" whatever its {unused} (--rating-threshold)"
        times = f", times {self.time}" if self.time else ""
        text = f"tokens {self.tokens}" if self.tokens else f"text {', '.join(self.texts)}"
        splits = {"random": "random", "time": "the newest items are held out", "column": f"column {self.split_column}"}
        return [
            f"Links: {self.links.path.name} ({self.links.summary}): user {self.user}, item {self.item}{times}{ratings}.",
            f"Items: {self.items.path.name} ({self.items.summary}): id {self.id}, {text}. Split: {splits[self.split]}.",
            *self.links.warnings,
            *self.items.warnings,
        ]

    def settings(self) -> dict[str, Any]:
        """The options as they were carried out, for the manifest: guesses are spelled out."""
        chosen = {
            "user_column": self.user, "item_column": self.item, "rating_column": self.rating, "time_column": self.time,
            "id_column": self.id, "text_columns": list(self.texts), "tokens_column": self.tokens, "split": self.split,
            "split_column": self.split_column,
        }  # fmt: skip
        return self.options.stored() | chosen
