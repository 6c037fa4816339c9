"""Evaluations on disk: ``evaluation.parquet``, what each recall@50 of a run is made of."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ncfbench.errors import DataError
from ncfbench.runs.quality import Evaluation
from ncfbench.storage import tables
from ncfbench.storage.schemas import EVALUATION

FILE = "evaluation.parquet"
Evaluations: TypeAlias = Mapping[tuple[int, str], Evaluation]
"""Evaluations by iteration and split."""


def write(folder: Path, evaluations: Evaluations) -> None:
    """Write the evaluations of a run into its folder."""
    rows = [
        {"iteration": iteration, "split": split, **vars(evaluation)}
        for (iteration, split), evaluation in evaluations.items()
    ]
    tables.write_rows(folder / FILE, rows, EVALUATION)


def copy(folder: Path, target: Path, iterations: Collection[int | None]) -> None:
    """Copy a run's evaluations of some iterations and of the last one, in few bytes."""
    if (folder / FILE).exists():
        table = tables.read_table(folder / FILE, EVALUATION)
        kept = [*iterations, pc.max(table["iteration"]).as_py()]
        table = table.filter(pc.is_in(table["iteration"], pa.array(kept, pa.int64())))
        tables.write_table(target / FILE, [table], table.schema, tables.COMPACTEST)


def find(folder: Path, iteration: int | None, split: str = "test") -> Evaluation | None:
    """Return a run's evaluation of a split; None where it is not kept, or damaged."""
    try:
        return None if iteration is None else read(folder).get((iteration, split))
    except DataError:
        return None


def read(folder: Path) -> dict[tuple[int, str], Evaluation]:
    """Return the evaluations of a run, without their figures, which its curve has; none where the
    run was never evaluated.

    Raises:
        DataError: the file is damaged.
    """
    if not (folder / FILE).exists():
        return {}
    table = tables.read_table(folder / FILE, EVALUATION)
    columns = (table[name] for name in EVALUATION.names)
    return {
        (iteration.as_py(), split.as_py()): Evaluation({}, *(np.asarray(of.values) for of in lists))
        for iteration, split, *lists in zip(*columns, strict=True)
    }
