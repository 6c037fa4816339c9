"""``ncfbench prepare``: one command for each source of data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ncfbench.cli import options
from ncfbench.cli.output import print_json, print_views, reporting, say
from ncfbench.config import cache_dir, resolve
from ncfbench.errors import UsageError

if TYPE_CHECKING:
    from ncfbench.runs.progress import DownloadBar

prepare_app = typer.Typer(
    rich_markup_mode="markdown",
    help="Make a data set ready: fetch or generate, verify, tokenise, split, store.",
    no_args_is_help=True,
)

Name = Annotated[
    str | None,
    typer.Option(help="Store it under another name, to keep several versions.", show_default=False),
]
TestFraction = Annotated[
    float, typer.Option(help="Share of the items held out for the test, with all their links.")
]
ValidationFraction = Annotated[
    float, typer.Option(help="Share of the remaining items held out for validation; 0 for none.")
]
SplitSeed = Annotated[int, typer.Option(help="Seed of the choice of held-out items.")]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        help="A folder with the published files, instead of a download.",
        show_default=False,
    ),
]
MaxLength = Annotated[int, typer.Option(help="Words kept of a text.")]
MinCount = Annotated[int, typer.Option(help="Leave out words that occur less often than this.")]
VocabularySize = Annotated[
    int | None, typer.Option(help="Keep only this many words.", show_default=False)
]
AllowUnverified = Annotated[
    bool, typer.Option("--allow-unverified", help="Accept files that are not the published ones.")
]
Url = Annotated[str | None, typer.Option(help="Download from a mirror.", show_default=False)]


@prepare_app.command("citeulike")
@reporting
def prepare_citeulike(
    from_: From = None,
    text: Annotated[
        str,
        typer.Option(help="What an item's text is made of, in order: any of title,abstract,tags."),
    ] = "title,abstract",
    max_length: MaxLength = 300,
    min_count: MinCount = 1,
    vocabulary_size: VocabularySize = None,
    test_fraction: TestFraction = 0.2,
    validation_fraction: ValidationFraction = 0.1,
    split_seed: SplitSeed = 0,
    allow_unverified: AllowUnverified = False,
    url: Url = None,
    name: Name = None,
    data_dir: options.DataDir = None,
    json_: options.Json = False,
) -> None:
    """CiteULike-a: 5,551 users, 16,980 articles, 204,986 links, with titles, abstracts and tags.

    The four published files are downloaded at a pinned commit and verified by git blob id.
    """
    from ncfbench.data.sources import citeulike

    _, places = resolve({"data_dir": data_dir, "dataset": name or "citeulike"})
    choices = citeulike.Options(
        text=_parts(text),
        max_length=max_length,
        min_count=min_count,
        vocabulary_size=vocabulary_size,
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        split_seed=split_seed,
    )
    folder = from_
    if folder is None:
        folder = cache_dir() / citeulike.FILES.cache_name
        with _download_progress() as progress:
            citeulike.FILES.download(folder, tuple(citeulike.FILES.blob_ids), url, progress)
    manifest = citeulike.prepare(
        places.data_dir,
        name or "citeulike",
        choices,
        folder=folder,
        allow_unverified=allow_unverified,
        say=say,
    )
    show_prepared(manifest, citeulike.PAPER_STATISTICS, json_)


@prepare_app.command("citeulike-t")
@reporting
def prepare_citeulike_t(
    from_: From = None,
    text: Annotated[
        str,
        typer.Option(
            help=(
                "raw: texts in full; bag: counted words, without their order; auto: raw if it is"
                " there."
            )
        ),
    ] = "auto",
    max_length: MaxLength = 300,
    min_count: MinCount = 1,
    vocabulary_size: VocabularySize = None,
    test_fraction: TestFraction = 0.2,
    validation_fraction: ValidationFraction = 0.1,
    split_seed: SplitSeed = 0,
    allow_unverified: AllowUnverified = False,
    url: Url = None,
    name: Name = None,
    data_dir: options.DataDir = None,
    json_: options.Json = False,
) -> None:
    """CiteULike-t: 7,947 users, 25,975 articles, 134,860 links.

    The published files are downloaded at a pinned commit and verified by git blob id.
    """
    from ncfbench.data.sources import citeulike_t

    _, places = resolve({"data_dir": data_dir, "dataset": name or "citeulike-t"})
    choices = citeulike_t.Options(
        text=text,
        max_length=max_length,
        min_count=min_count,
        vocabulary_size=vocabulary_size,
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        split_seed=split_seed,
    ).resolved(from_)
    folder = from_
    if folder is None:
        folder = cache_dir() / citeulike_t.FILES.cache_name
        with _download_progress() as progress:
            citeulike_t.FILES.download(folder, choices.files, url, progress)
    manifest = citeulike_t.prepare(
        places.data_dir,
        name or "citeulike-t",
        choices,
        folder=folder,
        allow_unverified=allow_unverified,
        say=say,
    )
    show_prepared(manifest, citeulike_t.PUBLISHED_STATISTICS, json_, heading="published")


@prepare_app.command("mind")
@reporting
def prepare_mind(
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help=(
                "Required: the folder with news.tsv and behaviors.tsv, or with parts as published:"
                " folders or zip archives."
            ),
            show_default=False,
        ),
    ] = None,
    parts: Annotated[
        str | None, typer.Option(help="Of train,dev.", show_default="all that are there")
    ] = None,
    text: Annotated[
        str,
        typer.Option(
            help=(
                "What an item's text is made of, in order: any of"
                " title,abstract,category,subcategory."
            )
        ),
    ] = "title,abstract",
    history: Annotated[
        bool,
        typer.Option(
            "--history/--no-history", help="Take what a user had clicked before as links too."
        ),
    ] = False,
    users: Annotated[
        int | None,
        typer.Option(help="Draw this many of the users that have a link.", show_default="all"),
    ] = None,
    max_length: MaxLength = 200,
    min_count: MinCount = 1,
    vocabulary_size: VocabularySize = None,
    test_fraction: TestFraction = 0.2,
    validation_fraction: ValidationFraction = 0.1,
    split_seed: Annotated[
        int, typer.Option(help="Seed of the choice of held-out items, and of users.")
    ] = 0,
    name: Name = None,
    data_dir: options.DataDir = None,
    json_: options.Json = False,
) -> None:
    """Microsoft News (MIND), a stand-in for the paper's Yahoo! News data, which can no longer be
    had.

    Links are clicks. The files are yours to get: Microsoft asks you to accept a licence first.
    """
    from ncfbench.data.sources import mind

    _, places = resolve({"data_dir": data_dir, "dataset": name or "mind"})
    choices = mind.Options(
        text=_parts(text),
        parts=None if parts is None else _parts(parts),
        history=history,
        users=users,
        max_length=max_length,
        min_count=min_count,
        vocabulary_size=vocabulary_size,
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        split_seed=split_seed,
    )
    if from_ is None:
        raise UsageError(mind.HOW_TO_GET)
    manifest = mind.prepare(places.data_dir, name or "mind", choices, folder=from_, say=say)
    show_prepared(manifest, mind.PAPER_STATISTICS, json_, heading="paper (Yahoo! News)")


@prepare_app.command("synthetic")
@reporting
def prepare_synthetic(
    users: Annotated[int, typer.Option(help="Users.")] = 800,
    items: Annotated[int, typer.Option(help="Items.")] = 3200,
    links: Annotated[int, typer.Option(help="Links between them.")] = 60_000,
    topics: Annotated[int, typer.Option(help="Latent topics, which drive links and words.")] = 12,
    vocabulary_size: Annotated[int, typer.Option(help="Words there are.")] = 1000,
    min_words: Annotated[int, typer.Option(help="Words of the shortest text.")] = 6,
    max_length: Annotated[int, typer.Option(help="Words of the longest text.")] = 24,
    test_fraction: TestFraction = 0.2,
    validation_fraction: ValidationFraction = 0.1,
    split_seed: SplitSeed = 0,
    seed: Annotated[int, typer.Option(help="Seed of everything else.")] = 0,
    name: Name = None,
    data_dir: options.DataDir = None,
    json_: options.Json = False,
) -> None:
    """Made-up data of any size: heavy-tailed links, and texts from which cold items' links can be
    learned.
    """
    from ncfbench.data.sources import synthetic

    _, places = resolve({"data_dir": data_dir, "dataset": name or "synthetic"})
    choices = synthetic.Options(
        users=users,
        items=items,
        links=links,
        topics=topics,
        vocabulary_size=vocabulary_size,
        min_words=min_words,
        max_length=max_length,
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        split_seed=split_seed,
        seed=seed,
    )
    manifest = synthetic.prepare(places.data_dir, name or "synthetic", choices, say=say)
    show_prepared(manifest, {}, json_)


def _parts(text: str) -> tuple[str, ...]:
    """The parts of a list separated by commas, as often as they are named."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def show_prepared(
    manifest: dict[str, Any], beside: Any, as_json: bool, *, heading: str = "paper"
) -> None:
    """Print what was prepared; ``beside``: other counts for a column next to it."""
    from ncfbench.report.views.run import statistics_table

    statistics = manifest["statistics"]
    if statistics["items_without_text"]:
        say(
            f"Warning: {statistics['items_without_text']:,} of {statistics['items']:,} items have"
            " no text; an encoder gives them all the same embedding."
        )
    if as_json:
        print_json(manifest)
    else:
        label = [f"{manifest['label']}."] if manifest.get("label") else []
        table = statistics_table(manifest["name"], statistics, beside, heading)
        print_views(*label, table, f"Fingerprint {manifest['fingerprint'][:12]}")


def _download_progress() -> DownloadBar:
    from ncfbench.report.render.terminal import make_console
    from ncfbench.runs.progress import DownloadBar

    return DownloadBar(make_console(stderr=True))
