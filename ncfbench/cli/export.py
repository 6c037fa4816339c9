"""``ncfbench export``: the vectors of a run and its users' best items, for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ncfbench.cli import options
from ncfbench.cli.failures import reporting
from ncfbench.cli.options import option
from ncfbench.cli.output import print_json, print_sentences, print_views, progress_bar


@reporting
def export(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|DATASET",
            help="Folder of a run, or its name below --runs-dir; with --floor also a data set.",
        ),
    ],
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="New or empty folder for the files.")
    ],
    floor: Annotated[
        str | None,
        option(
            metavar="NAME",
            help="A kept floor, such as ridge: its vectors, or beside a run those of both.",
        ),
    ] = None,
    on_all_links: Annotated[
        bool,
        option(
            "--on-all-links",
            help="Train and fit once more, on the held-out links too: for production.",
        ),
    ] = False,
    top: Annotated[
        int | None,
        option(metavar="N", help="Write each user's N best items too, in recommendations.parquet."),
    ] = None,
    candidates: Annotated[
        str,
        option(
            metavar="NAME",
            help="Items that --top ranks: all but the user's, or those of the test.",
            default=True,
        ),
    ] = "all",
    again: Annotated[bool, option("--again", help="Replace the vectors that DIR holds.")] = False,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Write vectors of users and items, for other programs: a run's, a floor's, or those of both.

    The dot product of a user's vector and an item's is the score that recall ranks by. A run's
    vectors are those of the epoch that it reports. With --floor ridge they are those of ridge
    regression, by the leading singular vectors of its scores; a run beside it is blended with it,
    by the weight that validation links chose. --on-all-links repeats as many whole epochs, with the
    same penalty and weight, with the held-out links.

    DIR gets users.npy and items.npy (float32), users.parquet and items.parquet (ids beside the
    vectors), towers.safetensors (a run's parameters by name) and meta.json (settings, and what the
    vectors are). It is there when all is written, or not at all. docs/deploy.md reads the files by
    NumPy, FAISS and PyTorch.

    Examples:

    ncfbench export runs/custom-bow-softmax-strat-ns-seed0-1a2b3c vectors --floor ridge --top 50

    ncfbench export custom vectors --floor ridge
    """
    from ncfbench.training.export import FILES, export_vectors

    progress = progress_bar(quiet=quiet)
    meta = export_vectors(
        source,
        folder,
        floor=floor,
        on_all_links=on_all_links,
        top=top,
        candidates=candidates,
        again=again,
        data_dir=data_dir,
        runs_dir=runs_dir,
        progress=progress,
    )
    if json_:
        print_json(meta)
        return
    of = [meta[name] for name in ("run", "floor") if name in meta]
    print_sentences(
        f"Vectors of {meta['users']:,} users and {meta['items']:,} items of {meta['dataset']}, of"
        f" {meta['dimension']} numbers, by {' and '.join(of)}"
        + ", trained on all links" * on_all_links
        + f"; {meta['seconds']:.1f} s."
    )
    files = [name for name in FILES if (folder / name).exists()]
    print_views(f"Written: {', '.join(files)} in {folder}")
