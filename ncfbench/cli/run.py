"""``ncfbench run``: train one recommender."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncfbench.cli import options
from ncfbench.cli.output import print_json, print_views, progress_bar, reporting, say
from ncfbench.config import Locations, RunConfig, complete, merge
from ncfbench.distributed.cluster import Cluster, refuse_for_processes
from ncfbench.distributed.simulation import simulate
from ncfbench.distributed.supervisor import Parent, supervise
from ncfbench.errors import UsageError
from ncfbench.registry import LOSSES, SAMPLERS

if TYPE_CHECKING:
    from ncfbench.runs.folder import RunRecord
    from ncfbench.runs.progress import Progress


@reporting
def run(
    dataset: options.Dataset = None,
    sampler: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(SAMPLERS)}, or a plug-in.", show_default="strat-ns"),
    ] = None,
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
    unique_items: Annotated[
        bool | None,
        typer.Option(
            "--unique-items/--no-unique-items",
            help="Embed a batch's distinct items once.",
            show_default="unique",
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training links.", show_default="30")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Adam's learning rate.", show_default="0.01; mse 0.001")
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option(
            help="Margin of hinge (0.1), scale of log and softmax (10).", show_default=False
        ),
    ] = None,
    lambda_: Annotated[
        float | None,
        typer.Option(
            "--lambda", help="Weight of the negative term: sg (128), mse (8).", show_default=False
        ),
    ] = None,
    word_dropout: Annotated[
        float | None, typer.Option(help="Share of words removed in training.", show_default="0.5")
    ] = None,
    item_dropout: Annotated[
        float | None, typer.Option(help="Dropout on item embeddings.", show_default="0.1")
    ] = None,
    user_l2: Annotated[
        float | None, typer.Option(help="Weight of the users' squared norm.", show_default="1e-6")
    ] = None,
    precision: options.Precision = None,
    devices: options.Devices = None,
    share: options.Share = None,
    shard_tables: options.ShardTables = None,
    seed: options.Seed = None,
    probe_every: Annotated[
        int | None, typer.Option(help="Iterations between probes.", show_default="four in an epoch")
    ] = None,
    config: options.ConfigFile = None,
    set_: options.Set = None,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the interrupted run of these settings.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Write a trace of JAX's profiler of ten steady iterations into this folder.",
            show_default=False,
        ),
    ] = None,
    recommend: Annotated[
        int | None,
        typer.Option(
            metavar="M",
            help=(
                "At the end write the M best test items of every user with a link to"
                " recommendations.parquet in the run's "
                "folder, by the parameters at the end of the run; with --resume also of a finished"
                " run."
            ),
            show_default=False,
        ),
    ] = None,
    coordinator: options.Coordinator = None,
    processes: options.Processes = None,
    process_id: options.ProcessId = None,
    peer_timeout: options.PeerTimeout = 60.0,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Train one recommender with one sampler, and record times, losses and recall.

    Settings come from flags, then --set, then the environment, then --config, then the paper's
    defaults for the loss and the encoder. The records are kept in a folder below --runs-dir;
    `ncfbench report` compares them.

    Example: ncfbench run --dataset synthetic --sampler strat-ns --encoder cnn --loss hinge --epochs
        5
    """
    flags = {
        "dataset": dataset,
        "sampler": sampler,
        "encoder": encoder,
        "loss": loss,
        "batch_size": batch_size,
        "stratum_size": stratum_size,
        "negatives": negatives,
        "noise": noise,
        "mask": mask,
        "unique_items": unique_items,
        "strata": strata,
        "uniform_items": uniform_items,
        "epochs": epochs,
        "learning_rate": learning_rate,
        "gamma": gamma,
        "lambda": lambda_,
        "word_dropout": word_dropout,
        "item_dropout": item_dropout,
        "user_l2": user_l2,
        "seed": seed,
        "probe_every": probe_every,
        "precision": precision,
        "devices": devices,
        "share": share,
        "shard_tables": shard_tables,
        "data_dir": data_dir,
        "runs_dir": runs_dir,
    }
    given, places = merge(flags, set_ or (), config)
    # Where several processes are not told how many devices, these are all that they have: known
    # when they have met.
    is_counted = coordinator is None or "devices" in given
    settings = complete(given if is_counted else given | {"share": RunConfig.share})
    simulate(-(-settings.devices // (processes or 1)))
    parent = Parent.from_environment()
    progress = progress_bar(quiet=quiet)
    cluster = _cluster(coordinator, processes, process_id, peer_timeout)
    if cluster is not None:
        refuse_for_processes(trace, recommend)
        if parent is None:
            raise typer.Exit(supervise(cluster))
    with _joined(cluster, parent, progress):
        if not is_counted:
            settings = complete(given | {"devices": _all_devices()})
        record = _trained(
            settings, places, progress, resume=resume, trace=trace, recommend=recommend
        )
        if record is not None:
            _print_results(record, recommend, json_=json_)


def _print_results(record: RunRecord, recommend: int | None, *, json_: bool) -> None:
    from ncfbench.report.views.run import ledger_table, run_table
    from ncfbench.training.recommend import FILE as RECOMMENDATIONS

    written = {} if recommend is None else {"recommendations": str(record.folder / RECOMMENDATIONS)}
    if written and record.summary["reported_epoch"] not in (None, record.summary["epochs"]):
        reported, end = (f"{record.summary[name]:g}" for name in ("reported_epoch", "epochs"))
        say(
            f"Recommendations are those of epoch {end}, the end; the reported recall is that of"
            f" epoch {reported}."
        )
    if json_:
        found = {"folder": str(record.folder), **written, **record.summary}
        found |= {
            name: record.environment[name]
            for name in ("mesh", "sent_bytes")
            if name in record.environment
        }
        print_json({**found, "config": record.config.to_dict(), "ledger": record.ledger})
    else:
        more = [_sent(record)] if "sent_bytes" in record.environment else []
        more += [
            f"Records: {record.folder}",
            *(f"Recommendations: {path}" for path in written.values()),
        ]
        print_views(run_table(record.summary), ledger_table(record.ledger), *more)


def _sent(record: RunRecord) -> str:
    """What devices sent each other, beside the ledger, whose ``step`` the time for it is a part
    of.
    """
    found, mesh = record.environment["sent_bytes"], record.environment["mesh"]
    parts = ", ".join(f"{name} {count / 1e3:,.1f}" for name, count in found.items() if count)
    simulated = "simulated " if mesh["simulated"] else ""
    return (
        f"Each of {mesh['devices']} {simulated}devices sends {sum(found.values()) / 1e3:,.1f} kB an"
        f" iteration ({parts}). The time for it is in the line step, and by itself in `ncfbench"
        " profile --devices`."
    )


def _trained(
    settings: RunConfig,
    places: Locations,
    progress: Progress,
    *,
    resume: bool,
    trace: Path | None,
    recommend: int | None,
) -> RunRecord | None:
    """Train the run; return None in all processes but the first, which keep no records."""
    from ncfbench.distributed.process_group import ProcessGroup
    from ncfbench.timing.compile_cache import keep_compiled
    from ncfbench.training import run as training

    keep_compiled(progress.say)
    try:
        return training.run_in_group(
            settings, places, resume=resume, progress=progress, trace=trace, recommend=recommend
        )
    except KeyboardInterrupt:
        if ProcessGroup.current().is_first:
            say("To continue this run, repeat the command with --resume.")
        raise


def _all_devices() -> int:
    """Of all processes together."""
    from ncfbench.distributed.process_group import ProcessGroup

    return ProcessGroup.current().devices


def _cluster(
    coordinator: str | None, processes: int | None, process_id: int | None, timeout: float
) -> Cluster | None:
    """Return where the processes of this run meet; None for one process."""
    if coordinator is not None:
        return Cluster(coordinator, processes, process_id, timeout)
    if processes is not None or process_id is not None:
        raise UsageError(
            "--processes and --process-id belong to --coordinator HOST:PORT, where the first one"
            " listens."
        )
    return None


@contextmanager
def _joined(cluster: Cluster | None, parent: Parent | None, progress: Progress) -> Iterator[None]:
    """Join the other processes, if there are any."""
    if cluster is None or parent is None:
        yield
        return
    from ncfbench.distributed.joining import joined

    with joined(cluster, parent, progress.say):
        yield
