"""Options of users' own data: the files, their columns, and what is kept of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ncfbench.data.options import DENSE, USUAL_LSA, TextOptions, lsa_option, option
from ncfbench.errors import UsageError

STORED_SPLIT = {None: "random", "items": "random", "newest-items": "time"}
"""The stored option ``split`` of each hold-out that has one; else ``hold_out`` is stored."""
_of_links = partial(option, panel="Columns of the links")
_of_items = partial(option, panel="Columns of the items")
_of_split = partial(option, panel="Links and items to keep")


@dataclass(frozen=True, kw_only=True)
class Options(TextOptions):
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
        None,
        "Times, for --hold-out newest-items, last and time.",
        shown="timestamp, time, date, ...",
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
    split_column: str | None = _of_items(
        None,
        "Each item's split: train, validation or test. It decides what is held out.",
        shown="split, if it has these alone, without --hold-out",
    )
    item_features: Path | None = option(
        None,
        "Numbers that describe each item, such as an image's embedding: a .npy array with a row for"
        " each row of --items.",
        panel=DENSE,
        is_stored=False,
    )
    rating_threshold: float | None = _of_split(
        None,
        "A row is a link if its rating is this or more (implicit feedback).",
        shown="every row is a link",
    )
    lsa: int | None = lsa_option(USUAL_LSA)
    sample_users: int | None = _of_split(
        None,
        "For a quick first answer: keep this many of the users that are left, drawn at random,"
        " with all their links, and no items that they have no link to.",
        shown="all",
        at_least=1,
        omits_default=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        excluded = {
            ("tokens_column", "text_columns"): "a text is made of one or the other",
            ("tokens_column", "tokenizer"): "it makes the tokens itself",
            ("tokens_column", "embed"): "the model needs the texts",
            ("hold_out", "split_column"): "the column says what is held out",
        }
        for (one, two), why in excluded.items():
            if getattr(self, one) and getattr(self, two):
                flags = " and ".join(f"--{name.replace('_', '-')}" for name in (one, two))
                raise UsageError(f"{flags} exclude each other: {why}.")

    def stored(self) -> dict[str, Any]:
        """Return the options that decide the content; what is held out by the names that the oldest
        data sets have for it.
        """
        # These were options, and fingerprints cover them.
        past = {"min_user_links": 1, "min_item_links": 1, "feature_columns": None}
        stored = super().stored() | past
        split = "column" if self.split_column else STORED_SPLIT.get(self.hold_out)
        if split is not None:
            stored.pop("hold_out", None)
            stored["split"] = split
        return stored
