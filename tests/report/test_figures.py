"""What the figures draw: which runs, which points, and bounds where there are no points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from folders import write_folder, write_run
from typer.testing import CliRunner, Result

from ncfbench.cli import app
from ncfbench.report import figures
from ncfbench.report.comparison import group
from ncfbench.runs.folder import read_all


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, words)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("runs"))


def test_s_and_k_have_their_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for s in (2, 4, 8):
        write_run(
            tmp_path / "r", "strat-ns", [9, 4, 2 + 0.1 * s], 20, [0.1, 0.2, 0.3], stratum_size=s
        )
    for k in (5, 10):
        write_run(tmp_path / "r", "neg", [9, 4, 2 + 0.1 * k], 20, [0.1, 0.2, 0.3], negatives=k)
    assert invoke(tmp_path / "r", "--figures", tmp_path / "f", "--json").exit_code == 0
    kinds = {path.stem.partition("-citeulike")[0] for path in (tmp_path / "f").iterdir()}
    assert kinds == {"convergence", "stratum-size", "negatives"}


def test_bounds_are_drawn_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    write_run(tmp_path, "iid", [9, 8, 7, 6, 5], 200, [0, 0.05, 0.1, 0.15, 0.2])
    write_run(tmp_path, "ns", [9, 4, 2], 20, [0, 0.35, 0.4])
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "_save", lambda figure, *given: drawn.append(figure) or [])
    (comparison,) = group(read_all(tmp_path)[0])
    figures.targets(comparison, tmp_path)
    total, iterations = drawn[0].axes[1], drawn[0].axes[3]
    for axis, values in ((total, [20, 30, 40, 40, 20]), (iterations, [2, 3, 4, 4, 2])):
        arrows = [
            line
            for line in axis.lines
            if line.get_marker() == figures.BOUNDS["at_least"][0] and len(line.get_xdata())
        ]
        assert [(list(line.get_xdata()), list(line.get_ydata())) for line in arrows] == [
            (pytest.approx([0.1, 0.15, 0.2, 0.35, 0.4]), pytest.approx(values))
        ]
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["N.S.", "at least"]


def test_points_of_s_and_k_are_of_the_same_seeds_and_otherwise_the_papers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    for seed in (0, 1):
        write_run(tmp_path, "strat", [9, 4], 20, seed=seed)
    write_run(tmp_path, "strat", [9, 3], 20, stratum_size=8)
    write_run(tmp_path, "strat", [9, 2], 20, negatives=1)
    write_run(tmp_path, "ns", [9, 1], 20)
    drawn: list[tuple[str, Any]] = []
    setting_line, level_line = figures._draw_setting, figures._draw_level
    keep = {
        "_draw_setting": lambda *given: (drawn.append(given[1:3]), setting_line(*given)),
        "_draw_level": lambda *given: (drawn.append((given[1], {0: given[2]})), level_line(*given)),
    }
    for name, action in keep.items():
        monkeypatch.setattr(figures, name, action)
    (comparison,) = group(read_all(tmp_path)[0])
    for setting, expected in (("stratum_size", {4: [4], 8: [3]}), ("negatives", {1: [2], 10: [4]})):
        drawn.clear()
        figures.by_setting(comparison, setting, tmp_path / "f")
        found = [
            (
                sampler,
                {
                    value: [run.curve[-1]["probe_loss"] for run in runs]
                    for value, runs in points.items()
                },
            )
            for sampler, points in drawn
        ]
        level = [("ns", {0: [1]})] if setting == "negatives" else []
        assert found == [("strat", expected), *level] * 2
    assert [figures._label(one, "cnn") for one in figures._main_variants(comparison)] == [
        "Stratified",
        "N.S.",
    ]
