"""What kept records say, by plain arithmetic: settings of the portfolio, and how seeds differ."""

import json
from pathlib import Path
from statistics import fmean

from ncfbench.advice.space import Space
from ncfbench.catalog.presets import PORTFOLIO

ROOT = Path(__file__).parents[2]


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
