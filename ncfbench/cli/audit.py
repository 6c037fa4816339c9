"""``ncfbench audit``: bias and variance of samplers, and the contents of their batches."""

from __future__ import annotations

from typing import Annotated

import typer

from ncfbench.cli import options
from ncfbench.cli.output import print_json, print_views, progress_bar, reporting
from ncfbench.errors import CheckFailedError
from ncfbench.registry import BUILT_IN, LOSSES, SAMPLERS


@options.with_settings(
    "dataset",
    "encoder",
    "user_tower",
    "interaction",
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
        str,
        typer.Option(
            help=(
                "Loss functions, separated by commas; each sampler gets those it serves. all: the"
                " built-in ones."
            ),
            rich_help_panel="Training",
        ),
    ] = "all",
    noise: Annotated[
        str,
        typer.Option(
            help="Noise distributions P_n, separated by commas.", rich_help_panel="Sampler"
        ),
    ] = "unigram,uniform,0.75",
    batches: Annotated[
        int,
        typer.Option(
            help="Batches of each sampler; more give narrower intervals. 0: suite and X-ray only."
        ),
    ] = 1536,
    margin: Annotated[
        float,
        typer.Option(
            help="Largest bias, as a share of the exact gradient, that may be called unbiased."
        ),
    ] = 0.1,
    warmup: Annotated[
        int, typer.Option(help="Training iterations before the second set of parameters.")
    ] = 20,
    variance_parts: Annotated[
        bool,
        typer.Option(
            "--variance-parts",
            help=(
                "Also measure how much of each gradient's variance lies over users, over items and"
                " over positive links; takes two to four times as long."
            ),
        ),
    ] = False,
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

    The exact gradient needs data of moderate size. A graph of a few hundred nodes takes about two
    minutes:

    ncfbench prepare synthetic --name few --users 120 --items 180 --links 1800 && ncfbench audit
    --dataset few
    """
    from ncfbench.config import complete, merge

    chosen_samplers, chosen_losses = options.names(samplers, SAMPLERS), options.names(loss, LOSSES)
    given = {**flags, "data_dir": data_dir, "runs_dir": runs_dir}
    settings, locations = merge(
        given,
        set_ or (),
        config,
        chosen={"sampler": chosen_samplers, "loss": chosen_losses},
    )
    noises = tuple(dict.fromkeys(complete({"noise": name}).noise for name in options.names(noise)))
    from ncfbench.auditing import audit as audits
    from ncfbench.auditing.tables import audit_tables, write
    from ncfbench.data import open_dataset
    from ncfbench.data.named_files import name_files
    from ncfbench.timing.compile_cache import keep_compiled

    progress = progress_bar(quiet=quiet)
    settings = name_files(settings, locations.data_dir, progress.say)
    choices = audits.Options(
        chosen_samplers,
        chosen_losses,
        noises,
        batches=batches,
        margin=margin,
        warmup=warmup,
        variance_parts=variance_parts,
    )
    audits.configurations(settings, choices)
    keep_compiled(progress.say)
    data = open_dataset(
        locations.data_dir, complete({"dataset": settings.get("dataset")}).dataset, progress.say
    )
    record = audits.run(data, settings, choices, progress)
    if json_:
        print_json(record.tables)
    else:
        for tables in audit_tables(record.tables).values():
            print_views(*tables)
    # Printed first: a folder that cannot be written must not hide the result.
    write(locations.runs_dir, record.tables)
    if not json_:
        print_views(
            f"Written: audit.parquet, xray.parquet and conformance.parquet in {locations.runs_dir}"
        )
    if record.failures:
        raise CheckFailedError("\n".join(["The audit found faults:", *record.failures]))
