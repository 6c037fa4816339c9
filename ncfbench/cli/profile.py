"""``ncfbench profile``: the cost of each part of an iteration."""

from __future__ import annotations

from typing import Annotated

import typer

from ncfbench.catalog import SAMPLERS
from ncfbench.cli import options
from ncfbench.cli.failures import reporting
from ncfbench.cli.output import print_json, print_views, progress_bar


@options.with_settings("dataset", "encoder", "loss")
@reporting
def profile(
    flags: options.Flags,
    samplers: Annotated[str, options.samplers("the paper's five")] = "all",
    rounds: Annotated[
        int, typer.Option(help="Interleaved rounds; more give narrower intervals.")
    ] = 11,
    set_: options.Set = None,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Measure what an iteration costs, and compare predicted with measured speedups.

    t_f, t_g and t_i are the seconds that a user, an item and an interaction add to a training step,
    measured on the step itself at several counts of each. Tables say where an iteration's time
    goes, and how far predictions are off. Steps and samplers are interleaved in one process. Tables
    go to profile.parquet (raw samples), unitcost.parquet and costmodel.parquet in --runs-dir.

    Example: ncfbench profile --dataset synthetic --encoder cnn
    """
    from ncfbench.config import merge

    chosen = options.names(samplers, [name for name, info in SAMPLERS.items() if info.in_paper])
    given = {**flags, "data_dir": data_dir, "runs_dir": runs_dir}
    settings, locations = merge(given, set_ or (), chosen={"sampler": chosen})
    from ncfbench.profiling import profile as profiling
    from ncfbench.profiling.tables import profile_tables, write

    progress = progress_bar(quiet=quiet)
    record = profiling.profile(
        samplers=chosen,
        rounds=rounds,
        data_dir=locations.data_dir,
        say=progress.say,
        progress=progress,
        **options.as_keywords(settings),
    )
    print_json(record.tables) if json_ else print_views(*profile_tables(record.tables))
    # Printed first: a folder that cannot be written must not hide the result.
    write(locations.runs_dir, record.tables)
    if not json_:
        files = "profile.parquet, unitcost.parquet and costmodel.parquet"
        print_views(f"Written: {files} in {locations.runs_dir}")
