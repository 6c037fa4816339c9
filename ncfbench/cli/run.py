"""``ncfbench run``: train one recommender."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncfbench.catalog import FLAGS
from ncfbench.catalog.presets import preset as preset_of
from ncfbench.cli import options
from ncfbench.cli.failures import reporting
from ncfbench.cli.options import option
from ncfbench.cli.output import print_json, print_views, progress_bar, say
from ncfbench.config import as_toml, complete, unused_settings
from ncfbench.data.assets import merge_named
from ncfbench.distributed import simulate
from ncfbench.errors import UsageError

if TYPE_CHECKING:
    from ncfbench.reporting.floors import FloorResult
    from ncfbench.runs.folder import RunRecord


@options.with_settings(*FLAGS)
@reporting
def run(
    flags: options.Flags,
    preset: options.Preset = "paper",
    config: Annotated[
        Path | None, option(help="TOML file of settings, named like the flags.")
    ] = None,
    set_: options.Set = None,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    again: Annotated[
        bool,
        option("--again", help="Delete the run of these settings and data, and train it anew."),
    ] = False,
    print_config: Annotated[
        bool,
        option(
            "--print-config",
            help="Print all settings of the run as TOML, for --config, and train nothing.",
            panel="Output",
        ),
    ] = False,
    coordinator: Annotated[
        str | None,
        option(
            metavar="HOST:PORT|auto",
            help=(
                "Address of process 0, where several processes join; auto: as the cluster, such as"
                " Slurm, says."
            ),
            panel="Devices",
        ),
    ] = None,
    processes: Annotated[
        int | None, option(help="Processes that make the run together.", panel="Devices")
    ] = None,
    process_id: Annotated[
        int | None, option(help="Rank of this process; the first, 0, records.", panel="Devices")
    ] = None,
    log_metrics: Annotated[
        bool,
        option(
            "--log-metrics",
            help="Print a line of JSON for each probe, as `ncfbench race` reads it.",
            panel="Output",
        ),
    ] = False,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Train one recommender with one sampler, and record times, losses and recall.

    Settings come from flags, then --set, then the environment, then --config, then --preset. The
    recall is that of the epoch that validation chose; the last epoch's stands beside it. The
    records are kept in a folder below --runs-dir; `ncfbench report` compares them. The same command
    continues a run that was interrupted, and does not repeat a finished one. The last lines set its
    recall beside the kept floors of the data, and beside a blend of the run and one of the best two
    of them; validation links choose that and the weight. --preset good fits floors first, those
    that take two minutes at most.

    Example: ncfbench run --dataset synthetic --sampler strat-ns --loss hinge --epochs 5
    """
    flags = {**flags, "data_dir": data_dir, "runs_dir": runs_dir}
    given, locations = merge_named(say, flags, set_ or (), config)
    # Several processes use all their devices by default, which are known when they have joined.
    is_counted = coordinator is None or "devices" in given
    chosen = {**preset_of(preset), **given}
    settings = complete(chosen)
    if print_config:
        typer.echo(as_toml(settings), nl=False)
        return
    simulate(-(-settings.devices // (processes or 1)))
    for warning in unused_settings(given, settings):
        say(f"Warning: {warning}")
    progress = progress_bar(quiet=quiet, logs_metrics=log_metrics)
    if coordinator is not None:
        from ncfbench.distributed.process_group import join

        join(coordinator, processes, process_id, progress.say)
    elif processes is not None or process_id is not None:
        raise UsageError(
            "--processes and --process-id belong to --coordinator HOST:PORT, where the first one"
            " listens."
        )
    if not is_counted:
        import jax

        settings = complete(chosen | {"devices": jax.device_count()})
    from ncfbench.training import run as training

    record = training.run_and_blend(
        settings,
        locations,
        fits_floors=preset == "good",
        again=again,
        progress=progress,
    )
    if record is not None:
        from ncfbench.reporting.floors import read_floors

        folder = locations.data_dir / record.config.dataset
        floors, problems = read_floors([folder], record.data_fingerprint)
        for problem in problems:
            say(problem)
        _print_results(record, floors, data_dir, json_=json_)


def _print_results(
    record: RunRecord, floors: Sequence[FloorResult], data_dir: Path | None, *, json_: bool
) -> None:
    from ncfbench.reporting.floors import blend_of, compare
    from ncfbench.reporting.quality import quality_of
    from ncfbench.reporting.views.answers import measured_values
    from ncfbench.reporting.views.run import ledger_table, run_table
    from ncfbench.reporting.views.sentences import floor_command, run_sentence
    from ncfbench.runs.reported import describe_fall, evaluations_of

    recall = quality_of([record])
    both = blend_of([record], floors)
    chooses = record.config.epochs > 0  # else it stopped where validation did
    fall = describe_fall(record.curve, record.config.patience) if chooses else None
    if fall is not None:
        say(f"Warning: {fall}")
    if json_:
        document = {"folder": str(record.folder), **record.summary}
        if "mesh" in record.environment:
            document["mesh"] = record.environment["mesh"]
        names = ("epoch", "iteration", "validation_recall_at_50", "test_recall_at_50")
        last = evaluations_of(record.curve)[-1:]
        document["last_epoch"] = {name: last[0][name] for name in names} if last else None
        document["warnings"] = [fall] if fall else []
        document["floors"] = [
            measured_values(floor) | {"this_run": recall and stands.word} | stands.difference
            for floor in floors
            for stands in [compare(recall, floor.reported)]
        ]
        document["blend"] = both and measured_values(both)
        print_json({**document, "config": record.config.to_dict(), "ledger": record.ledger})
    else:
        more = []
        if tables := record.environment.get("updated_by_row"):
            more.append(f"Updated by row (docs/models.md): {', '.join(tables)}.")
        if recall is not None:
            to_fit = floor_command(record.config.dataset, data_dir)
            more.append(run_sentence(floors, recall, both) if floors else to_fit)
        table = run_table(record.summary, record.curve, record.feature_seconds)
        print_views(table, ledger_table(record.ledger), *more, f"Records: {record.folder}")
