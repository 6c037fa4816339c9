"""``ncfbench audit``: bias and variance of samplers."""

from __future__ import annotations

from typing import Annotated

import typer

from ncfbench.catalog import LOSSES, SAMPLERS
from ncfbench.cli import options
from ncfbench.cli.failures import reporting
from ncfbench.cli.output import print_json, print_views, progress_bar
from ncfbench.config import merge
from ncfbench.errors import CheckFailedError

BATCHES = 1536
BATCH_SIZE = 64
"""Links of a batch by default: of smaller ones a gradient costs less."""
LOSS = "sg"
"""Loss whose gradients are audited by default."""
SUITE = ("softmax",)
"""Losses that the suite tests besides by default: their gradients take many more batches."""


@options.with_settings("dataset")
@reporting
def audit(
    flags: options.Flags,
    samplers: Annotated[str, options.samplers("the built-in ones")] = "all",
    loss: Annotated[
        str | None,
        typer.Option(
            help=(
                "Loss functions, separated by commas; each sampler gets those it serves. all: the"
                " built-in ones."
            ),
            show_default="sg; the suite alone also softmax",
            rich_help_panel="Training",
        ),
    ] = None,
    noise: Annotated[
        str,
        options.option(
            help="Noise distributions P_n, separated by commas.", panel="Sampler", default=True
        ),
    ] = "unigram",
    batches: Annotated[
        int,
        typer.Option(help="Batches of each sampler; more give narrower intervals. 0: suite only."),
    ] = BATCHES,
    set_: options.Set = None,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Show whether samplers are unbiased, and how noisy they are.

    Compares the mean gradient of many batches with the exact gradient over all user-item pairs, and
    runs a conformance suite. Tables go to audit.parquet and conformance.parquet in --runs-dir. Ends
    with exit code 6 if a sampler is biased or fails a property.

    The exact gradient needs data of moderate size. Synthetic data takes about a minute, a smaller
    graph less:

    ncfbench prepare synthetic --name few --users 120 --items 180 --links 1800 && ncfbench audit
    --dataset few
    """
    progress = progress_bar(quiet=quiet)
    given = {**flags, "data_dir": data_dir, "runs_dir": runs_dir}
    losses = options.names(LOSS if loss is None else loss, LOSSES)
    chosen = options.names(samplers, SAMPLERS), losses
    kinds = dict(zip(("sampler", "loss"), chosen, strict=True))
    settings, locations = merge(given, set_ or (), chosen=kinds)
    settings.setdefault("batch_size", BATCH_SIZE)
    from ncfbench.auditing.audit import audit_samplers
    from ncfbench.auditing.tables import audit_tables, write

    record = audit_samplers(
        samplers=chosen[0],
        losses=losses,
        suite=SUITE if loss is None else (),
        noises=options.names(noise),
        batches=batches,
        data_dir=locations.data_dir,
        say=progress.say,
        progress=progress,
        **options.as_keywords(settings),
    )
    print_json(record.tables) if json_ else print_views(*audit_tables(record.tables))
    # Printed first: a folder that cannot be written must not hide the result.
    write(locations.runs_dir, record.tables)
    if not json_:
        print_views(f"Written: audit.parquet and conformance.parquet in {locations.runs_dir}")
    if record.failures:
        raise CheckFailedError("\n".join(["The audit found faults:", *record.failures]))
