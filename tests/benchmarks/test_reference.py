"""The validation of searches: its figures by plain arithmetic, and a reference that is resumed."""

import itertools
import math
from typing import Any

import bench_search as bench
import pytest
import search_choices
import search_reference
from bench_search import Curve
from harness import PREPARE
from support.cli import invoke

from ncfbench.advice.space import Space
from ncfbench.data.store import load

TINY = "bench-tiny"


def tiny(data_dir):
    invoke("prepare", *PREPARE[TINY].split(), "--name", TINY, "--data-dir", str(data_dir))
    return load(data_dir, TINY)


def rising(top):
    """Recall that rises to a top within eight epochs of ten seconds each."""
    seconds = [10.0 * epoch for epoch in range(1, 9)]
    values = [top * (1 - 2.0**-epoch) for epoch in range(1, 9)]
    return Curve(seconds, values, [value / 2 for value in values])


def test_times_to_a_level_are_linear_between_evaluations():
    curve = Curve([10.0, 20.0], [0.2, 0.4], [0.1, 0.2], before=5.0)
    assert curve.time_to(0.1) == 5.0 + 5.0
    assert curve.time_to(0.3) == 5.0 + 15.0
    assert curve.time_to(0.5) == math.inf


def test_a_cell_compares_recall_and_time():
    def trial(top, by="random"):
        curve = rising(top)
        return {
            "config": {
                "encoder": "bow",
                "features": "ignore",
                "loss": "softmax",
                "sampler": "ns",
                "batch_size": 100,
            },
            "by": by,
            "iterations": [10 * epoch for epoch in range(1, 9)],
            "seconds": curve.seconds,
            "validation": curve.validation,
            "test": curve.test,
            "iteration_seconds": 1.0,
        }

    reference = {"trials": [trial(0.4), trial(0.2), trial(0.5, by="neighbours")]}
    reference |= {"feature_seconds": 3.0, "n_links": 1000}
    own = rising(0.5)
    answer: dict[str, Any] = {
        "arm": {"seconds": own.seconds, "validation": own.validation, "test": own.test},
        "floors": [{"test_recall_at_50": 0.4}, {"test_recall_at_50": 0.3}],
        "spent_seconds": 600,
        "training_seconds": 420,
        "name": "bow",
        "mean_validation": 0.49,
        "deploy": {"what": "both", "recall": 0.45, "validation_recall": 0.5, "lines": []},
    }
    found = bench.compare(reference, answer)
    assert found["recall_share"] == pytest.approx(1.0)
    assert found["time_ratio"] == pytest.approx(1.0)
    assert (found["floor"], found["deployed_recall"], found["verdict"]) == (0.4, 0.45, "both")
    assert found["training_share"] == 0.7
    first = found | {"cell": "a/0"}
    assert bench.Search().missed([first]) == []
    answer["deploy"]["lines"] = ["Training is not worth it: ridge has more."]
    late = [2 * at for at in own.seconds]
    answer["arm"]["seconds"] = late
    answer |= {"training_seconds": 300, "mean_validation": 0.51}
    second = bench.compare(reference, answer) | {"cell": "a/2"}
    assert second["time_ratio"] == pytest.approx(2.0)
    assert bench.Search().missed([first, second]) == [
        "a: validation recalls differ by 4.1%.",
        "a: the answers differ.",
        "a/2: 50% was training.",
        "a/2: 2.00 times the soonest trial's time.",
    ]


def test_seconds_of_features_count_where_they_are_read():
    curve = {"iterations": [10], "seconds": [20.0], "validation": [0.1], "test": [0.1]}
    trial = curve | {"iteration_seconds": 1.0}
    reference = {"feature_seconds": 3.0, "n_links": 1000}
    model = {"encoder": "bow", "loss": "softmax", "sampler": "ns"}
    for more, before in (
        ({"features": "ignore"}, 0.0),
        ({"features": "add"}, 3.0),
        ({"encoder": "mlp"}, 3.0),
        ({"encoder": "mf", "user_tower": "history", "history_of": "ids"}, 0.0),
        ({"encoder": "bow", "bare_bag": True, "dimension": 100, "features": "ignore"}, 0.0),
        ({"encoder": "mf", "user_tower": "history", "history_of": "both"}, 3.0),
    ):
        assert bench.curve_of(trial | {"config": model | more}, reference).before == before


