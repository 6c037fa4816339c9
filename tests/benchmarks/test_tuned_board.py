"""The board: standings, profiles and fair trials."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import board
import board_training
import pytest
import search_choices
import search_reference as reference

from ncfbench.advice.space import Space
from ncfbench.data import Dataset
from ncfbench.timing.intervals import QUALITY_SPREAD, Spread

NAMES = list(board.CONTESTANTS)


MODEL = {"encoder": "bow", "loss": "softmax", "features": "add"}


def trial(contestant: str, *points: tuple[float, float]) -> dict[str, Any]:
    """Of a tenth of a second an iteration."""
    return {
        "config": MODEL | {"sampler": "ns"},
        "iterations": [10 * at for at, _ in points],
        "iteration_seconds": 0.1,
        "status": "longest",
        "start_seconds": 1.0,
        "wall_seconds": 60.0,
        "contestant": contestant,
        "seconds": [at for at, _ in points],
        "validation": [recall for _, recall in points],
        "test": [recall / 2 for _, recall in points],
    }


def test_a_contestant_is_as_soon_as_its_soonest_trial() -> None:
    """The best of all is 1, in the search; 0.9 is reached by two trials, 0.97 by none. Features
    take 3 s, and between evaluations a curve is straight.
    """
    trials = [
        trial("ns", (1, 0.5), (4, 0.9)),
        trial("ns", (2, 0.92), (3, 0.8)),
        trial("neg", (5, 0.95)),
    ]
    kept = {"trials": trials, "feature_seconds": 3.0, "n_links": 1000}
    found = board.standings(kept, [trial("", (40, 1.0))])
    never = math.inf
    assert found["ns"] == board.Standing(
        2, (pytest.approx(3 + 2 * 0.9 / 0.92), never), 0.92, 0.46, 1.0
    )
    assert found["neg"] == board.Standing(
        1, (pytest.approx(3 + 5 * 0.9 / 0.95), never), 0.95, 0.475, 1.0
    )
    assert found["iid"] == board.Standing(0, (never, never), 0.0, None, 1.0)


def test_contestants_stand_beside_each_other_by_one_seed() -> None:
    """On the second data set nobody but neg comes to the target."""

    def standing(seconds: float) -> board.Standing:
        return board.Standing(8, (seconds, math.inf), 1.0, 0.5, 0.5)

    nobody = dict.fromkeys(NAMES, standing(math.inf))
    first = nobody | {"ns": standing(2.0), "mixed-ns": standing(2.5), "neg": standing(6.0)}
    second = nobody | {"neg": standing(7.0)}
    found = board.beside_each_other({"a": first, "b": second}).standings[0.9]
    assert [*found][:3] == ["neg", "ns", "mixed-ns"]
    assert found["neg"] == [(6.0, False), (7.0, True)]
    assert found["mixed-ns"] == [(2.5, True), (math.inf, False)]


def test_repeats_show_how_far_times_are_alike() -> None:
    """Two pairs and one triple of times, and one that comes to a target once: of no use."""

    def repeat(**seconds: float) -> dict[str, board.Standing]:
        return {
            name: board.Standing(8, (own, math.inf), 1.0, 0.5, 0.5) for name, own in seconds.items()
        }

    first = repeat(ns=2.0, neg=5.0, strat=3.0)
    repeats = {
        "a": {"": first, "seed-1": repeat(ns=4.0, strat=math.inf), "seed-2": repeat(neg=5.0)}
    }
    repeats["b"] = {"": first, "seed-1": repeat(ns=2.0), "seed-2": repeat(ns=2.0)}
    found = board.spreads(repeats)
    assert found["a", 0.9] == (pytest.approx(math.log(2) / 2), 2)
    assert found["b", 0.9] == (0, 2)
    assert len(found) == 2, "nobody came to 0.97"
    assert board.spreads({}) == {}


def test_times_are_alike_as_measured_or_as_assumed() -> None:
    """With five degrees of freedom Student's t is 2.571; with fewer, and elsewhere, a factor of
    2.67 is assumed.
    """
    spreads = {("a", 0.9): Spread(0.2, 5), ("b", 0.9): Spread(0.2, 4)}
    wide, own = QUALITY_SPREAD.factor, math.exp(2.570582 * 2**0.5 * 0.2)
    assert wide == pytest.approx(2.668, abs=1e-3)
    assert board.alike_within(spreads, "a", 0.9) == pytest.approx(own)
    assert {board.alike_within(spreads, *each) for each in (("a", 0.97), ("b", 0.9))} == {wide}

    def of(seconds: float) -> dict[str, board.Standing]:
        late = board.Standing(8, (seconds, math.inf), 1.0, 0.5, 0.5)
        return {"ns": board.Standing(8, (1.0, math.inf), 1.0, 0.5, 0.5), "neg": late}

    boards = {"a": of(2.2), "b": of(2.2), "c": of(2.7)}
    found = board.beside_each_other(boards, spreads).standings[0.9]
    assert found["neg"] == [(2.2, False), (2.2, True), (2.7, False)]
    assert found["ns"] == [(1.0, True)] * 3


def test_a_repeat_has_the_targets_of_what_it_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own best recall, which is above all, moves none; floors are no part of it."""
    monkeypatch.setattr(board, "LEAST", 1)
    for folder, name, recall in (
        ("searches", "a", 0.5),
        ("boards", "a", 0.4),
        ("boards", "a-with-seed-1", 0.9),
        ("boards", "b-with-seed-1", 0.9),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        kept = {"dataset": "a", "fingerprint": "", "n_links": 1, "feature_seconds": 0}
        kept["trials"] = [trial("ns", (1, 0.1), (2, recall))]
        (tmp_path / folder / f"{name}.json.gz").write_bytes(
            gzip.compress(json.dumps(kept).encode())
        )
    found = board.repeated_boards(tmp_path / "boards", tmp_path / "searches")
    assert {name: [*own] for name, own in found.items()} == {"a": ["", "seed-1"]}
    assert [own["ns"].top for own in found["a"].values()] == [0.5, 0.5]
    assert found["a"]["seed-1"]["ns"].seconds[0] == pytest.approx(1.4375)


@pytest.mark.parametrize("contestant", NAMES)
def test_contestants_have_equal_trials(tiny: Dataset, contestant: str) -> None:
    """Eight, of their own batches and losses, with the encoder of the best of all."""
    space = Space.of(tiny, {"dataset": "tiny"} | reference.ENDLESS, {})
    searched = []
    for recall, loss, encoder in ((0.5, "softmax", "cnn"), (0.3, "sg", "cnn"), (0.4, "sg", "bow")):
        config = space.config({"sampler": "ns", "loss": loss, "encoder": encoder})
        searched.append(trial("", (1, recall)) | {"config": space.point(config)})
    found = board_training.trials_of(
        space, contestant, searched, lambda config: config.batch_size <= 512
    )
    changes, losses = board.CONTESTANTS[contestant]
    assert (
        len({json.dumps(each.to_dict(), sort_keys=True) for each in found}) == board_training.TUNED
    )
    for each in found:
        assert each.encoder == "cnn"
        assert each.loss in losses
        assert each.batch_size <= 512
        assert all(getattr(each, name) == value for name, value in changes.items())


def test_a_board_is_resumed(
    tiny: Dataset, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there is not trained again, and its file is replaced whole."""
    monkeypatch.setattr(board_training, "TUNED", 2)
    monkeypatch.setattr(board_training, "CONTESTANTS", {"ns": board.CONTESTANTS["ns"]})
    space = Space.of(tiny, {"dataset": tiny.name} | reference.ENDLESS, {})
    config = space.config({"sampler": "ns", "loss": "softmax", "encoder": "bow"})
    searched = [trial("", (1, 0.3)) | {"config": space.point(config)}]
    reference.write(tmp_path / f"{tiny.name}.json.gz", tiny, searched)
    path = tmp_path / "board" / "own.json.gz"
    fixed = {"dimension": "7"}
    board_training.train(tiny.name, 0.1, data_dir, tmp_path, path, fixed, ["ns"])
    whole = reference.read(path)["trials"]
    assert [(each["contestant"], each["number"]) for each in whole] == [("ns", 0), ("ns", 1)]
    assert all(each["validation"] for each in whole)
    assert {each["config"]["dimension"] for each in whole} == {7}
    reference.write(path, tiny, whole[:1])
    board_training.train(tiny.name, 0.1, data_dir, tmp_path, path, fixed, ["ns"])
    again = reference.read(path)["trials"]
    assert again[0] == whole[0]
    assert again[1]["config"] == whole[1]["config"]


def test_ways_begin_at_the_best_trial_of_one(
    tiny: Dataset, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another board; without it of the data set's usual one, which must be there."""
    monkeypatch.setattr(board_training, "TUNED", 1)
    space = Space.of(tiny, {"dataset": tiny.name} | reference.ENDLESS, {})
    config = space.config({"sampler": "ns", "loss": "softmax", "encoder": "bow", "dimension": 5})
    reference.write(tmp_path / f"{tiny.name}.json.gz", tiny, [])
    path = tmp_path / "board" / "own.json.gz"
    kept = [
        trial(way, (1, recall)) | {"config": {**config.to_dict(), "dimension": dimension}}
        for way, recall, dimension in (("ns", 0.3, 8), ("ns", 0.4, 9), ("neg", 0.5, 7))
    ]
    reference.write(path, tiny, kept)

    def train(of: str) -> None:
        like = path.with_name("like.json.gz")
        board_training.train(
            tiny.name, 0.05, data_dir, tmp_path, like, {}, ["iid"], like="ns", of=of
        )

    train("own")
    (found,) = reference.read(path.with_name("like.json.gz"))["trials"]
    own = found["config"]
    assert (own["sampler"], own["dimension"], own["encoder"]) == ("iid", 9, "bow")
    assert own["loss"] in board_training.POINTWISE
    for missing in ("absent", ""):
        path.with_name("like.json.gz").unlink(missing_ok=True)
        with pytest.raises((FileNotFoundError, ValueError)):
            train(missing)


def test_the_best_trial_varies_in_one_setting() -> None:
    space = Space({"dataset": "tiny"}, {})
    trials = [
        trial("iid", (1, recall))
        | {"config": space.config({"sampler": "iid", "loss": loss, "encoder": "mf"}).to_dict()}
        for recall, loss in ((0.3, "sg"), (0.5, "mse"))
    ]
    found = board_training.varied([*trials, trial("ns", (1, 0.9))], "iid", "lambda", [2.0, 4.0])
    configs = [each.to_dict() for each in found]
    assert [each.pop("lambda") for each in configs] == [2.0, 4.0]
    (own,) = {json.dumps(each, sort_keys=True) for each in configs}
    best = trials[1]["config"]
    assert json.loads(own) == {name: best[name] for name in best if name != "lambda"}


def test_a_choice_is_worth_its_best_trial() -> None:
    trials = [trial("", (2, 0.5)), trial("", (4, 0.4), (6, 0.45)), trial("", (1, 0.2))]
    trials[1] |= {"config": MODEL | {"sampler": "neg"}, "status": "hopeless"}
    found = {"trials": trials, "feature_seconds": 3.0, "n_links": 1000}
    assert search_choices.worth(found, "sampler", "ns") == (1.0, pytest.approx(3 + 1.8), 2, False)
    assert search_choices.worth(found, "sampler", "neg") == (0.9, pytest.approx(3 + 6), 1, True)
    assert search_choices.worth(found, "loss", "sg") is None


def test_floors_stand_on_a_board() -> None:
    """One is above all trials, so that the targets are shares of it. Its seconds are those of its
    content, of the choice of its penalty, and of its fit.
    """
    kept = {"trials": [trial("ns", (2, 0.37))], "n_links": 1, "feature_seconds": 3}
    row = dict.fromkeys(("content_seconds", "fit_seconds", "choice_seconds"), 1.5)
    floor = {"floor": "ease", "validation_recall_at_50": 0.4, "test_recall_at_50": 0.3} | row
    found = board.standings(kept, [], [floor])
    assert found["ease"] == board.Standing(0, (4.5, 4.5), 1.0, 0.3, 0.4)
    assert found["ns"].seconds == (pytest.approx(3 + 2 * 0.36 / 0.37), math.inf)
