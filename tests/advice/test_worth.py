"""What each choice of a recommendation for ranking is worth, by a whole race."""

from typing import Any

import numpy as np
import pytest
from support.races import ask

from ncfbench.advice import summary
from ncfbench.reporting.answers import worth
from ncfbench.statistics.ranking import NEAR, SHARE


def test_a_search_says_what_each_choice_is_worth(data_dir, tmp_path):
    """Losses race by recall@10; table and JSON agree with the runs' own curves."""
    more: dict[str, Any] = {"loss": ("softmax", "log"), "sampler": ("ns",)}
    more["learning_rate"] = (0.01,)
    found, _ = ask(data_dir, tmp_path, **more)
    answer = found.answer
    assert answer.best is not None
    names = {arm.name for arm in answer.arms}
    assert names == {f"bow {loss} ns" for loss in more["loss"]}
    column = "validation_recall_at_10"
    tops = {}
    for arm in answer.arms:
        curves = [arm.runs[seed].curve for seed in arm.deciding]
        rows = [[row for row in curve if row[column] is not None] for curve in curves]
        points = [
            {0: own[0][f"{column}_chance"]} | {row["iteration"]: row[column] for row in own}
            for own in rows
        ]
        # The mean over seeds, at each evaluation of one of them, as far as the shortest goes.
        end = min(max(own) for own in points)
        tops[arm.name] = max(
            float(np.mean([np.interp(at, [*own], [*own.values()]) for own in points]))
            for at in {at for own in points for at in own if at <= end}
        )
    assert {arm.name: -arm.level for arm in answer.arms} == pytest.approx(tops)
    assert answer.target == pytest.approx(-SHARE * max(tops.values()))
    assert tops[answer.best.name] >= NEAR * max(tops.values())
    (row,) = (row for row in worth(answer) if row.choice == "loss")
    assert row.arm.config.loss == row.value != answer.best.config.loss
    shown = summary.as_json(answer, found.folder, {})
    assert [each["choice"] for each in shown["worth"]] == [each.choice for each in worth(answer)]
    assert shown["metric"] == "recall@10"
    (table,) = summary.answer_tables(answer)
    assert table.rows[0][0].text == "the recommended"
    assert "use --encoder bow --loss" in summary.headline(answer).lower()
