"""The benchmark of advice: its figures by plain arithmetic, and a real cell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import advice_cells as table
import bench_advice as bench
import pytest
from harness import PREPARE
from invoked import invoke

from ncfbench.advice.candidates import list_candidates
from ncfbench.errors import CheckFailedError, UsageError
from ncfbench.racing.rule import Curve
from ncfbench.reporting.render.terminal import make_console, show

DESCRIBED = {"key": "here", "cpu": "a small one", "cores": 2, "packages": {"jax": "0.10"}}


def falling(slope: float, end: float = 30.0) -> Curve:
    """A loss that falls from 10 by ``slope`` a second."""
    seconds = [float(t) for t in range(int(end) + 1)]
    return Curve(seconds, [10 - slope * t for t in seconds])


def arms(slopes: Sequence[float], **baseline: Any) -> list[Any]:
    """Arms a, b, ... of these slopes; the first is the baseline."""
    found = [
        table.Arm(name, falling(slope), False, 1.0)
        for name, slope in zip("abcdefg", slopes, strict=False)
    ]
    first = {"is_baseline": True, "learned_at": 1.0, **baseline}
    return [table.Arm("a", found[0].curve, **first), *found[1:]]


def raced(name: str, times_slower: float | None, status: str = "slower") -> dict[str, Any]:
    return {
        "entrant": name,
        "times_slower": times_slower,
        "status": status,
        "clock_seconds": 3.0,
        "level": 5.0,
    }


def test_the_target_is_the_baselines_level() -> None:
    """30 s: the baseline is at 10 - 20 * 0.1 = 8 after two thirds, where others need 2 / slope."""
    found = arms([0.1, 0.2, 0.05])
    assert table.target_level(found, 30.0) == pytest.approx(8.0)
    seconds = table.seconds_to(found, 8.0)
    assert seconds["a"] == pytest.approx(20.0)
    assert seconds["b"] == pytest.approx(10.0)
    assert seconds["c"] == float("inf")


def test_a_baseline_at_chance_is_no_target() -> None:
    """Then the median of the others after 20 s: 10 - 20 * (0.1, 0.2, 0.3)."""
    for learned_at in (None, 20.5):
        found = arms([0.4, 0.1, 0.2, 0.3], learned_at=learned_at)
        assert table.target_level(found, 30.0) == pytest.approx(6.0)
    (nobody,) = arms([0.1], learned_at=None)
    assert table.target_level([nobody], 30.0) is None


def test_regret_is_a_ratio_of_times() -> None:
    regret = table.regret
    assert regret({"a": 0.0, "b": 1.0}, "a") == 1.0
    assert regret({"a": 0.0, "b": 1.0}, "b") == float("inf")
    seconds = {"a": 12.0, "b": 10.0, "c": float("inf")}
    assert regret(seconds, "a") == pytest.approx(1.2)
    assert regret(seconds, "b") == 1.0
    for none in ("c", "absent", None):
        assert regret(seconds, none) == float("inf")
    assert regret({}, "a") == float("inf")


def test_the_rank_correlation_is_spearmans() -> None:
    """1 - 6 sum d^2 / (n (n^2 - 1)) over the arms that both orders have."""
    correlation = table.rank_correlation
    assert correlation("abcd", "abcd") == pytest.approx(1.0)
    assert correlation("abcd", "dcba") == pytest.approx(-1.0)
    # Ranks 1 2 3 4 beside 2 1 3 4, whatever else is in the sweep.
    assert correlation("abcd", "bxacyd") == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert correlation("ab", "abc") is None


def test_the_figures_of_a_cell() -> None:
    """The target is 8: a needs 20 s, b 10, c 8, d 5. Advice has b first, and c and a as they are;
    d did not race.
    """
    rows = [raced("b", None, "recommended"), raced("c", 1.1), raced("a", 2.0)]
    answer = {"recommended": "b", "entrants": rows}
    found = table.compare(arms([0.1, 0.2, 0.25, 0.4]), 30.0, answer)
    assert found["level"] == pytest.approx(8.0)
    assert (found["recommended"], found["best"]) == ("b", "d")
    assert found["regret"] == pytest.approx(2.0)
    assert found["correlation"] == pytest.approx(1 - 6 * 2 / (3 * 8))
    assert [row["seconds"] for row in found["arms"]] == pytest.approx([20, 10, 8, 5])
    assert [row["advice"] for row in found["arms"]] == [
        "slower",
        "recommended",
        "slower",
        "did not race",
    ]
    nothing = table.compare([], 30.0, {"recommended": None, "entrants": []})
    assert nothing["regret"] is nothing["correlation"] is nothing["best"] is None


def cell(name: str = "x", **more: Any) -> dict[str, Any]:
    """A measured cell that is met."""
    found = {"cell": name, "regret": 1.1, "correlation": 0.9, "share": 0.09}
    found |= {"recommended": "ns b=512 lr=0.01", "best": "strat-ns b=512 s=4 lr=0.03"}
    return found | {"arms": [], "environment_key": "here", "code": "c", "time": "2026"} | more


def test_verdicts_of_cells_and_of_all() -> None:
    assert table.shortcomings(cell()) == []
    assert table.shortcomings(cell(regret=1.2, correlation=0.7, share=0.11)) == [
        "regret",
        "rank",
        "time",
    ]
    assert table.shortcomings(cell(regret=None, correlation=None)) == ["never there", "rank"]
    assert table.shortcomings(cell(regret=None, recommended=None)) == ["no choice"]
    good = [cell() for _ in range(8)]
    assert table.complaints([*good, cell(), cell(regret=1.5)]) == []
    assert table.complaints([*good, cell(regret=1.2), cell(regret=1.3)]) == [
        "Regret above 1.15 in 2 of 10; 1 may be."
    ]
    assert table.complaints([*good, cell(), cell(regret=1.51)]) == [
        "Regret above 1.5 in 1 of 10; none may be."
    ]
    assert len(table.complaints([*good, cell(correlation=0.79), cell(share=0.2)])) == 2
    # Nine cells have no miss to spare.
    assert table.complaints([*good, cell(regret=1.2)])


def test_the_table_fits_eighty_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    worst = cell("movielens/cnn-sg", regret=None, correlation=None, share=12.0)
    show(make_console(), table.cell_table([cell("dense/cnn-sg"), worst], {"here": DESCRIBED}))
    printed = capsys.readouterr().out
    (line,) = (line for line in printed.splitlines() if "1200.0" in line)
    assert "missed: never there, rank, time" in line
    assert "best: strat-ns b=512 s=4 lr=0.03" in " ".join(printed.split())
    assert max(map(len, printed.splitlines())) <= 80


def test_the_grid_is_ten_possible_questions() -> None:
    assert len(table.CELLS) == 10
    assert {each.encoder for each in table.CELLS.values()} == {"bow", "cnn", "lstm", "mf"}
    assert {each.loss for each in table.CELLS.values()} == {"sg", "hinge"}
    for name, each in {**table.CELLS, **table.QUICK}.items():
        candidates, _ = list_candidates(each.question, n_links=1000)
        assert any(one.shape.is_baseline for one in candidates)
        assert 3 <= len(candidates) <= 24, name
        assert each.dataset in PREPARE


def test_both_sides_get_the_same_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line of advise asks what the sweep trains."""
    asked = []

    def stop(question: Any, *rest: Any, **how: Any) -> None:
        asked.append(question)
        raise UsageError("enough")

    monkeypatch.setattr("ncfbench.advice.pipeline.answer_question", stop)
    cells = {**table.CELLS, **table.QUICK}
    for each in cells.values():
        invoke(*each.words, "--budget=60s")
    assert asked == [each.question for each in cells.values()]


