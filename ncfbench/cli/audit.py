"""``ncfbench audit``: bias and variance of samplers, contents of batches, and users' own losses."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ncfbench.catalog import BUILT_IN, LOSSES, SAMPLERS
from ncfbench.catalog.infos import LossInfo
from ncfbench.cli import options
from ncfbench.cli.output import print_json, print_views, progress_bar, reporting
from ncfbench.config import merge
from ncfbench.errors import CheckFailedError, UsageError, either
from ncfbench.runs.progress import Progress

WARMUP = 20
BATCHES = 1536
USUAL = {False: ("sg", "unigram"), True: ("all", "unigram,uniform,0.75")}
"""Losses and noise distributions, without and with ``--all``."""
SUITE = ("softmax",)
"""Losses that the suite tests besides by default: their gradients take many more batches."""


@options.with_settings(
    "dataset",
    "encoder",
    "user_tower",
    "coupling",
    "batch_size",
    "stratum_size",
    "strata",
    "negatives",
    "uniform_items",
    "mask",
    "devices",
    "share",
    "seed",
    own=BUILT_IN,
    batch_size=64,
)
@reporting
def audit(
    flags: options.Flags,
    samplers: Annotated[
        str,
        typer.Option(
            "--samplers",
            "--sampler",
            help="Samplers, separated by commas; plug-ins too. all: the built-in ones.",
            rich_help_panel="Sampler",
        ),
    ] = "all",
    loss: Annotated[
        str | None,
        typer.Option(
            help=(
                "Loss functions, separated by commas; each sampler gets those it serves. all: the"
                " built-in ones. A function, class or object of your own, module:name, is judged"
                " by itself: with its batches, without samplers."
            ),
            show_default="sg; the suite alone also softmax",
            rich_help_panel="Training",
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            help="Noise distributions P_n, separated by commas.",
            show_default="unigram",
            rich_help_panel="Sampler",
        ),
    ] = None,
    batches: Annotated[
        int,
        typer.Option(
            help="Batches of each sampler; more give narrower intervals. 0: suite and X-ray only."
        ),
    ] = BATCHES,
    all_: Annotated[
        bool,
        typer.Option(
            "--all",
            help=(
                "Every loss, three noise distributions, the initial parameters too, and streams as"
                " training shuffles them; takes more than ten minutes."
            ),
        ),
    ] = False,
    margin: Annotated[
        str,
        typer.Option(
            help="Largest bias, as a share of the exact gradient, that may be called unbiased."
        ),
    ] = "10%",
    pairs: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Training links for your own --loss: CSV, TSV, JSON Lines or Parquet with a user"
                " and an item in each row."
            ),
            show_default="a small random graph",
        ),
    ] = None,
    batches_from: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help=(
                "Your own batches for your own --loss: an iterable of (users, items) or (users,"
                " items, negatives), or a function of (users, items, batch size) that returns one."
            ),
            show_default="links drawn at random",
        ),
    ] = None,
    accept: Annotated[
        str,
        typer.Option(
            metavar="CODE[,CODE]",
            help="Findings on your own --loss that are meant to be, such as missing-logq.",
            show_default=False,
        ),
    ] = "",
    warmup: Annotated[
        int,
        typer.Option(
            help="Training iterations before the parameters at which gradients are taken."
        ),
    ] = WARMUP,
    config: options.ConfigFile = None,
    set_: options.Set = None,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Show whether samplers are unbiased, how noisy they are, and what is in their batches.

    Compares the mean gradient of many batches with the exact gradient over all user-item pairs,
    runs a conformance suite, and takes an X-ray of the batches. Tables go to audit.parquet,
    xray.parquet and conformance.parquet in --runs-dir. Ends with exit code 6 if a sampler is biased
    or fails a property.

    With --share local --devices N, batches have N parts that share negatives within themselves
    only; one device is enough for that. With --share global, devices change no batch.

    The exact gradient needs data of moderate size. Synthetic data takes about a minute, a smaller
    graph less:

    ncfbench prepare synthetic --name few --users 120 --items 180 --links 1800 && ncfbench audit
    --dataset few

    --loss module:name judges a loss of your own, in NumPy, PyTorch, JAX or TensorFlow, by what a
    change of one score does to its gradient: which objective it estimates, which of its negatives
    are positives, which corrections, masks, options and gradients are wrong, and whether it does
    what a right loss must: pull each positive, as hard as it pushes the others, on one scale. Its
    arguments are recognised by their names; a row of the answer says as what. Exit code 6 if
    something is wrong:

    ncfbench audit --loss my_losses:loss --pairs train.parquet --batch-size 1024
    """
    progress = progress_bar(quiet=quiet)
    own = _own_loss(loss or "")
    if own is None and (pairs or batches_from or accept):
        raise UsageError(
            "--pairs, --batches-from and --accept go with a loss of your own: --loss module:name."
        )
    if own is not None:
        unheeded: dict[str, Any] = {"--samplers": samplers != "all", "--noise": noise}
        unheeded |= {"--batches": batches != BATCHES, "--margin": margin != "10%", "--all": all_}
        unheeded |= {"--warmup": warmup != WARMUP, "--config": config}
        unheeded |= {"--data-dir": data_dir, "--runs-dir": runs_dir}
        unheeded |= {
            f"--{name.replace('_', '-')}": value is not None and name != "batch_size"
            for name, value in flags.items()
        }
        if unused := [flag for flag, is_given in unheeded.items() if is_given]:
            raise UsageError(f"{either(unused)} has no effect on a loss of your own. Leave it out.")
        size = int(flags["batch_size"])
        _lint(own, set_ or (), pairs, batches_from, size, accept, progress, json_=json_)
        return
    given = {**flags, "data_dir": data_dir, "runs_dir": runs_dir}
    usual_losses, usual_noises = USUAL[all_]
    losses = options.names(usual_losses if loss is None else loss, LOSSES)
    chosen = options.names(samplers, SAMPLERS), losses
    kinds = dict(zip(("sampler", "loss"), chosen, strict=True))
    settings, locations = merge(given, set_ or (), config, chosen=kinds)
    from ncfbench.auditing.audit import audit_samplers
    from ncfbench.auditing.tables import audit_tables, write

    record = audit_samplers(
        samplers=chosen[0],
        losses=losses,
        suite=SUITE if loss is None and not all_ else (),
        noises=options.names(usual_noises if noise is None else noise),
        batches=batches,
        margin=options.parse_share(margin, "--margin"),
        warmup=warmup,
        brief=not all_,
        data_dir=locations.data_dir,
        say=progress.say,
        progress=progress,
        **options.as_keywords(settings),
    )
    print_json(record.tables) if json_ else print_views(*audit_tables(record.tables))
    # Printed first: a folder that cannot be written must not hide the result.
    write(locations.runs_dir, record.tables)
    if not json_:
        written = "audit.parquet, xray.parquet and conformance.parquet"
        print_views(f"Written: {written} in {locations.runs_dir}")
    if record.failures:
        raise CheckFailedError("\n".join(["The audit found faults:", *record.failures]))


