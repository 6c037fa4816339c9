"""What kept records say: the portfolio, how seeds differ, losses of other frameworks, and searches
and races beside them.
"""

import itertools
import json
import math
from statistics import fmean

import audit_frameworks
import bench_race
import bench_search as bench
import pytest
import search_reference as reference
import seed_spread
from audit_frameworks import BEGIN, END, ENTRIES, PAGE, RECORDS
from bench_search import Curve
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


# --- searches and races beside the records

MODEL = {"encoder": "bow", "features": "ignore", "loss": "softmax", "sampler": "ns"}


def rising(top):
    """Recall that rises to a top within eight epochs of ten seconds each."""
    values = [top * (1 - 2.0**-epoch) for epoch in range(1, 9)]
    return Curve(range(10, 90, 10), values, [value / 2 for value in values])


def trial(curve, status="longest", **config):
    return {
        "config": MODEL | config,
        "status": status,
        "iterations": [*curve.seconds],
        "iteration_seconds": 1.0,
        "seconds": curve.seconds,
        "validation": curve.validation,
        "test": curve.test,
    }


def test_a_cell_compares_recall_and_time():
    search = {"trials": [trial(rising(top)) for top in (0.4, 0.2, 0.5)], "feature_seconds": 3.0}
    arm = rising(0.5)
    answer = {
        "arm": {"seconds": arm.seconds, "validation": arm.validation, "test": arm.test},
        "floors": [{"test_recall_at_50": 0.4}, {"test_recall_at_50": 0.3}],
        "spent_seconds": 600,
        "training_seconds": 420,
        "name": "bow",
        "mean_validation": 0.49,
        "deploy": {"what": "both", "recall": 0.45, "validation_recall": 0.5, "lines": []},
    }
    first = bench.compare(search, answer) | {"cell": "a/0"}
    wanted = {"recall_share": 1.0, "time_ratio": 1.0, "floor": 0.4, "deployed_recall": 0.45}
    wanted |= {"verdict": "both", "training_share": 0.7}
    assert {name: first[name] for name in wanted} == pytest.approx(wanted)
    assert bench.Search().missed([first]) == []
    answer["deploy"]["lines"] = ["Training is not worth it: ridge has more."]
    answer["arm"]["seconds"] = [2 * at for at in arm.seconds]
    answer |= {"training_seconds": 300, "mean_validation": 0.51}
    second = bench.compare(search, answer) | {"cell": "a/2"}
    assert bench.Search().missed([first, second]) == [
        "a: validation recalls differ by 4.1%.",
        "a: the answers differ.",
        "a/2: 50% was training.",
        "a/2: 2.00 times the soonest trial's time.",
    ]


def test_curves_of_trials():
    """Times are linear between evaluations; features count where they are read."""
    curve = Curve([10.0, 20.0], [0.2, 0.4], [0.1, 0.2], before=5.0)
    assert [curve.time_to(level) for level in (0.1, 0.3, 0.5)] == [10.0, 20.0, math.inf]
    history = {"encoder": "mf", "user_tower": "history"}
    for config, before in (
        ({}, 0.0),
        ({"features": "add"}, 3.0),
        (history | {"features": "add", "history_of": "ids"}, 0.0),
        (history | {"features": "add", "history_of": "both"}, 3.0),
    ):
        curve_of = bench.curve_of(trial(curve, **config), {"feature_seconds": 3.0})
        assert curve_of.before == before
    recalls = [reference.best(trial(curve), clock) for clock in (5.0, 10.0, 30.0)]
    assert (recalls, reference.best(trial(curve))) == ([0.0, 0.2, 0.4], 0.4)


def test_a_choice_is_worth_its_best_trial():
    """0.9 of the best of all is reached between evaluations; features take 3 s."""
    hopeless = Curve([4, 6], [0.4, 0.45], [0.2, 0.2])
    trials = [
        trial(Curve([2], [0.5], [0.2]), features="add"),
        trial(hopeless, "hopeless", features="add", sampler="neg"),
        trial(Curve([1], [0.2], [0.1]), features="add"),
    ]
    search = {"trials": trials, "feature_seconds": 3.0}
    assert bench.worth(search, "sampler", "ns") == (1.0, pytest.approx(3 + 1.8), False)
    assert bench.worth(search, "sampler", "neg") == (0.9, pytest.approx(3 + 6), True)
    assert bench.worth(search, "loss", "sg") is None


def test_proposals_depend_on_the_trials_alone(tiny):
    space = Space.of(tiny, {"dataset": "tiny"} | reference.ENDLESS, {})
    trials = []
    for number in range(12):
        config, by = reference.propose(space, trials)
        assert by == ("neighbours" if number == 11 else "random")
        assert reference.propose(space, trials) == (config, by)
        curve = Curve([1.0], [number / 100], [])
        trials.append(trial(curve) | {"config": space.point(config)})
    points = [tuple(of["config"].items()) for of in trials]
    assert len(set(points)) == 12
    # The last one differs in one setting from one of the five best.
    leaders = [space.config(of["config"]) for of in trials[6:11]]
    near = itertools.chain(*(space.neighbours(leader) for leader in leaders))
    assert space.config(trials[11]["config"]) in list(near)


@pytest.mark.long
def test_a_reference_is_resumed(data_dir, tmp_path, monkeypatch, capsys):
    places = ["--data-dir", str(data_dir), "--folder", str(tmp_path), "--seconds", "1"]
    for trials in (1, 2):
        monkeypatch.setattr("sys.argv", ["x", "tiny", "--trials", str(trials), *places])
        reference.main()
    assert len(capsys.readouterr().out.splitlines()) == 2
    trials = reference.read(tmp_path / "tiny.json.gz")["trials"]
    assert [kept["by"] for kept in trials] == ["random"] * 2
    for kept in trials:
        names = ("seconds", "iterations", "validation", "test")
        assert len({len(kept[name]) for name in names}) == 1


@pytest.mark.long
def test_a_race_of_recorded_curves(capsys):
    """A target that is missed ends with its code."""
    with pytest.raises(SystemExit, match="6"):
        bench_race.main(["--draws", "3", "--cells", "search of debian: 12*"])
    assert "of 3 fields within 1.1" in " ".join(capsys.readouterr().out.split())
