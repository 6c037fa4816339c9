"""What kept records say, by plain arithmetic: settings of the portfolio, and how seeds differ."""

import json
import math
from pathlib import Path
from statistics import fmean

import pytest
import seed_spread
from support.records import write_run

from ncfbench.advice.space import Space
from ncfbench.catalog.presets import PORTFOLIO
from ncfbench.statistics.intervals import LOSS_SPREAD, QUALITY_SPREAD

ROOT = Path(__file__).parents[2]
DATA = {
    "CiteULike": "cite",
    "anime": "anime",
    "Debian": "debian",
    "MovieLens 100K by time": "ml-time",
    "MovieLens with plots": "plots",
    "Yelp": "yelp",
}
"""Names on docs/measuring.md."""


def test_the_portfolio_is_the_greedy_choice():
    """After ``good`` comes the arm that adds most to the mean, over data sets, of the best
    validation recall of the chosen over the best of all.
    """
    cells = json.loads((ROOT / "benchmarks/results/portfolio-cpu.json").read_text("utf-8"))["cells"]
    recall = {cell["cell"]: max(cell["validation"], default=0.0) for cell in cells}
    points = {cell["cell"].partition("/")[2]: cell["point"] for cell in cells}
    sets = {name.partition("/")[0] for name in recall}
    best = {data: max(recall[f"{data}/{name}"] for name in points) for data in sets}
    chosen, shares = ["good"], {}
    while len(chosen) < len(PORTFOLIO):
        for name in points:
            tops = (
                max(recall[f"{data}/{arm}"] for arm in [*chosen, name]) / best[data]
                for data in sets
            )
            shares[name] = fmean(tops)
        chosen.append(max((name for name in points if name not in chosen), key=shares.get))
    space, ends = Space({}, {}), {"epochs": 20, "patience": 2}
    configs = [space.config({**point, **ends}) for point in PORTFOLIO.values()]
    assert configs == [space.config({**points[name], **ends}) for name in chosen]


def test_the_spread_of_two_arms_by_hand(tmp_path):
    """Losses fall from 10 to 0 on average, and are 0.5 after 95 and 195 iterations, and after 95
    and 95. An arm of one seed says nothing, and no run was evaluated.
    """
    folder = tmp_path / "kept"
    write_run(folder, "ns", [10, 0, 0], 4.0)
    write_run(folder, "ns", [10, 10, 0], 5.0, seed=1)
    write_run(folder, "strat-ns", [10, 0, 0], 4.0)
    write_run(folder, "strat-ns", [10, 0, 0], 4.0, seed=1)
    write_run(folder, "iid", [10, 0, 0], 4.0)
    by_data = seed_spread.arms(tmp_path)
    assert {name: sorted(map(len, arms)) for name, arms in by_data.items()} == {"cite": [2, 2]}
    spread = seed_spread.spread(by_data["cite"], "probe_loss")
    assert spread == (pytest.approx(math.log(195 / 95) / 2), 2)
    assert seed_spread.spread(by_data["cite"], "validation_recall_at_50") is None


def test_what_is_assumed_is_what_kept_runs_show():
    recall, loss = seed_spread.spreads().values()
    assert 0 <= QUALITY_SPREAD.deviation - seed_spread.typical(recall.values()) < 0.02
    assert max(spread.deviation for spread in loss.values()) < LOSS_SPREAD.deviation
    rows = [
        f"| {shown} | "
        + " | ".join(f"{of[name].deviation:.2f} ({of[name].degrees})" for of in (recall, loss))
        + " |"
        for shown, name in DATA.items()
    ]
    means = (seed_spread.typical(of.values()) for of in (recall, loss))
    rows.append("| geometric mean | {:.2f} | {:.2f} |".format(*means))
    assert {*DATA.values()} == recall.keys() == loss.keys()
    page = (ROOT / "docs" / "measuring.md").read_text()
    assert "\n".join(rows) in page
    said = (
        f"within a factor of {QUALITY_SPREAD.factor:.1f} by a recall, and of"
        f" {LOSS_SPREAD.factor:.1f} by a loss"
    )
    assert said in " ".join(page.split())