def _own_loss(text: str) -> str | None:
    """Return a path that names a loss of the user's own, and no plug-in."""
    if ":" not in text or "," in text:
        return None
    target = LossInfo(path=text).load()
    is_plugin = inspect.isclass(target) and any(
        base.__module__ == "ncfbench.models.losses" for base in target.__mro__
    )
    return None if is_plugin else text


def _lint(
    loss: str,
    assignments: Sequence[str],
    pairs: Path | None,
    batches_from: str | None,
    batch_size: int,
    accept: str,
    progress: Progress,
    *,
    json_: bool,
) -> None:
    """Judge a loss of the user's own, and print what is wrong."""
    from ncfbench.linting.lint import lint_loss
    from ncfbench.linting.tables import lint_tables

    found = lint_loss(
        loss,
        pairs=pairs,
        batches_from=batches_from,
        batch_size=batch_size,
        accept=options.names(accept),
        options_=dict(map(_assignment, assignments)),
        progress=progress,
    )
    print_json(found.as_json()) if json_ else print_views(*lint_tables(found))
    if found.errors:
        codes = ", ".join(dict.fromkeys(each.code for each in found.errors))
        raise CheckFailedError(f"{loss} has faults: {codes}.")


def _assignment(text: str) -> tuple[str, Any]:
    """Return the name and the value of ``--set NAME=VALUE``, as Python reads it, or as text."""
    name, is_there, value = text.partition("=")
    if not is_there:
        raise UsageError(f"--set {text}: write NAME=VALUE, an argument of the loss.")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value
