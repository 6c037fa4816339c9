"""``ncfbench prepare custom``: users' own data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ncfbench.cli import options
from ncfbench.cli.output import reporting, say
from ncfbench.cli.prepare import (
    MaxLength,
    MinCount,
    Name,
    SplitSeed,
    TestFraction,
    ValidationFraction,
    VocabularySize,
    show_prepared,
)
from ncfbench.config import resolve

LINKS, ITEMS, SPLIT = "Columns of the links", "Columns of the items", "What becomes of them"


@reporting
def prepare_custom(
    links: Annotated[
        Path,
        typer.Option(
            help="A row for each link: CSV, TSV, JSON Lines or Parquet; may be compressed."
        ),
    ],
    items: Annotated[
        Path,
        typer.Option(help="A row for each item, with its id and its text; of the same formats."),
    ],
    user_column: Annotated[
        str | None,
        typer.Option(
            help="Of the user's id.", show_default="user, user_id, ...", rich_help_panel=LINKS
        ),
    ] = None,
    item_column: Annotated[
        str | None,
        typer.Option(
            help="Of the item's id.",
            show_default="item, item_id, movieId, asin, ...",
            rich_help_panel=LINKS,
        ),
    ] = None,
    rating_column: Annotated[
        str | None,
        typer.Option(
            help="For --rating-threshold.", show_default="rating, score, ...", rich_help_panel=LINKS
        ),
    ] = None,
    time_column: Annotated[
        str | None,
        typer.Option(
            help="Numbers or dates, for --split time.",
            show_default="timestamp, time, date, ...",
            rich_help_panel=LINKS,
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            help="Of the item's id.", show_default="as in the links, id, ...", rich_help_panel=ITEMS
        ),
    ] = None,
    text_columns: Annotated[
        str | None,
        typer.Option(
            help="An item's text is made of these, in order, separated by commas.",
            show_default="title, abstract, description, ...: all that are there",
            rich_help_panel=ITEMS,
        ),
    ] = None,
    tokens_column: Annotated[
        str | None,
        typer.Option(
            help="Instead of a text: tokens already made, a list or separated by spaces.",
            show_default="tokens, words",
            rich_help_panel=ITEMS,
        ),
    ] = None,
    split_column: Annotated[
        str | None,
        typer.Option(
            help="Of train, validation and test.",
            show_default="split, fold, ...",
            rich_help_panel=ITEMS,
        ),
    ] = None,
    rating_threshold: Annotated[
        float | None,
        typer.Option(
            help="A link is a row of this rating or more (implicit feedback).",
            show_default="every row is one",
            rich_help_panel=SPLIT,
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help=(
                "Which items are held out: random; time, those whose first link is newest; column."
            ),
            show_default="column where there is one, else random",
            rich_help_panel=SPLIT,
        ),
    ] = None,
    min_user_links: Annotated[
        int,
        typer.Option(
            help="Leave out users of fewer links, and again until none is.", rich_help_panel=SPLIT
        ),
    ] = 1,
    min_item_links: Annotated[
        int,
        typer.Option(help="The same of items; 0 keeps those without any.", rich_help_panel=SPLIT),
    ] = 1,
    max_length: MaxLength = 300,
    min_count: MinCount = 1,
    vocabulary_size: VocabularySize = None,
    test_fraction: TestFraction = 0.2,
    validation_fraction: ValidationFraction = 0.1,
    split_seed: SplitSeed = 0,
    delimiter: Annotated[
        str | None,
        typer.Option(
            help="Of CSV files that have it.", show_default="comma, tab, semicolon or bar"
        ),
    ] = None,
    quotes: Annotated[
        bool,
        typer.Option(
            "--quotes/--no-quotes", help="Whether quotation marks enclose fields of CSV files."
        ),
    ] = True,
    encoding: Annotated[str, typer.Option(help="Of CSV files, such as latin-1.")] = "utf-8",
    name: Name = None,
    data_dir: options.DataDir = None,
    json_: options.Json = False,
) -> None:
    """Your own data: a file of links and a file of items.

    Columns with usual names are found, and the output says which. Ids are strings or whole numbers,
    and results have them.

    ncfbench prepare custom --links ratings.csv --items movies.csv --rating-threshold 4
    """
    from ncfbench.data.custom import prepare as custom
    from ncfbench.data.custom.plan import Options

    _, places = resolve({"data_dir": data_dir, "dataset": name or "custom"})
    choices = Options(
        user_column=user_column,
        item_column=item_column,
        rating_column=rating_column,
        time_column=time_column,
        id_column=id_column,
        text_columns=options.names(text_columns or ""),
        tokens_column=tokens_column,
        split_column=split_column,
        rating_threshold=rating_threshold,
        split=split,
        min_user_links=min_user_links,
        min_item_links=min_item_links,
        max_length=max_length,
        min_count=min_count,
        vocabulary_size=vocabulary_size,
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        split_seed=split_seed,
        delimiter=delimiter,
        quotes=quotes,
        encoding=encoding,
    )
    manifest = custom.prepare(places.data_dir, name or "custom", links, items, choices, say=say)
    show_prepared(manifest, {}, json_)
