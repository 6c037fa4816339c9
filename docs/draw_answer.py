"""Draw docs/answer.svg: recall against seconds on six data sets, floors dotted, blends dashed.

Repeat with ``python docs/draw_answer.py`` (needs the ``plots`` extra). The runs and floors are
those of results/good-start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

import ncfbench
from ncfbench.config import RunConfig
from ncfbench.reporting.answers import Answer
from ncfbench.reporting.floors import FloorResult, blend_of
from ncfbench.reporting.quality import TEST_RECALL

RECORDS = Path(__file__).parents[1] / "results" / "good-start"
TITLES = {
    "cite": "CiteULike",
    "plots": "MovieLens with plots",
    "anime": "anime",
    "yelp": "Yelp",
    "debian": "Debian's packages",
    "ml-time": "MovieLens 100K, by time",
}
GOOD, WIDER, FLOOR, BOTH = "#1b6ca8", "#d1495b", "#555555", "#2e7d32"
FIRST, LAST = 0.3, 2000.0
"""Ends of the axis of seconds; floors that took less begin at its left end."""
LEAST = 0.002
"""A blend that is nearer to its floor has no line of its own."""
ABOVE: dict[str, Any] = {"xytext": (0, 2), "textcoords": "offset points"}
BELOW: dict[str, Any] = ABOVE | {"xytext": (0, -2), "va": "top"}


def floors_shown(answer: Answer) -> list[FloorResult]:
    """Return the highest floor, and TF-IDF profiles."""
    profiles = [floor for floor in answer.floors[1:] if floor.row["floor"] == "profile"]
    return [*answer.floors[:1], *profiles]


def main() -> None:
    """Draw a panel for each data set and write the file."""
    plt.rcParams |= {"font.size": 8, "svg.fonttype": "none", "svg.hashsalt": "ncfbench"}
    results = ncfbench.report(RECORDS)
    figure, axes = plt.subplots(2, 3, figsize=(9.6, 4.8), layout="constrained", sharex=True)
    panels = dict(zip(TITLES, axes.flat, strict=True))
    pairs = [(answer, arm) for answer in results.answers for arm in answer.arms]
    for answer, arm in pairs:
        axis = panels[answer.config.dataset]
        seconds, recalls = zip(*arm.means(TEST_RECALL), strict=True)
        is_first = arm.config.batch_size == RunConfig.batch_size
        colour = GOOD if is_first else WIDER
        axis.plot(seconds, recalls, color=colour, marker="o", markersize=3)
        if not is_first:
            axis.annotate("wider bag  ", (seconds[1], recalls[1]), color=colour, ha="right")
        for floor in floors_shown(answer) if is_first else ():
            axis.hlines(floor.reported.recall, max(floor.seconds, FIRST), LAST, FLOOR, "dotted")
            text = f"{floor.row['floor']} {floor.reported.recall:.3f}"
            axis.annotate(text, (LAST, floor.reported.recall), **BELOW, color=FLOOR, ha="right")
        for blend in filter(
            None, [blend_of([*arm.shown.values()], answer.floors)] if is_first else []
        ):
            recall = blend.reported.recall
            if recall - blend.floor.reported.recall < LEAST:
                continue
            axis.hlines(recall, blend.floor.seconds + seconds[-1], LAST, BOTH, "dashed")
            axis.annotate(f"both {recall:.3f}", (LAST, recall), **ABOVE, color=BOTH, ha="right")
        axis.set(title=TITLES[answer.config.dataset], xscale="log", xlim=(FIRST, LAST))
        axis.margins(y=0.15)
    for axis in axes[-1]:
        axis.set_xlabel("seconds of features and training")
    for axis in axes[:, 0]:
        axis.set_ylabel("recall@50 of test links")
    figure.savefig(Path(__file__).with_name("answer.svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
