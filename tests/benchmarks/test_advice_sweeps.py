"""The benchmark of advice: its figures by plain arithmetic, and what is kept and measured again."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from invoked import invoke

from ncfbench.advice.rule import Curve
from ncfbench.advice.state import read_state
from ncfbench.data.sources import synthetic
from ncfbench.data.store import load
from ncfbench.errors import CheckFailedError, DataError, UsageError
from ncfbench.runs import folder as runs

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
EXIT_MISSING, EXIT_MISSED, EXIT_INTERRUPTED = DataError.exit_code, CheckFailedError.exit_code, 130
MODULES = ("bench_advice", "advice_sweep", "advice_table", "advice_cells", "cell_files")
DESCRIBED = {"key": "here", "cpu": "a small one", "cores": 2, "packages": {"jax": "0.10"}}


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Namespace]:
    """The modules; benchmarks/ is no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import advice_cells
    import advice_table
    import bench_advice

    yield Namespace(bench=bench_advice, cells=advice_cells, table=advice_table)
    for name in MODULES:
        sys.modules.pop(name, None)


def falling(slope: float, end: float = 30.0) -> Curve:
    """A loss that falls from 10 by ``slope`` a second."""
    seconds = [float(t) for t in range(int(end) + 1)]
    return Curve(seconds, [10 - slope * t for t in seconds])


def arms(table: Any, slopes: Sequence[float], **baseline: Any) -> list[Any]:
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


def test_the_target_is_the_baselines_level(benchmarks: Namespace) -> None:
    """30 s: the baseline is at 10 - 20 * 0.1 = 8 after two thirds, where others need 2 / slope."""
    table = benchmarks.table
    found = arms(table, [0.1, 0.2, 0.05])
    assert table.target_level(found, 30.0) == pytest.approx(8.0)
    seconds = table.seconds_to(found, 8.0)
    assert seconds["a"] == pytest.approx(20.0)
    assert seconds["b"] == pytest.approx(10.0)
    assert seconds["c"] == float("inf")
    assert table.sweep_order(found, seconds) == ["b", "a", "c"]


def test_a_baseline_at_chance_is_no_target(benchmarks: Namespace) -> None:
    """Then the median of the others after 20 s: 10 - 20 * (0.1, 0.2, 0.3)."""
    table = benchmarks.table
    for learned_at in (None, 20.5):
        found = arms(table, [0.4, 0.1, 0.2, 0.3], learned_at=learned_at)
        assert table.target_level(found, 30.0) == pytest.approx(6.0)
    (nobody,) = arms(table, [0.1], learned_at=None)
    assert table.target_level([nobody], 30.0) is None


def test_regret_is_a_ratio_of_times(benchmarks: Namespace) -> None:
    regret = benchmarks.table.regret
    assert regret({"a": 0.0, "b": 1.0}, "a") == 1.0
    assert regret({"a": 0.0, "b": 1.0}, "b") == float("inf")
    seconds = {"a": 12.0, "b": 10.0, "c": float("inf")}
    assert regret(seconds, "a") == pytest.approx(1.2)
    assert regret(seconds, "b") == 1.0
    for none in ("c", "absent", None):
        assert regret(seconds, none) == float("inf")
    assert regret({}, "a") == float("inf")


def test_the_rank_correlation_is_spearmans(benchmarks: Namespace) -> None:
    """1 - 6 sum d^2 / (n (n^2 - 1)) over the arms that both orders have."""
    correlation = benchmarks.table.rank_correlation
    assert correlation("abcd", "abcd") == pytest.approx(1.0)
    assert correlation("abcd", "dcba") == pytest.approx(-1.0)
    # Ranks 1 2 3 4 beside 2 1 3 4, whatever else is in the sweep.
    assert correlation("abcd", "bxacyd") == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert correlation("ab", "abc") is None


def test_advice_orders_as_the_answer_does(benchmarks: Namespace) -> None:
    rows = [
        raced("b", None, "recommended"),
        raced("a", 3.0),
        raced("d", None, "left"),
        raced("f", 1.0) | {"clock_seconds": None},
    ]
    assert benchmarks.table.advice_order(rows) == ["b", "a", "d"]


def test_the_figures_of_a_cell(benchmarks: Namespace) -> None:
    """The target is 8: a needs 20 s, b 10, c 8, d 5. Advice has b first, and c and a as they are;
    d did not race.
    """
    table = benchmarks.table
    rows = [raced("b", None, "recommended"), raced("c", 1.1), raced("a", 2.0)]
    answer = {"recommended": "b", "entrants": rows}
    found = table.compare(arms(table, [0.1, 0.2, 0.25, 0.4]), 30.0, answer)
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


def test_verdicts_of_cells_and_of_all(benchmarks: Namespace) -> None:
    table = benchmarks.table
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
    benchmarks: Namespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    worst = cell("movielens/cnn-sg", regret=None, correlation=None, share=12.0)
    benchmarks.table.show([cell("dense/cnn-sg"), worst], {"here": DESCRIBED})
    printed = capsys.readouterr().out
    (line,) = (line for line in printed.splitlines() if "1200.0" in line)
    assert "missed: never there, rank, time" in line
    assert "best: strat-ns b=512 s=4 lr=0.03" in " ".join(printed.split())
    assert max(map(len, printed.splitlines())) <= 80


