"""The command line: parse, call one plain function, print. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer

from ncfbench import __version__
from ncfbench.config import cache_dir, resolve
from ncfbench.errors import INTERRUPTED_EXIT_CODE, CheckFailedError, NcfbenchError, NothingToReportError
from ncfbench.registry import ENCODERS, LOSSES, SAMPLERS

if TYPE_CHECKING:
    from ncfbench.progress import DownloadBar, Progress

P = ParamSpec("P")
R = TypeVar("R")

EXIT_CODES = """Exit codes: 0 done; 2 usage or an impossible combination; 3 bad data; 4 verification failed; 5 diverged;
6 a check or comparison failed; 7 nothing to report; 130 interrupted."""

app = typer.Typer(
    name="ncfbench",
    help="Which way of building mini-batches trains a content-based recommender soonest, on your data and hardware?\n\n"
    "Begin with: ncfbench run --dataset synthetic --epochs 3, then ncfbench report.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
prepare_app = typer.Typer(
    rich_markup_mode="markdown",
    help="Make a data set ready: fetch or generate, verify, tokenise, split, store as Parquet.",
    no_args_is_help=True,
)
app.add_typer(prepare_app, name="prepare")

DataDir = Annotated[
    Path | None, typer.Option(help="Prepared data sets. Default: $NCFBENCH_DATA_DIR, or ./data.", show_default=False)
]
RunsDir = Annotated[
    Path | None, typer.Option(help="Run folders. Default: $NCFBENCH_RUNS_DIR, or ./runs.", show_default=False)
]
Name = Annotated[str | None, typer.Option(help="Store it under another name, to keep several versions.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
TestFraction = Annotated[float, typer.Option(help="Share of the items held out for the test, with all their links.")]
ValidationFraction = Annotated[float, typer.Option(help="Share of the remaining items held out for validation; 0 for none.")]
SplitSeed = Annotated[int, typer.Option(help="Seed of the choice of held-out items.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ncfbench {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Options of the program itself."""


