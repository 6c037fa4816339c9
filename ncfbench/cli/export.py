"""``ncfbench export``: the vectors of a run and its users' best items, for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ncfbench.cli import options
from ncfbench.cli.options import option
from ncfbench.cli.output import print_json, print_sentences, print_views, progress_bar, reporting


@reporting
def export(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or its name below --runs-dir.")],
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="New or empty folder for the files.")
    ],
    top: Annotated[
        int | None,
        option(metavar="N", help="Write each user's N best items too, in recommendations.parquet."),
    ] = None,
    again: Annotated[bool, option("--again", help="Replace the vectors that DIR holds.")] = False,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Write a run's vectors of users and items, its parameters, and its users' best items.

    The dot product of a user's vector and an item's is the score that recall and recommendations
    rank by. The parameters are those of the epoch that the run reports. DIR gets users.npy and
    items.npy (float32), users.parquet and items.parquet (ids beside the vectors),
    towers.safetensors (all parameters by name) and meta.json (settings, and what the vectors are).
    It is there when all is written, or not at all. docs/vectors.md reads the files by NumPy, FAISS
    and PyTorch. With --top, the items that the run's test ranks are ranked for every user; nothing
    is trained.

    Example: ncfbench export runs/custom-bow-softmax-strat-ns-seed0-1a2b3c vectors --top 50
    """
    from ncfbench.training.export import FILES, export_vectors
    from ncfbench.training.recommend import FILE as RECOMMENDATIONS

    progress = progress_bar(quiet=quiet)
    meta = export_vectors(
        run, folder, top=top, again=again, data_dir=data_dir, runs_dir=runs_dir, progress=progress
    )
    if json_:
        print_json(meta)
        return
    print_sentences(
        f"Vectors of {meta['users']:,} users and {meta['items']:,} items of {meta['dataset']}, of"
        f" {meta['dimension']} numbers, after epoch {meta['epoch']:g}; {meta['seconds']:.1f} s."
    )
    files = FILES if top is None else (*FILES, RECOMMENDATIONS)
    print_views(f"Written: {', '.join(files)} in {folder}")
