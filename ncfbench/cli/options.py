"""Flags that several commands have, each declared once: their types, a command gives the default;
and lists in flags.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from ncfbench.config import PRECISIONS
from ncfbench.division import SHARES
from ncfbench.registry import ENCODERS

Dataset = Annotated[str | None, typer.Option(help="Prepared data set.", show_default="citeulike")]
Encoder = Annotated[
    str | None, typer.Option(help=f"{', '.join(ENCODERS)}, or a plug-in.", show_default="cnn")
]
BatchSize = Annotated[
    int | None, typer.Option(help="b: positive links in a batch.", show_default="512")
]
StratumSize = Annotated[
    int | None,
    typer.Option(help="s: positive links in a stratum (strat, strat-ns).", show_default="4"),
]
Strata = Annotated[
    str | None,
    typer.Option(help="What the links of a stratum share: item or user.", show_default="item"),
]
UniformItems = Annotated[
    int | None,
    typer.Option(help="k': items drawn uniformly into a batch (mixed-ns).", show_default="b"),
]
Negatives = Annotated[
    int | None,
    typer.Option(
        help="k: negative links for each positive one (iid, neg, strat).", show_default="10; lstm 5"
    ),
]
Noise = Annotated[
    str | None,
    typer.Option(
        help="P_n: unigram, uniform, or an exponent of the degree.", show_default="unigram"
    ),
]
Mask = Annotated[
    bool | None,
    typer.Option(
        "--mask/--no-mask", help="Leave linked pairs out of the negatives.", show_default="mask"
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        help=f"Of the training step's products: {', '.join(PRECISIONS)}.", show_default="float32"
    ),
]
Devices = Annotated[
    int | None,
    typer.Option(
        help="Devices that a batch is spread over; on a CPU simulated ones.",
        show_default="1; of several processes all",
    ),
]
Share = Annotated[
    str | None,
    typer.Option(
        help=(
            f"Whose items are negatives on several devices: {', '.join(SHARES)} (each device's"
            " own)."
        ),
        show_default="global",
    ),
]
ShardTables = Annotated[
    bool | None,
    typer.Option(
        "--shard-tables/--replicate-tables",
        help="Spread embedding tables over the devices by row.",
        show_default="replicate",
    ),
]
Coordinator = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT|auto",
        help=(
            "Where the first of several processes listens; auto: ask the cluster, Slurm for"
            " example."
        ),
        show_default=False,
    ),
]
Processes = Annotated[
    int | None, typer.Option(help="How many processes make the run together.", show_default=False)
]
ProcessId = Annotated[
    int | None,
    typer.Option(help="Which of them this is; the first, 0, records.", show_default=False),
]
PeerTimeout = Annotated[
    float,
    typer.Option(
        help=(
            "Seconds after which a process that does not come, or falls silent, ends the run"
            " everywhere."
        )
    ),
]
Seed = Annotated[
    int | None, typer.Option(help="Seed of parameters, batches and dropout.", show_default="0")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        help="TOML file of settings, named like the flags.", show_default=False, dir_okay=True
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting, also those without a flag.",
        show_default=False,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Prepared data sets. Default: $NCFBENCH_DATA_DIR, or ./data.", show_default=False
    ),
]
RunsDir = Annotated[
    Path | None,
    typer.Option(help="Run folders. Default: $NCFBENCH_RUNS_DIR, or ./runs.", show_default=False),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


def names(text: str, valid: Iterable[str] = ()) -> tuple[str, ...]:
    """The parts of a list separated by commas, each once; ``all`` stands for the valid ones."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(
        dict.fromkeys(
            name for part in parts for name in (valid if part == "all" and valid else (part,))
        )
    )