def trial_of(space, config, recall):
    return {"config": space.point(config), "seconds": [1.0], "validation": [recall]}


def test_the_best_recall_up_to_a_clock():
    trial = {"seconds": [1.0, 2.0, 4.0], "validation": [0.1, 0.3, 0.2]}
    found = [search_reference.best(trial, clock) for clock in (0.5, 1.0, 3.0, 9.0)]
    assert found == [0.0, 0.1, 0.3, 0.3]
    assert search_reference.best(trial) == 0.3


def test_a_choice_is_worth_its_best_trial():
    """0.9 of the best of all is reached between evaluations; features take 3 s."""

    def trial(sampler, status, *points):
        model = {"encoder": "bow", "loss": "softmax", "features": "add", "sampler": sampler}
        return {
            "config": model,
            "status": status,
            "iterations": [10 * at for at, _ in points],
            "iteration_seconds": 0.1,
            "seconds": [at for at, _ in points],
            "validation": [recall for _, recall in points],
            "test": [recall / 2 for _, recall in points],
        }

    trials = [
        trial("ns", "longest", (2, 0.5)),
        trial("neg", "hopeless", (4, 0.4), (6, 0.45)),
        trial("ns", "longest", (1, 0.2)),
    ]
    found = {"trials": trials, "feature_seconds": 3.0, "n_links": 1000}
    assert search_choices.worth(found, "sampler", "ns") == (1.0, pytest.approx(3 + 1.8), 2, False)
    assert search_choices.worth(found, "sampler", "neg") == (0.9, pytest.approx(3 + 6), 1, True)
    assert search_choices.worth(found, "loss", "sg") is None


def test_proposals_depend_on_the_trials_alone(tmp_path):
    dataset = tiny(tmp_path)
    space = Space.of(dataset, {"dataset": TINY} | search_reference.ENDLESS, {})
    trials: list[search_reference.Trial] = []
    for number in range(12):
        config, by = search_reference.propose(space, trials)
        assert by == ("neighbours" if number == 11 else "random")
        assert search_reference.propose(space, trials) == (config, by)
        trials.append(trial_of(space, config, number / 100))
    points = [tuple(trial["config"].items()) for trial in trials]
    assert len(set(points)) == 12
    # The last one differs in one setting from one of the five best.
    leaders = [space.config(trial["config"]) for trial in trials[6:11]]
    near = itertools.chain(*(space.neighbours(leader) for leader in leaders))
    assert space.config(trials[11]["config"]) in list(near)


@pytest.mark.long
def test_a_reference_is_resumed(tmp_path, monkeypatch, capsys):
    data, kept = tmp_path / "data", tmp_path / "kept"
    tiny(data)
    places = ["--data-dir", str(data), "--folder", str(kept), "--seconds", "1"]
    for trials in (1, 2):
        given = ["search_reference.py", TINY, "--trials", str(trials), *places]
        monkeypatch.setattr("sys.argv", given)
        search_reference.main()
    assert len(capsys.readouterr().out.splitlines()) == 2
    found = search_reference.read(kept / f"{TINY}.json.gz")
    assert len(found["trials"]) == 2
    for trial in found["trials"]:
        assert trial["by"] == "random"
        assert trial["status"] in ("longest", "rests")
        lengths = {len(trial[name]) for name in ("iterations", "seconds", "validation", "test")}
        assert len(lengths) == 1
        assert trial["seconds"] == sorted(trial["seconds"])
        assert trial["iteration_seconds"] > 0
        curve = bench.curve_of(trial, found)
        assert curve.time_to(0.0) == pytest.approx(curve.before)
