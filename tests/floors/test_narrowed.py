"""Ridge regression on the heaviest columns of its content, where all take too long."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from prepared import quiet
from scipy import sparse

from ncfbench.data import prepare
from ncfbench.data.store import load
from ncfbench.errors import UsageError
from ncfbench.floors import case, floor, kept
from ncfbench.floors.task import HeldOut, Task
from ncfbench.reporting.floors import FloorResult
from ncfbench.reporting.views.floors import floors_table


def test_a_floor_that_has_too_little_time_reads_the_heaviest_columns(
    tmp_path, tiny_options, monkeypatch
):
    """A column takes a second; the most that has time is fitted, and later none that has fewer."""
    prepare("synthetic", tiny_options, tmp_path, "cold", say=quiet)
    data, fit = load(tmp_path, "cold"), partial(floor.floor, "cold", floors=["ridge"])
    fit = partial(fit, data_dir=tmp_path, say=quiet)
    monkeypatch.setattr(case, "WIDTHS", (16, 8))
    width = lambda given, *_, **__: given.task.content.shape[1]  # noqa: E731
    monkeypatch.setattr(case, "expected_seconds", width)
    for seconds, columns in ((9, 8), (8, 8), (20, 16), (9, 16), (1000, None), (9, None)):
        found = fit(budget_seconds=seconds)
        (row,) = found.rows
        assert kept.columns_of(row) == columns
        assert any(f"the {columns} heaviest" in note for note in found.notes) == (
            columns is not None
        )
        assert floors_table("cold", found.rows).rows[0][0].text == "ridge"
        title = "ridge regression" + f" on {columns} columns" * (columns is not None)
        assert FloorResult(row).name == title
        assert FloorResult(row).facts["columns"] == columns
        # Fitted again it has the recall that is kept.
        task, ranks = floor.refit(data, row)
        held_out = HeldOut.of(task, data)["validation"]
        recall = held_out.evaluate(ranks(held_out.candidates)).figures["recall_at_50"]
        assert recall == row["validation_recall_at_50"]
    with pytest.raises(UsageError, match="No ridge: it would take about .* has 5 s"):
        fit(budget_seconds=5, again=True)


@pytest.mark.parametrize("is_sparse", [True, False])
def test_the_heaviest_columns_are_those_of_known_items(is_sparse):
    links = sparse.csr_array(np.array([[1, 0, 1, 0], [0, 0, 1, 0]], np.float32))
    rows = [[0, 3, 1, 2], [9, 9, 9, 9], [0, 1, 3, 2], [9, 9, 9, 9]]
    content: Any = np.array(rows, np.float32)
    content = sparse.csr_array(content) if is_sparse else content
    found: Any = Task(links, content).narrowed(2).content
    found = found.toarray() if is_sparse else found
    # Sums of squares of the first and third item: 0, 10, 10, 8.
    assert found.tolist() == [row[1:3] for row in rows]
