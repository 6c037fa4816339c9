"""The benchmark of the cost model: verdicts by hand, and its grid."""

from __future__ import annotations

from typing import Any

import bench_costmodel as bench
import harness

from ncfbench.config import complete

DESCRIBED = {"key": "here", "cpu": "a small one", "cores": 2, "packages": {"jax": "0.10"}}


def row(sampler: str, predicted: float, measured: float, **more: Any) -> dict[str, Any]:
    """Seconds of a step, with full a tenth above; speedups over a baseline of 1 s, 1.1 s."""
    found = {"sampler": sampler, "responsible": "items", "drift": 1.02, "rounds": 3}
    for way, seconds in (("predicted", predicted), ("measured", measured)):
        for account, factor in (("step", 1.0), ("full", 1.1)):
            found[f"{way}_{account}_iteration_seconds"] = factor * seconds
            found[f"{way}_{account}_speedup"] = 1 / seconds
    return found | {"environment_key": "here"} | more


def cell(number: int, *rows: dict[str, Any]) -> dict[str, Any]:
    facts = {"environment_key": "here", "code": "c", "rounds": 3, "time": "2026"}
    return {"cell": "tiny/mf", "pass": number, "samplers": list(rows), **facts}


GOOD = cell(1, row("iid", 1.0, 1.0), row("ns", 0.25, 0.23))
BAD = cell(2, row("iid", 1.0, 1.0), row("ns", 0.2, 0.25, drift=0.8))


def test_verdicts_by_hand() -> None:
    """Off by 9 % and by 20 %, of a speedup by 25 %."""
    assert bench.verdict_of(GOOD) == "met, worst +9 %"
    assert bench.verdict_of(BAD) == "missed: ns step speedup +25 %, noisy"
    benchmark = bench.CostModel()
    assert benchmark.missed([GOOD]) == []
    assert len(benchmark.missed([GOOD, BAD])) == 1
    table, verdicts = benchmark.tables([GOOD, BAD], {"here": DESCRIBED})
    texts = [cell.text for cell in table.rows[-1]]
    assert texts[:6] == ["tiny/mf", "2", "ns", "200.00", "250.00", "-20.0"]
    assert texts[-6:] == ["5.00", "4.00", "+25.0", "missed", "items", "0.80"]
    assert [cell.text for cell in table.rows[1]][-3:] == ["met", "", ""]
    assert [len(each) for each in verdicts.rows] == [3]


def test_the_grid_is_complete() -> None:
    """Each cell's settings are possible, and its data set has a command that prepares it."""
    assert len(bench.CELLS) == 9
    for each in [*bench.CELLS.values(), *bench.QUICK.values()]:
        words = (word.removeprefix("--").split("=") for word in each.options)
        given = {name.replace("-", "_"): value for name, value in words}
        given.pop("samplers", None)
        assert complete({"dataset": each.dataset, **given}).encoder
        assert each.dataset in harness.PREPARE
