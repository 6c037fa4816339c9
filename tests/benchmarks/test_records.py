"""What kept records say: the portfolio, how seeds differ, and losses of other frameworks."""

import json
import math
from statistics import fmean

import audit_frameworks
import pytest
import seed_spread
from audit_frameworks import BEGIN, END, ENTRIES, PAGE, RECORDS
from support.records import REPOSITORY, write_run

from ncfbench.advice.space import Space
from ncfbench.catalog.presets import PORTFOLIO
from ncfbench.linting.lint import lint_loss
from ncfbench.statistics.intervals import LOSS_SPREAD, QUALITY_SPREAD

KEPT = json.loads(RECORDS.read_text("utf-8"))


def test_the_portfolio_is_the_greedy_choice():
    """After ``good`` comes the arm that adds most to the mean, over data sets, of the best
    validation recall of the chosen over the best of all.
    """
    path = REPOSITORY / "benchmarks/results/portfolio-cpu.json"
    cells = json.loads(path.read_text("utf-8"))["cells"]
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
    """And what docs/measuring.md has: a row for each data set, and their means."""
    recall, loss = seed_spread.spreads().values()
    mean_recall, mean_loss = (seed_spread.typical(of.values()) for of in (recall, loss))
    assert 0 <= QUALITY_SPREAD.deviation - mean_recall < 0.02
    assert max(spread.deviation for spread in loss.values()) < LOSS_SPREAD.deviation
    page = (REPOSITORY / "docs/measuring.md").read_text("utf-8")
    for name in recall:
        shown = (f"{of[name].deviation:.2f} ({of[name].degrees})" for of in (recall, loss))
        assert f" | {' | '.join(shown)} |\n" in page, name
    assert f"| geometric mean | {mean_recall:.2f} | {mean_loss:.2f} |" in page
    factors = QUALITY_SPREAD.factor, LOSS_SPREAD.factor
    said = "within a factor of {:.1f} by a recall, and of {:.1f} by a loss".format(*factors)
    assert said in " ".join(page.split())


def test_the_page_is_made_of_the_records_of_all_frameworks():
    part = PAGE.read_text("utf-8").split(BEGIN)[1].split(END)[0]
    assert part.strip() == audit_frameworks.page_part(KEPT)
    options = {key: row["options"] for key, row in KEPT.items()}
    assert options == {entry.key: entry.options for entry in ENTRIES}


@pytest.mark.filterwarnings("ignore")  # the packages warn about what they import
@pytest.mark.long
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.framework}-{entry.key}")
def test_a_framework_is_judged_as_kept(entry):
    """Findings are those of the record, and the numbers about its own."""
    if not audit_frameworks.is_installed(entry):
        pytest.skip(f"{entry.package} is not installed")
    findings = lint_loss(entry.loss, options_=entry.options).findings
    for row, kept in zip(findings, KEPT[entry.key]["findings"], strict=True):
        assert (row.code, row.severity) == (kept["code"], kept["severity"])
        assert row.value == pytest.approx(kept["value"], rel=0.05, abs=0.02)