def reporting(command: Callable[P, R]) -> Callable[P, R]:
    """Print the errors that logic raises, and exit with their code."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except NcfbenchError as error:
            _say(f"Error: {error}")
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as error:
            _say("Interrupted.")
            raise typer.Exit(INTERRUPTED_EXIT_CODE) from error

    return wrapped


def _say(text: str) -> None:
    from ncfbench.report.console import make_console

    make_console(stderr=True).print(text, soft_wrap=True)


def _print(*views: Any) -> None:
    from ncfbench.report.console import make_console

    console = make_console()
    for view in views:
        # Lines are not folded: paths and commands must survive being copied.
        console.print(view, soft_wrap=isinstance(view, str))


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, default=str, allow_nan=False))


@prepare_app.command("citeulike")
@reporting
def prepare_citeulike(
    from_: Annotated[
        Path | None,
        typer.Option("--from", help="A folder with the published files, instead of a download.", show_default=False),
    ] = None,
    text: Annotated[
        str, typer.Option(help="What an item's text is made of, in order: any of title,abstract,tags.")
    ] = "title,abstract",
    max_length: Annotated[int, typer.Option(help="Words kept of a text.")] = 300,
    min_count: Annotated[int, typer.Option(help="Leave out words that occur less often than this.")] = 1,
    vocabulary_size: Annotated[int | None, typer.Option(help="Keep only this many words.", show_default=False)] = None,
    test_fraction: TestFraction = 0.2,
    validation_fraction: ValidationFraction = 0.1,
    split_seed: SplitSeed = 0,
    allow_unverified: Annotated[
        bool, typer.Option("--allow-unverified", help="Accept files that are not the published ones.")
    ] = False,
    url: Annotated[str | None, typer.Option(help="Download from a mirror.", show_default=False)] = None,
    name: Name = None,
    data_dir: DataDir = None,
    json_: Json = False,
) -> None:
    """CiteULike-a: 5,551 users, 16,980 articles, 204,986 links, with titles, abstracts and tags.

    The four published files are downloaded at a pinned commit and verified by git blob id.
    """
    from ncfbench.datasets import citeulike

    _, places = resolve({"data_dir": data_dir, "dataset": name or "citeulike"})
    options = citeulike.Options(
        text=tuple(part.strip() for part in text.split(",") if part.strip()),
        max_length=max_length,
        min_count=min_count,
        vocabulary_size=vocabulary_size,
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        split_seed=split_seed,
    )
    folder = from_
    if folder is None:
        folder = cache_dir() / "citeulike-a" / citeulike.COMMIT[:12]
        with _download_progress() as progress:
            citeulike.download(folder, tuple(citeulike.BLOB_IDS), url or citeulike.BASE_URL, progress)
    manifest = citeulike.prepare(
        places.data_dir, name or "citeulike", options, folder=folder, allow_unverified=allow_unverified, say=_say
    )
    _show_prepared(manifest, citeulike.PAPER_STATISTICS, json_)


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
    data_dir: DataDir = None,
    json_: Json = False,
) -> None:
    """Made-up data of any size: heavy-tailed links, and texts from which cold items' links can be learned."""
    from ncfbench.datasets import synthetic

    _, places = resolve({"data_dir": data_dir, "dataset": name or "synthetic"})
    options = synthetic.Options(
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
    manifest = synthetic.prepare(places.data_dir, name or "synthetic", options, say=_say)
    _show_prepared(manifest, {}, json_)


def _show_prepared(manifest: dict[str, Any], paper: Any, as_json: bool) -> None:
    from ncfbench.report.console import statistics_table

    statistics = manifest["statistics"]
    if statistics["items_without_text"]:
        _say(
            f"Warning: {statistics['items_without_text']:,} of {statistics['items']:,} items have no text; an encoder gives "
            f"them all the same embedding."
        )
    if as_json:
        _print_json(manifest)
    else:
        _print(statistics_table(manifest["name"], statistics, paper), f"Fingerprint {manifest['fingerprint'][:12]}")


def _download_progress() -> DownloadBar:
    from ncfbench.progress import DownloadBar
    from ncfbench.report.console import make_console

    return DownloadBar(make_console(stderr=True))


@app.command()
@reporting
def run(
    dataset: Annotated[str | None, typer.Option(help="Prepared data set.", show_default="citeulike")] = None,
    sampler: Annotated[
        str | None, typer.Option(help=f"{', '.join(SAMPLERS)}, or a plug-in.", show_default="strat-ns")
    ] = None,
    encoder: Annotated[str | None, typer.Option(help=f"{', '.join(ENCODERS)}, or a plug-in.", show_default="cnn")] = None,
    loss: Annotated[str | None, typer.Option(help=f"{', '.join(LOSSES)}, or a plug-in.", show_default="sg")] = None,
    batch_size: Annotated[int | None, typer.Option(help="b: positive links in a batch.", show_default="512")] = None,
    stratum_size: Annotated[
        int | None,
        typer.Option(help="s: positive links in a stratum (strat, strat-ns).", show_default="4"),
    ] = None,
    strata: Annotated[
        str | None, typer.Option(help="What the links of a stratum share: item or user.", show_default="item")
    ] = None,
    uniform_items: Annotated[
        int | None, typer.Option(help="k': items drawn uniformly into a batch (mixed-ns).", show_default="b")
    ] = None,
    negatives: Annotated[
        int | None,
        typer.Option(help="k: negative links for each positive one (iid, neg, strat).", show_default="10; lstm 5"),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(help="P_n: unigram, uniform, or an exponent of the degree.", show_default="unigram"),
    ] = None,
    mask: Annotated[
        bool | None,
        typer.Option("--mask/--no-mask", help="Leave linked pairs out of the negatives.", show_default="mask"),
    ] = None,
    unique_items: Annotated[
        bool | None,
        typer.Option(
            "--unique-items/--no-unique-items",
            help="Embed a batch's distinct items once.",
            show_default="unique",
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training links.", show_default="30")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Adam's learning rate.", show_default="0.01; mse 0.001")] = None,
    gamma: Annotated[
        float | None, typer.Option(help="Margin of hinge (0.1), scale of log and softmax (10).", show_default=False)
    ] = None,
    lambda_: Annotated[
        float | None,
        typer.Option("--lambda", help="Weight of the negative term: sg (128), mse (8).", show_default=False),
    ] = None,
    word_dropout: Annotated[
        float | None, typer.Option(help="Share of words removed in training.", show_default="0.5")
    ] = None,
    item_dropout: Annotated[float | None, typer.Option(help="Dropout on item embeddings.", show_default="0.1")] = None,
    user_l2: Annotated[float | None, typer.Option(help="Weight of the users' squared norm.", show_default="1e-6")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of parameters, batches and dropout.", show_default="0")] = None,
    probe_every: Annotated[
        int | None, typer.Option(help="Iterations between probes.", show_default="four in an epoch")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file of settings, named like the flags.", show_default=False, dir_okay=True),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any setting, also those without a flag.", show_default=False),
    ] = None,
    data_dir: DataDir = None,
    runs_dir: RunsDir = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the interrupted run of these settings.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    json_: Json = False,
) -> None:
    """Train one recommender with one sampler, and record times, losses and recall.

    Settings come from flags, then --set, then the environment, then --config, then the paper's defaults for the loss and the
    encoder. The records are kept in a folder below --runs-dir; `ncfbench report` compares them.

    Example: ncfbench run --dataset synthetic --sampler strat-ns --encoder cnn --loss hinge --epochs 5
    """
    flags = {
        "dataset": dataset, "sampler": sampler, "encoder": encoder, "loss": loss, "batch_size": batch_size,
        "stratum_size": stratum_size, "negatives": negatives, "noise": noise, "mask": mask, "unique_items": unique_items,
        "strata": strata, "uniform_items": uniform_items, "epochs": epochs, "learning_rate": learning_rate, "gamma": gamma,
        "lambda": lambda_, "word_dropout": word_dropout,
        "item_dropout": item_dropout, "user_l2": user_l2, "seed": seed, "probe_every": probe_every,
        "data_dir": data_dir, "runs_dir": runs_dir,
    }  # fmt: skip
    settings, places = resolve(flags, set_ or (), config)
    from ncfbench import training
    from ncfbench.report.console import run_table

    try:
        record = training.run(settings, places, resume=resume, progress=_progress(quiet=quiet))
    except KeyboardInterrupt:
        _say("To go on with this run: repeat the command with --resume.")
        raise
    if json_:
        _print_json({"folder": str(record.folder), **record.summary, "config": settings.to_dict()})
    else:
        _print(run_table(record.summary), f"Records: {record.folder}")


@app.command()
@reporting
def audit(
    dataset: Annotated[str | None, typer.Option(help="Prepared data set.", show_default="citeulike")] = None,
    samplers: Annotated[
        str, typer.Option("--samplers", "--sampler", help="Which, separated by commas; plug-ins too. all: the built-in ones.")
    ] = "all",
    encoder: Annotated[str | None, typer.Option(help=f"{', '.join(ENCODERS)}, or a plug-in.", show_default="cnn")] = None,
    loss: Annotated[
        str, typer.Option(help="Which, separated by commas; each sampler gets those it can serve. all: the built-in ones.")
    ] = "all",
    noise: Annotated[str, typer.Option(help="P_n, separated by commas.")] = "unigram,uniform,0.75",
    batches: Annotated[int, typer.Option(help="Batches of each sampler; more give narrower intervals.")] = 1536,
    batch_size: Annotated[int, typer.Option(help="b: small ones show faults of the order of 1/b.")] = 64,
    margin: Annotated[float, typer.Option(help="Bias, as a share of the exact gradient, below which it is unbiased.")] = 0.1,
    warmup: Annotated[int, typer.Option(help="Training iterations before the second set of parameters.")] = 20,
    stratum_size: Annotated[int | None, typer.Option(help="s: positive links in a stratum.", show_default="4")] = None,
    strata: Annotated[str | None, typer.Option(help="item or user.", show_default="item")] = None,
    negatives: Annotated[int | None, typer.Option(help="k: negative links.", show_default="10; lstm 5")] = None,
    uniform_items: Annotated[int | None, typer.Option(help="k', for mixed-ns.", show_default="b")] = None,
    mask: Annotated[
        bool | None,
        typer.Option("--mask/--no-mask", help="Leave linked pairs out of the negatives.", show_default="mask"),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of parameters and batches.", show_default="0")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings.", show_default=False)] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting of a run.", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    runs_dir: RunsDir = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    json_: Json = False,
) -> None:
    """Show whether samplers are unbiased, how noisy they are, and what is in their batches.

    Compares the mean gradient of many batches with the exact gradient over all user-item pairs, runs a conformance suite, and
    takes an X-ray of the batches. Tables go to audit.parquet, xray.parquet and conformance.parquet in --runs-dir. Ends
    with exit code 6 if a sampler is biased or fails a property.

    The exact gradient needs data of moderate size. A graph of a few hundred nodes takes about two minutes:

    ncfbench prepare synthetic --users 120 --items 180 --links 1800 && ncfbench audit --dataset synthetic
    """
    from ncfbench.config import complete, merge

    flags = {
        "dataset": dataset, "encoder": encoder, "batch_size": batch_size, "stratum_size": stratum_size, "strata": strata,
        "negatives": negatives, "uniform_items": uniform_items, "mask": mask, "seed": seed,
        "data_dir": data_dir, "runs_dir": runs_dir,
    }  # fmt: skip
    settings, places = merge(flags, set_ or (), config)
    chosen = [
        tuple(valid) if text == "all" else tuple(part.strip() for part in text.split(",") if part.strip())
        for text, valid in ((samplers, SAMPLERS), (loss, LOSSES), (noise, ()))
    ]
    noises = tuple(dict.fromkeys(complete({"noise": name}).noise for name in chosen[2]))
    from ncfbench import audit as audits
    from ncfbench import tables
    from ncfbench.datasets import open_dataset

    options = audits.Options(chosen[0], chosen[1], noises, batches=batches, margin=margin, warmup=warmup)
    audits.configurations(settings, options)
    progress = _progress(quiet=quiet)
    data = open_dataset(places.data_dir, complete({"dataset": settings.get("dataset")}).dataset, progress.say)
    record = audits.run(data, settings, options, progress)
    found = {"conformance": record.conformance, "xray": record.xray, "audit": record.audit}
    if json_:
        _print_json(found)
    else:
        _print(_audit_views({name: rows for name, rows in found.items() if rows}))
    with tables.storage_errors(places.runs_dir):
        places.runs_dir.mkdir(parents=True, exist_ok=True)
    schemas = {"conformance": tables.CONFORMANCE, "xray": tables.XRAY, "audit": tables.AUDIT}
    for name, rows in found.items():
        tables.write_rows(places.runs_dir / f"{name}.parquet", rows, schemas[name])
    if not json_:
        _print(f"Written: audit.parquet, xray.parquet and conformance.parquet in {places.runs_dir}")
    if record.failures:
        raise CheckFailedError("\n".join(["The audit found faults:", *record.failures]))


