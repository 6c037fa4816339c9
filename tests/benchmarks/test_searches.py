"""The validation of searches and races: plain arithmetic, and a reference that is resumed."""

import itertools
import math

import bench_race
import bench_search as bench
import pytest
import search_reference as reference
from bench_search import Curve
from support.cli import invoke

from ncfbench.advice.space import Space
from ncfbench.data.store import load

MODEL = {"encoder": "bow", "features": "ignore", "loss": "softmax", "sampler": "ns"}
EIGHT = range(1, 9)


def prepared(data_dir):
    words = "prepare synthetic --users 120 --items 400 --links 1500 --name small"
    invoke(*words.split(), "--data-dir", data_dir)
    return load(data_dir, "small")


def rising(top):
    """Recall that rises to a top within eight epochs of ten seconds each."""
    values = [top * (1 - 2.0**-epoch) for epoch in EIGHT]
    return Curve([10.0 * epoch for epoch in EIGHT], values, [value / 2 for value in values])


def trial(curve, config=MODEL, status="longest", pace=1.0):
    return {
        "config": config,
        "status": status,
        "iterations": [at / pace for at in curve.seconds],
        "iteration_seconds": pace,
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
    histories = {"encoder": "mf", "user_tower": "history", "history_of": "ids"}
    for config, before in (
        ({"encoder": "bow", "features": "ignore"}, 0.0),
        ({"encoder": "bow", "features": "add"}, 3.0),
        ({"encoder": "mlp"}, 3.0),
        (histories, 0.0),
        (histories | {"history_of": "both"}, 3.0),
    ):
        found = trial(curve, {"loss": "softmax", "sampler": "ns"} | config)
        assert bench.curve_of(found, {"feature_seconds": 3.0}).before == before
    recalls = [reference.best(found, clock) for clock in (5.0, 10.0, 30.0)]
    assert (recalls, reference.best(found)) == ([0.0, 0.2, 0.4], 0.4)


def test_a_choice_is_worth_its_best_trial():
    """0.9 of the best of all is reached between evaluations; features take 3 s."""
    model = MODEL | {"features": "add"}
    trials = [
        trial(Curve([2], [0.5], [0.2]), model),
        trial(Curve([4, 6], [0.4, 0.45], [0.2, 0.2]), model | {"sampler": "neg"}, "hopeless"),
        trial(Curve([1], [0.2], [0.1]), model),
    ]
    search = {"trials": trials, "feature_seconds": 3.0}
    assert bench.worth(search, "sampler", "ns") == (1.0, pytest.approx(3 + 1.8), False)
    assert bench.worth(search, "sampler", "neg") == (0.9, pytest.approx(3 + 6), True)
    assert bench.worth(search, "loss", "sg") is None


def test_proposals_depend_on_the_trials_alone(tmp_path):
    space = Space.of(prepared(tmp_path), {"dataset": "small"} | reference.ENDLESS, {})
    trials = []
    for number in range(12):
        config, by = reference.propose(space, trials)
        assert by == ("neighbours" if number == 11 else "random")
        assert reference.propose(space, trials) == (config, by)
        curve = Curve([1.0], [number / 100], [])
        trials.append(trial(curve, space.point(config)))
    points = [tuple(of["config"].items()) for of in trials]
    assert len(set(points)) == 12
    # The last one differs in one setting from one of the five best.
    leaders = [space.config(of["config"]) for of in trials[6:11]]
    near = itertools.chain(*(space.neighbours(leader) for leader in leaders))
    assert space.config(trials[11]["config"]) in list(near)


@pytest.mark.long
def test_a_reference_is_resumed(tmp_path, monkeypatch, capsys):
    prepared(tmp_path)
    places = ["--data-dir", str(tmp_path), "--folder", str(tmp_path / "kept"), "--seconds", "1"]
    for trials in (1, 2):
        monkeypatch.setattr("sys.argv", ["x", "small", "--trials", str(trials), *places])
        reference.main()
    assert len(capsys.readouterr().out.splitlines()) == 2
    trials = reference.read(tmp_path / "kept" / "small.json.gz")["trials"]
    assert [found["by"] for found in trials] == ["random"] * 2
    assert {found["status"] for found in trials} <= {"longest", "rests"}
    for found in trials:
        rows = zip(*(found[name] for name in ("seconds", "validation", "test")), strict=True)
        assert len([*rows]) == len(found["iterations"]) > 0
        assert found["seconds"] == sorted(found["seconds"])


@pytest.mark.long
def test_a_race_of_recorded_curves(capsys):
    """A target that is missed ends with its code."""
    with pytest.raises(SystemExit, match="6"):
        bench_race.main(["--draws", "3", "--cells", "search of debian: 12*"])
    assert "of 3 fields within 1.1" in " ".join(capsys.readouterr().out.split())