@pytest.mark.long
def test_a_real_cell(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sweep and a race in processes of their own, kept as one of the environment. Every arm is
    trained to the horizon, and one that diverges leaves.
    """
    monkeypatch.setenv("NCFBENCH_ALLOCATOR", "none")  # as in this process, which never restarted
    name, rates = "tiny/mf-sg", (0.01, 1e30)
    monkeypatch.setitem(table.QUICK, name, replace(table.QUICK[name], learning_rates=rates))
    folders = [f"--{name}={tmp_path / name}" for name in ("data-dir", "json")]
    for _ in range(2):
        try:
            bench.Advice().main([*folders, "--quick", "--cells", "tiny/mf-sg", "--resume"])
        except SystemExit as ended:
            assert ended.code == CheckFailedError.exit_code
    assert "tiny/mf-sg (1 of 1): kept" in capsys.readouterr().err
    (found,) = json.loads((tmp_path / "json").read_text())["cells"]
    assert [row["arm"].split()[0] for row in found["arms"]] == ["iid", "ns", "strat-ns"]
    assert (found["horizon_seconds"], found["sweep_seconds"]) == (1.0, 3.0)
    assert found["regret"] is None or found["regret"] >= 1
    assert found["recommended"] in [None, *(row["arm"] for row in found["arms"])]
