"""``ncfbench audit``: bias and variance of samplers, and the contents of their batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ncfbench.catalog import BUILT_IN, LOSSES, SAMPLERS
from ncfbench.cli import options
from ncfbench.cli.output import print_json, print_views, progress_bar, reporting
from ncfbench.config import Locations, merge
from ncfbench.errors import CheckFailedError, UsageError, either

if TYPE_CHECKING:
    from ncfbench.runs.progress import Progress

NOISES, BATCHES, WARMUP = "unigram,uniform,0.75", 1536, 20
OF_FRAMEWORKS = ("dataset", "batch_size", "seed")
"""Settings that the audit of frameworks uses."""


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
    ] = NOISES,
    frameworks: Annotated[
        bool,
        typer.Option(
            "--frameworks",
            help=(
                "Audit the losses of other frameworks instead, with planted faults beside them;"
                " without --dataset on a graph of its own."
            ),
        ),
    ] = False,
    framework: Annotated[
        str | None,
        typer.Option(
            help="Only these of --frameworks, separated by commas.",
            show_default="all",
        ),
    ] = None,
    installed: Annotated[
        bool,
        typer.Option(
            "--installed",
            help=(
                "With --framework: compare the loss of one batch with that of the installed"
                " package, and audit nothing."
            ),
        ),
    ] = False,
    batches: Annotated[
        int | None,
        typer.Option(
            help="Batches of each sampler; more give narrower intervals. 0: suite and X-ray only.",
            show_default="1536; --frameworks 3072",
        ),
    ] = None,
    margin: Annotated[
        str,
        typer.Option(
            help="Largest bias, as a share of the exact gradient, that may be called unbiased."
        ),
    ] = "10%",
    warmup: Annotated[
        int, typer.Option(help="Training iterations before the second set of parameters.")
    ] = WARMUP,
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

    --frameworks audits the losses of other frameworks against the objectives that they claim to
    estimate, and needs no data set. Its table goes to frameworks.parquet in --runs-dir. A
    framework's bias is a finding, exit code 0; a planted fault that is not found ends the command
    with exit code 6.
    """
    share = options.parse_share(margin, "--margin")
    given = {**flags, "data_dir": data_dir, "runs_dir": runs_dir}
    if frameworks or framework is not None or installed:
        changed = {"--samplers": samplers != "all", "--loss": loss != "all"}
        changed |= {"--noise": noise != NOISES, "--warmup": warmup != WARMUP}
        changed["--variance-parts"] = variance_parts
        settings, locations = merge(given, set_ or (), config)
        changed |= {f"--{name.replace('_', '-')}": name not in OF_FRAMEWORKS for name in settings}
        if idle := [flag for flag, is_changed in changed.items() if is_changed]:
            raise UsageError(
                f"{either(idle)} has no effect on --frameworks, which has losses and samplers of"
                " its own. Leave it out."
            )
        _audit_frameworks(
            settings,
            locations,
            framework,
            installed=installed,
            batches=batches,
            margin=share,
            progress=progress_bar(quiet=quiet),
            json_=json_,
        )
        return
    chosen_samplers, chosen_losses = options.names(samplers, SAMPLERS), options.names(loss, LOSSES)
    settings, locations = merge(
        given,
        set_ or (),
        config,
        chosen={"sampler": chosen_samplers, "loss": chosen_losses},
    )
    from ncfbench.auditing.audit import audit_samplers
    from ncfbench.auditing.tables import audit_tables, write

    progress = progress_bar(quiet=quiet)
    record = audit_samplers(
        samplers=chosen_samplers,
        losses=chosen_losses,
        noises=options.names(noise),
        batches=BATCHES if batches is None else batches,
        margin=share,
        warmup=warmup,
        variance_parts=variance_parts,
        data_dir=locations.data_dir,
        say=progress.say,
        progress=progress,
        **options.as_keywords(settings),
    )
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


def _audit_frameworks(
    settings: Mapping[str, Any],
    locations: Locations,
    framework: str | None,
    *,
    installed: bool,
    batches: int | None,
    margin: float,
    progress: Progress,
    json_: bool,
) -> None:
    """Audit the losses of frameworks, or compare them with installed packages."""
    if installed and not framework:
        raise UsageError(
            "--installed needs --framework with the names to compare, for example --framework"
            " st-mnrl."
        )
    from ncfbench.auditing.frameworks import audit as audits
    from ncfbench.auditing.frameworks import packages
    from ncfbench.auditing.frameworks.catalog import chosen
    from ncfbench.auditing.frameworks.links import Links
    from ncfbench.auditing.frameworks.tables import frameworks_tables, packages_table
    from ncfbench.auditing.tables import write
    from ncfbench.data import open_dataset
    from ncfbench.timing.compile_cache import keep_compiled

    estimators = chosen(options.names("all" if framework is None else framework))
    choices = audits.Options(
        **{name: settings[name] for name in ("batch_size", "seed") if name in settings},
        **({} if batches is None else {"batches": batches}),
        margin=margin,
    )
    keep_compiled(progress.say)
    name = settings.get("dataset")
    graph = (
        open_dataset(name, data_dir=locations.data_dir, say=progress.say).graph
        if name
        else audits.built_in_graph()
    )
    links = Links.of(graph)
    if installed:
        rows = packages.compare(links, estimators, choices.batch_size)
        print_json({"packages": rows}) if json_ else print_views(packages_table(rows))
        wrong = [row["name"] for row in rows if not row["agrees"]]
        if wrong:
            raise CheckFailedError(
                f"{either(wrong)} differs from the installed package: what the audit says of it"
                " holds for the version that it follows."
            )
        return
    rows = audits.audit_frameworks(links, estimators, choices, progress, dataset=name)
    print_json({"frameworks": rows}) if json_ else print_views(*frameworks_tables(rows))
    # Printed first: a folder that cannot be written must not hide the result.
    write(locations.runs_dir, {"frameworks": rows})
    if not json_:
        print_views(f"Written: frameworks.parquet in {locations.runs_dir}")
    missed = audits.undetected(rows)
    if missed:
        raise CheckFailedError("\n".join(["The audit missed planted faults:", *missed]))
