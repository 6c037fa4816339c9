"""How much seeds differ: by hand, and in the kept results as docs/measuring.md has it."""

import math
from pathlib import Path

import pytest
import seed_spread
from support.records import write_run

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
"""Names on the page."""


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
    assert {name: sorted(map(len, own)) for name, own in by_data.items()} == {"cite": [2, 2]}
    found = seed_spread.spread(by_data["cite"], "probe_loss")
    assert found is not None
    assert found.degrees == 2
    assert found.deviation == pytest.approx(math.log(195 / 95) / 2)
    assert seed_spread.spread(by_data["cite"], "validation_recall_at_50") is None


def test_what_is_assumed_is_what_kept_runs_show():
    recall, loss = seed_spread.spreads().values()
    assert round(seed_spread.typical(recall.values()), 2) == QUALITY_SPREAD.deviation
    assert max(own.deviation for own in loss.values()) < LOSS_SPREAD.deviation
    rows = [
        f"| {shown} | "
        + " | ".join(f"{own[name].deviation:.2f} ({own[name].degrees})" for own in (recall, loss))
        + " |"
        for shown, name in DATA.items()
    ]
    means = (seed_spread.typical(own.values()) for own in (recall, loss))
    rows.append("| geometric mean | {:.2f} | {:.2f} |".format(*means))
    assert {*DATA.values()} == recall.keys() == loss.keys()
    page = (ROOT / "docs" / "measuring.md").read_text()
    assert "\n".join(rows) in page
    said = (
        f"within a factor of {QUALITY_SPREAD.factor:.1f} by a recall, and of"
        f" {LOSS_SPREAD.factor:.1f} by a loss"
    )
    assert said in " ".join(page.split())
