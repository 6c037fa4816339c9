"""What a race decides, and by what it orders its arms, from records that literals make."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from race_records import answered, entrant, written

from ncfbench.advice import answer_rows, summary
from ncfbench.cli.output import json_text
from ncfbench.data.store import Dataset


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets runs of some samplers be better than chance from 1 s on, and no others."""

    def learn(*samplers: str) -> None:
        monkeypatch.setattr(
            "ncfbench.advice.answer.learned_at",
            lambda record, dataset: 1.0 if record.config.sampler in samplers else None,
        )

    return learn


def test_a_baseline_at_chance_gives_a_bound_only(
    tmp_path: Path, tiny: Dataset, learned: Callable[..., None]
) -> None:
    best, base, late = entrant("best", "ns"), entrant("base", "iid"), entrant("late", "strat-ns")
    records = {
        "best": written(tmp_path, best, [9, 5, 3], 10, [0, 0.1, 0.2]),
        "base": written(tmp_path, base, [9, 6, 6], 40, [0, 0.0, 0.0]),
        "late": written(tmp_path, late, [9, 7, 7], 40, [0, 0.0, 0.0]),
    }
    learned("ns")
    found = answered(tiny, [base, best, late], records, clock=2.0)
    assert found.sooner is None
    assert found.sooner_at_least == pytest.approx(8.0)  # 200 iterations of 40 ms over 1 s
    text = summary.headline(found)
    assert "not clearly better than chance after 8 s; this arm was after 1 s: more than 8" in text
    table = summary.standings_table(found)
    cells = {row[0].text: row[-2].text for row in table.rows}
    assert cells == {"best": "1", "base": "< 0.12", "late": "-"}
    assert "speed -: not clearly better than chance on validation links" in table.notes
    assert [(each.status, each.behind) for each in found.arms] == [
        ("recommended", None),
        ("slower", None),
        ("slower", None),
    ]
    # Judged at 4 s, it may have been better than chance from then on.
    early = {**records, "base": written(tmp_path / "early", base, [9, 6, 6], 40, [0, 0.0])}
    found = answered(tiny, [base, best, late], early, clock=2.0)
    assert found.sooner_at_least == pytest.approx(4.0)
    assert "better than chance after 4 s" in summary.headline(found)
    learned()
    none = answered(tiny, [base, best, late], early, clock=2.0)
    assert summary.headline(none).startswith("No choice can be justified: after 2 s of")
    none = answered(tiny, [base, best, late], records, clock=2.0)
    assert none.best is None
    text = summary.headline(none)
    assert text.startswith("No choice can be justified: after 2 s of training each, the recall@50")
    table = summary.standings_table(none)
    assert [column.heading for column in table.header[1:]] == ["items", "ms", "loss", "recall@50"]
    assert {row[0].text: row[3].text for row in table.rows} == {
        "base": "6",
        "best": "3",
        "late": "7",
    }
    assert json.loads(json_text(answer_rows.as_json(none, tmp_path, {})))["recommended"] is None


def test_the_answer_orders_by_what_is_expected(tmp_path: Path, tiny: Dataset) -> None:
    """For an arm that left early, its effort alone decides, however low its loss was. For one that
    trained to the end, also if it left there, the expectation is no less than was measured.
    """
    losses = {"best": [9, 3, 1], "near": [9, 3, 2], "easy": [9, 4, 3], "far": [9, 8, 8]}
    losses |= {"dear": [9, 4], "cheap": [9, 8]}
    efforts = {"best": 2.0, "near": 2.0, "easy": 12.0, "far": 2.0, "dear": 8.0, "cheap": 3.0}
    left = ("near", "dear", "cheap")
    entrants = [entrant(name, "ns", "no time" * (name in left)) for name in losses]
    for each in entrants:
        each.effort = efforts[each.name]
    records = {
        each.name: written(tmp_path / each.name, each, losses[each.name], 10, [0, 0.3, 0.3])
        for each in reversed(entrants)
    }
    found = answered(tiny, entrants, records, clock=4.0)
    expected = {each.name: each.expected for each in found.arms}
    # far took 1000 iterations to a loss of 8, which best passed after 167.
    assert expected == pytest.approx(
        {"best": 1, "near": 4 / 3, "cheap": 1.5, "dear": 4, "far": 6, "easy": 6}, rel=0.3
    )
    assert (expected["cheap"], expected["dear"], expected["easy"]) == (1.5, 4, 6)
    assert [row[1].text for row in summary.left_table(found).rows] == ["1.33", "1.5", "4"]


def test_a_large_rate_that_was_overtaken_comes_late(tmp_path: Path, tiny: Dataset) -> None:
    """It led; its last gains bring it to the best one's loss late or never, whether or not it is
    better than chance.
    """
    recalls = {"best": [0, 0.3, 0.3, 0.3], "rests": [0.0] * 4, "lags": [0, 0.3, 0.3, 0.3]}
    losses = {"best": [9, 6, 3, 2], "rests": [9, 4, 3.9, 3.9], "lags": [9, 4, 3.5, 2.75]}
    entrants = [
        entrant("best", "ns", learning_rate=0.01),
        entrant("rests", "ns", learning_rate=0.1),
        entrant("lags", "ns", "no time", learning_rate=0.03),
    ]
    records = {
        each.name: written(tmp_path / each.name, each, losses[each.name], 10, recalls[each.name])
        for each in entrants
    }
    found = answered(tiny, entrants, records, clock=6.0)
    expected = {each.name: each.expected for each in found.arms}
    assert [each.name for each in found.arms] == ["best", "lags", "rests"]
    assert expected["rests"] == math.inf
    curve = found.arms[1].curve
    assert expected["lags"] == pytest.approx(curve.expected_time_to(2) / curve.clock)
    assert 1 < expected["lags"] < math.inf
    assert answer_rows.rows(found)[2]["times_slower_expected"] is None
    assert summary.left_table(found).rows[0][1].text == f"{expected['lags']:.2f}"


def test_what_was_never_evaluated_is_not_at_chance(
    tmp_path: Path, tiny: Dataset, learned: Callable[..., None]
) -> None:
    """Within less than an epoch recall is not measured: no ratio follows, nor a choice."""
    best, base = entrant("best", "ns"), entrant("base", "iid")
    records = {
        "best": written(tmp_path, best, [9, 5, 3], 10, [0, 0.1, 0.2]),
        "base": written(tmp_path, base, [9, 6, 6], 40, []),
    }
    learned("ns")
    found = answered(tiny, [base, best], records, clock=2.0)
    assert (found.sooner, found.sooner_at_least) == (None, None)
    assert "too few to judge its recall: no ratio" in summary.headline(found)
    records["best"] = written(tmp_path / "other", best, [9, 5, 3], 10, [])
    learned()
    none = answered(tiny, [base, best], records, clock=2.0)
    assert "none of 2 has trained an epoch, after which recall is measured" in (
        summary.headline(none)
    )
    assert summary.standings_table(none).header[-1].heading == "loss", "no column without a recall"


def test_a_longer_budget_reaches_an_epoch(
    tmp_path: Path, tiny: Dataset, learned: Callable[..., None]
) -> None:
    """Where nothing was evaluated the next command gives the furthest entrant two epochs."""
    learned()
    best = entrant("best", "ns")
    records = {"best": written(tmp_path, best, [9, 5], 10, [])}
    for record in records["best"]:
        record.summary["epochs"] = 0.4
    found = answered(tiny, [best], records, clock=2.0, budget=180.0)
    (_, command), *_ = summary.next_steps(found, tmp_path, {})
    assert "--budget 15m" in command  # five times three minutes
