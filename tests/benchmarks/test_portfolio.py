"""The portfolio that a race begins with: chosen by plain rules, and as the kept cells choose it."""

import json

import bench_portfolio as bench
import pytest
from bench_portfolio import Matrix, Portfolio

from ncfbench.advice.space import Space
from ncfbench.catalog.presets import PORTFOLIO


def cells(recalls):
    """Recalls of candidates after 1 and 10 seconds, by data set."""
    return [
        {"cell": f"{dataset}/{name}", "seconds": [1.0, 10.0], "validation": [*both]}
        for dataset, own in recalls.items()
        for name, both in own.items()
    ]


RECALLS = {
    "one": {"good": (0.1, 0.4), "b": (0.2, 0.2), "c of two": (0.3, 0.5)},
    "two": {"good": (0.1, 0.9), "b": (0.5, 1.0), "c of two": (0.1, 0.4)},
}


def test_the_next_one_adds_most(monkeypatch):
    """good alone has 0.8 and 0.9 of the best; with it b adds 0.1, c 0.2. c is a trial of "two"."""
    matrix = Matrix(cells(RECALLS))
    assert matrix.share("one", ["good"]) == pytest.approx(0.8)
    assert matrix.share("one", ["good"], 1.0) == pytest.approx(1 / 3)
    assert matrix.share("two", ["good", "c of two"]) == pytest.approx(0.9)
    monkeypatch.setattr(bench, "SIZE", 3)
    assert matrix.choose(["one", "two"]) == ["good", "c of two", "b"]
    assert matrix.choose(["one"]) == ["good", "b"]


def test_the_race_begins_with_what_the_kept_cells_choose():
    kept = json.loads(Portfolio.file.read_text("utf-8"))["cells"]
    matrix = Matrix(kept)
    chosen = matrix.choose(matrix.sets)
    space = Space({}, {})
    measured = [space.config(matrix.cells[matrix.sets[0], name]["point"]) for name in chosen]
    ends = {"epochs": measured[0].epochs, "patience": measured[0].patience}
    assert [space.config({**each, **ends}) for each in PORTFOLIO.values()] == measured
    points = {name: dict(found["point"]) for (_, name), found in matrix.cells.items()}
    assert {name: dict(values) for name, values in bench.candidates().items()} == points
