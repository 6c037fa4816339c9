"""``ncfbench profile``: what each part of an iteration costs."""

from __future__ import annotations

from typing import Annotated

import typer

from ncfbench.cli import options
from ncfbench.cli.output import print_json, print_views, progress_bar, reporting
from ncfbench.distributed.simulation import simulate
from ncfbench.errors import UsageError
from ncfbench.registry import LOSSES, SAMPLERS

PAPER = tuple(name for name, sampler in SAMPLERS.items() if sampler.in_paper)
CLOCKS = ("full", "paper")


@reporting
def profile(
    dataset: options.Dataset = None,
    samplers: Annotated[
        str,
        typer.Option(
            "--samplers",
            "--sampler",
            help="Which, separated by commas; plug-ins too. all: the paper's five.",
        ),
    ] = "all",
    encoder: options.Encoder = None,
    loss: Annotated[
        str | None, typer.Option(help=f"{', '.join(LOSSES)}, or a plug-in.", show_default="sg")
    ] = None,
    batch_size: options.BatchSize = None,
    stratum_size: options.StratumSize = None,
    strata: options.Strata = None,
    uniform_items: options.UniformItems = None,
    negatives: options.Negatives = None,
    noise: options.Noise = None,
    mask: options.Mask = None,
    rounds: Annotated[
        int, typer.Option(help="Interleaved rounds; more give narrower intervals.")
    ] = 11,
    clock: Annotated[
        str,
        typer.Option(
            help=(
                "full, with step beside it; paper: also what the authors' program would have timed."
            )
        ),
    ] = "full",
    precision: options.Precision = None,
    devices: options.Devices = None,
    share: options.Share = None,
    seed: options.Seed = None,
    config: options.ConfigFile = None,
    set_: options.Set = None,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Measure what an iteration is made of, predict each sampler's speedup from it, and compare
    with what it takes.

    t_f, t_g and t_i are the seconds of a user, of an item and of an interaction, forward and
    backward, each measured by itself at several sizes. Parts and samplers are interleaved round by
    round in one process. Tables go to profile.parquet (raw samples), unitcost.parquet and
    costmodel.parquet in --runs-dir; `ncfbench report` shows them too.

    With --devices N steps run on several devices; what each sends the others is counted and
    measured by itself. On a CPU these are simulated, and share its cores: the bytes are right, the
    seconds say nothing of real devices.

    Example: ncfbench profile --dataset synthetic --encoder cnn --clock paper
    """
    from ncfbench.config import complete, merge

    if clock not in CLOCKS:
        raise UsageError(f"--clock {clock!r} is unknown. Valid: {', '.join(CLOCKS)}.")
    flags = {
        "dataset": dataset,
        "encoder": encoder,
        "loss": loss,
        "batch_size": batch_size,
        "stratum_size": stratum_size,
        "strata": strata,
        "uniform_items": uniform_items,
        "negatives": negatives,
        "noise": noise,
        "mask": mask,
        "precision": precision,
        "devices": devices,
        "share": share,
        "seed": seed,
        "data_dir": data_dir,
        "runs_dir": runs_dir,
    }
    settings, places = merge(flags, set_ or (), config)
    from ncfbench.data import open_dataset
    from ncfbench.profiling import profile as profiling
    from ncfbench.profiling.tables import profile_tables, write
    from ncfbench.timing.compile_cache import keep_compiled

    configs = profiling.configurations(settings, options.names(samplers, PAPER))
    simulate(max((each.devices for each in configs.values()), default=1))
    progress = progress_bar(quiet=quiet)
    keep_compiled(progress.say)
    left_out = [name for name in options.names(samplers, PAPER) if name not in configs]
    if left_out:
        progress.say(f"Left out, as the loss refuses them: {', '.join(left_out)}.")
    data = open_dataset(
        places.data_dir, complete({"dataset": settings.get("dataset")}).dataset, progress.say
    )
    record = profiling.run(data, configs, rounds=rounds, progress=progress)
    if json_:
        print_json(record.tables)
    else:
        print_views(*profile_tables(record.tables, paper_clock=clock == "paper"))
    # Printed first: a folder that cannot be written must not hide the result.
    write(places.runs_dir, record.tables)
    if not json_:
        print_views(
            f"Written: profile.parquet, unitcost.parquet and costmodel.parquet in {places.runs_dir}"
        )