@app.command("list")
@reporting
def list_(data_dir: DataDir = None, json_: Json = False) -> None:
    """List samplers, losses, encoders, noise distributions and data sets, and which of them go together."""
    from ncfbench.report.catalogue import catalogue, catalogue_view

    _, places = resolve({"data_dir": data_dir})
    found = catalogue(places.data_dir)
    if json_:
        _print_json(found)
    else:
        _print(catalogue_view(found))


def _progress(*, quiet: bool) -> Progress:
    from ncfbench.progress import LiveProgress, PlainProgress, Progress
    from ncfbench.report.console import make_console

    console = make_console(stderr=True)
    if quiet:
        return Progress()
    return LiveProgress(console) if console.is_terminal and not console.is_dumb_terminal else PlainProgress(console)


@app.command()
@reporting
def report(
    allow_mixed: Annotated[
        bool, typer.Option("--allow-mixed", help="Divide times of different environments too, and mark the cells.")
    ] = False,
    figures: Annotated[
        Path | None, typer.Option(help="Also draw the convergence curves into this folder (SVG and PNG).", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    runs_dir: RunsDir = None,
    json_: Json = False,
) -> None:
    """Print the paper's speedup and recall tables from all finished runs, and write them as Parquet.

    The baseline is IID for pointwise losses and Negative Sampling for pairwise ones. For each missing cell the command that
    fills it is named.
    """
    from ncfbench import runs, tables
    from ncfbench.report import comparison, console

    _, where = resolve({"data_dir": data_dir, "runs_dir": runs_dir})
    records, problems = runs.read_all(where.runs_dir)
    for problem in problems:
        _say(f"Warning: {problem}")
    unfinished = [record for record in records if record.summary["status"] != "finished"]
    for record in unfinished:
        _say(f"Note: {record.name} is {record.summary['status']} at iteration {record.summary['iterations']:,}; left out.")
    comparisons = comparison.group(records)
    audits = _audit_tables(where.runs_dir, problems)
    if not comparisons and audits:
        if json_:
            _print_json({"speedup": [], "recall": [], "figures": [], "problems": problems} | audits)
        else:
            _print(_audit_views(audits), f"No finished run in {where.runs_dir} yet.")
        return
    if not comparisons:
        raise NothingToReportError(
            f"No finished run in {where.runs_dir}. Begin with: ncfbench run --dataset synthetic --epochs 3"
        )
    places = {flag: str(path) for flag, path in (("--data-dir", data_dir), ("--runs-dir", runs_dir)) if path is not None}
    speedups = [comparison.speedup_rows(each, allow_mixed=allow_mixed, places=places) for each in comparisons]
    recalls = [comparison.recall_rows(each, places=places) for each in comparisons]
    flat = [[row for rows in group for row in rows] for group in (speedups, recalls)]
    drawn: list[Path] = []
    if figures is not None:
        from ncfbench.report.figures import draw_all

        drawn = draw_all(comparisons, figures)
    # Printed first: a folder that cannot be written must not hide the result.
    if json_:
        _print_json({"speedup": flat[0], "recall": flat[1], "figures": drawn, "problems": problems} | audits)
    else:
        _print(
            console.speedup_view(comparisons, speedups),
            console.recall_view(comparisons, recalls),
            *([_audit_views(audits)] if audits else []),
            *console.missing_lines([*flat[0], *flat[1]]),
        )
    written = [where.runs_dir / "speedup.parquet", where.runs_dir / "recall.parquet"]
    for path, rows, schema in zip(written, flat, (tables.SPEEDUP, tables.RECALL), strict=True):
        tables.write_rows(path, rows, schema)
    if not json_:
        _print("Written: " + ", ".join(map(str, (*written, *drawn))))


def _audit_tables(runs_dir: Path, problems: list[str]) -> dict[str, list[dict[str, Any]]]:
    """The tables that an audit left behind, where they can be read."""
    from ncfbench import tables

    found = {}
    for name, schema in (("conformance", tables.CONFORMANCE), ("xray", tables.XRAY), ("audit", tables.AUDIT)):
        path = runs_dir / f"{name}.parquet"
        if path.exists():
            try:
                rows = tables.read_rows(path, schema)
            except NcfbenchError as error:
                problems.append(str(error))
                _say(f"Warning: {error}")
                continue
            if rows:
                found[name] = rows
    return found


def _audit_views(found: dict[str, list[dict[str, Any]]]) -> Any:
    from rich.console import Group

    from ncfbench.report.audit import audit_view, conformance_view, xray_view

    views = {"conformance": conformance_view, "xray": xray_view, "audit": audit_view}
    return Group(*(views[name](rows) for name, rows in found.items()))


def main() -> None:
    """The ``ncfbench`` command."""
    try:
        app()
    except BrokenPipeError:  # the reader, such as `head`, has gone
        sys.stderr.close()
        raise SystemExit(0) from None