def test_the_grid_is_ten_possible_questions(benchmarks: Namespace) -> None:
    from ncfbench.advice.candidates import list_candidates

    cells = benchmarks.cells
    assert len(cells.CELLS) == 10
    assert {each.encoder for each in cells.CELLS.values()} == {"bow", "cnn", "lstm", "mf"}
    assert {each.loss for each in cells.CELLS.values()} == {"sg", "hinge"}
    for name, each in {**cells.CELLS, **cells.QUICK}.items():
        candidates, _ = list_candidates(each.question, n_links=1000)
        assert any(one.shape.is_baseline for one in candidates)
        assert 3 <= len(candidates) <= 24, name
    for options in cells.SYNTHETIC.values():
        assert synthetic.Options(**options)


def test_both_sides_get_the_same_question(
    benchmarks: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line of advise asks what the sweep trains."""
    asked = []

    def stop(question: Any, *rest: Any, **how: Any) -> None:
        asked.append(question)
        raise UsageError("enough")

    monkeypatch.setattr("ncfbench.advice.pipeline.answer_question", stop)
    cells = {**benchmarks.cells.CELLS, **benchmarks.cells.QUICK}
    for each in cells.values():
        invoke(*each.words, "--budget=60s")
    assert asked == [each.question for each in cells.values()]


FIGURES = {
    **{"sweep_seconds": 100.0, "budget_seconds": 5.0, "advice_seconds": 9.0, "share": 0.09},
    **{"horizon_seconds": 1.0, "level": 5.0, "recommended": "ns", "best": "ns"},
    **{"regret": 1.0, "correlation": 1.0, "arms": [{"arm": "ns", "seconds": 1.0}]},
}


def fake(bench: Any, monkeypatch: pytest.MonkeyPatch, found: dict[str, Any]) -> list[str]:
    """Cells that are measured at once, or raise; the list of those that were."""
    asked: list[str] = []
    monkeypatch.setattr(bench.environment, "describe", lambda: DESCRIBED)

    def measure(name: str, *rest: Any, races_only: bool) -> dict[str, Any]:
        asked.append(name)
        if isinstance(found.get(name), BaseException):
            raise found[name]
        return FIGURES | found.get(name, {})

    monkeypatch.setattr(bench, "measure", measure)
    return asked


def run(bench: Any, folder: Path, *words: str) -> int:
    """Exit code of the program."""
    places = ["--data-dir", folder / "data", "--runs-dir", folder / "runs"]
    places += ["--json", folder / "result.json"]
    try:
        bench.main([*map(str, places), *words])
    except SystemExit as error:
        return int(error.code or 0)
    return 0


def test_resume_keeps_finished_cells(
    benchmarks: Namespace,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A cell is measured again if it was not finished, or with other code."""
    bench = benchmarks.bench
    asked = fake(bench, monkeypatch, {"tiny/cnn-hinge": KeyboardInterrupt()})
    assert run(bench, tmp_path, "--quick") == EXIT_INTERRUPTED
    assert asked == ["tiny/mf-sg", "tiny/cnn-hinge"]
    captured = capsys.readouterr()
    assert "The verdict is met." in captured.out
    assert "Go on with --resume" in captured.err
    asked = fake(bench, monkeypatch, {"tiny/cnn-hinge": CheckFailedError("no luck")})
    assert run(bench, tmp_path, "--quick", "--resume") == EXIT_MISSED
    assert asked == ["tiny/cnn-hinge"]
    asked = fake(bench, monkeypatch, {"tiny/cnn-hinge": {"regret": 1.6}})
    assert run(bench, tmp_path, "--quick", "--resume") == EXIT_MISSED
    assert asked == ["tiny/cnn-hinge"]
    assert run(bench, tmp_path, "--quick", "--resume", "--cells", "tiny/mf*") == 0
    monkeypatch.setattr(bench, "code_fingerprint", lambda *more, **without: "other")
    assert run(bench, tmp_path, "--quick", "--resume") == EXIT_MISSED
    assert asked == ["tiny/cnn-hinge", "tiny/mf-sg", "tiny/cnn-hinge"]
    found = json.loads((tmp_path / "result.json").read_text())
    assert found["benchmark"] == "advice"
    assert [each["cell"] for each in found["cells"]] == ["tiny/mf-sg", "tiny/cnn-hinge"]


def test_resume_keeps_the_runs_of_a_cell(benchmarks: Namespace, tmp_path: Path) -> None:
    """Unless other code, data or another environment made them; a changed race keeps the sweep."""
    home = tmp_path / "home"
    for sweep, code, resume, left in (
        ("one", "a", True, set()),
        ("one", "a", True, {"sweep", "advice.json", "cache-advice"}),
        ("one", "b", True, {"sweep"}),
        ("two", "b", True, set()),
        ("two", "b", False, set()),
    ):
        benchmarks.bench.begin_in(home, {"code": sweep}, code, resume=resume)
        assert {path.name for path in home.iterdir()} - {"made_of.json"} == left
        for name in ("sweep", "advice.json"):
            (home / name).touch()
        (home / "cache-advice").mkdir(exist_ok=True)


def test_a_missing_data_set_is_named(
    benchmarks: Namespace,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake(benchmarks.bench, monkeypatch, {})
    assert run(benchmarks.bench, tmp_path, "--cells", "citeulike/cnn-*") == EXIT_MISSING
    messages = capsys.readouterr().err
    assert "citeulike/cnn-sg: no data set citeulike in" in messages
    assert "ncfbench prepare citeulike --text title,tags" in messages
    assert run(benchmarks.bench, tmp_path, "--cells", "citeulke/*") == 2
    assert "no cell 'citeulke/*'. Valid: sparse/cnn-sg" in capsys.readouterr().err


def test_a_failed_process_is_named(benchmarks: Namespace, tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import sys; print('no luck', file=sys.stderr); sys.exit(3)"]
    with pytest.raises(CheckFailedError, match=r"x/y: the process of its sweep ended with 3:\nno"):
        benchmarks.bench.run_part("x/y", "sweep", words, tmp_path)
    first = benchmarks.bench.seconds_of(tmp_path, "sweep")
    interrupted = [sys.executable, "-c", "raise SystemExit(130)"]
    with pytest.raises(KeyboardInterrupt):
        benchmarks.bench.run_part("x/y", "sweep", interrupted, tmp_path)
    assert benchmarks.bench.seconds_of(tmp_path, "sweep") > first > 0


@pytest.mark.long
def test_an_interrupted_sweep_continues(
    benchmarks: Namespace, monkeypatch: pytest.MonkeyPatch, data_dir: Path, tmp_path: Path
) -> None:
    """Ctrl-C among the first blocks; then every arm is trained to the horizon, and not again."""
    import advice_sweep

    folder = tmp_path / "sweep"
    small = {"samplers": ("iid", "ns"), "batch_sizes": (64,), "learning_rates": (0.01, 1e30)}
    each = benchmarks.cells.Cell("tiny", "mf", "sg", 0.2, **small)
    monkeypatch.setattr(advice_sweep, "QUICK", {"x": each})
    calls = iter(range(10**9))

    @contextmanager
    def interrupt(*rest: Any) -> Iterator[Callable[[], bool]]:
        yield lambda: next(calls) > 30

    with monkeypatch.context() as patch:
        patch.setattr(advice_sweep, "deferred_signals", interrupt)
        with pytest.raises(KeyboardInterrupt):
            advice_sweep.run("x", data_dir, folder, print)
    before = {one.name: one.summary["iterations"] for one in runs.read_all(folder)[0]}
    assert before
    for _ in range(2):
        advice_sweep.run("x", data_dir, folder, print)
    records, problems = runs.read_all(folder)
    assert not problems
    assert len(records) == 4
    assert all(one.summary["iterations"] >= before.get(one.name, 0) for one in records)
    state = read_state(folder)
    assert state is not None
    assert state.is_over
    assert state.spent_seconds > 0
    assert [each.config.learning_rate for each in state.racing] == [0.01, 0.01]
    found = advice_sweep.read_arms(state, folder, load(data_dir, "tiny"))
    assert [arm.is_baseline for arm in found] == [True, False]
    # The clock is iterations times the seconds that were found first, whatever a run took later.
    paces = advice_sweep.read_paces(folder)
    assert paces is not None
    own = {one.config.sampler: one for one in records if one.config.learning_rate == 0.01}
    for arm, sampler in zip(found, ("iid", "ns"), strict=True):
        iterations = own[sampler].summary["iterations"]
        assert arm.curve.clock == pytest.approx(iterations * paces.seconds[arm.name])
    # All train to the horizon but those that are at the target before.
    level = benchmarks.table.target_level(found, 0.2)
    for arm in found:
        there = None if level is None else arm.curve.time_to(level)
        assert arm.curve.clock >= 0.2 or there is not None
        assert there is None or arm.curve.seconds[-2] < max(there, 0.2 / 1.5)
    assert state.spent_seconds == pytest.approx(
        paces.wall_seconds + 2 * 0.2 - paces.trained_seconds
    )


@pytest.mark.long
def test_a_real_cell(
    benchmarks: Namespace,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A sweep and a race in processes of their own, kept as one of the environment."""
    monkeypatch.setenv("NCFBENCH_ALLOCATOR", "none")  # as in this process, which never restarted
    words = ["--quick", "--cells", "tiny/mf-sg", "--resume"]
    for _ in range(2):
        assert run(benchmarks.bench, tmp_path, *words) in (0, EXIT_MISSED)
    assert "tiny/mf-sg (1 of 1): kept" in capsys.readouterr().err
    (found,) = json.loads((tmp_path / "result.json").read_text())["cells"]
    assert [row["arm"].split()[0] for row in found["arms"]] == ["iid", "ns", "strat-ns"]
    assert found["regret"] >= 1
    assert -1 <= found["correlation"] <= 1
    assert found["recommended"] in [row["arm"] for row in found["arms"]]
