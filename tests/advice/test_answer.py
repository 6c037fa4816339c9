"""Answers from records that literals make: words, tables, commands."""

import dataclasses
import json
import random
import re
import shlex
from pathlib import Path

import pytest
from support.cli import parse
from support.records import FIXED, answered, entered, judged_floor, written

from ncfbench.advice import summary
from ncfbench.advice.answer import STAYED, by_validation
from ncfbench.advice.question import Question
from ncfbench.cli.output import json_text
from ncfbench.reporting.arms import rank_soonest
from ncfbench.reporting.floors import floors_of
from ncfbench.reporting.render.terminal import make_console, show
from ncfbench.reporting.views.sentences import tied_sentence, worth_sentence


@pytest.fixture(scope="module")
def answer(tmp_path_factory, tiny):
    """The best reaches 0.38, 0.95 of its recall, after 289 iterations of 10 ms, the tied one of 11,
    the slow one after 389 of 40 ms.
    """
    tmp_path = tmp_path_factory.mktemp("answer")
    best = entered("strat-ns lr=0.02", "strat-ns", learning_rate=0.02)
    tied = entered("ns", "ns")
    slow = entered("iid k=10", "iid")
    gone = entered(
        "ns lr=0.03", "ns", "after 2 s: ranked 4 of 4; there is time for 2", learning_rate=0.03
    )
    bad = entered("ns lr=9", "ns", "diverged: the loss is not finite", learning_rate=9.0)
    records = {
        best.name: written(tmp_path, best, [0, 0.2, 0.3, 0.39, 0.4], 10),
        tied.name: written(tmp_path, tied, [0, 0.2, 0.3, 0.39, 0.395], 11),
        slow.name: written(tmp_path, slow, [0, 0.1, 0.2, 0.3, 0.39], 40),
        gone.name: written(tmp_path, gone, [0, 0.3, 0.31], 10),
        bad.name: [],
    }
    return answered(tiny, [slow, best, tied, gone, bad], records, spent=60.0, is_over=True)


def test_an_answer_names_the_best_its_ties_and_the_level(answer):
    assert answer.best is not None
    assert answer.best.name == "strat-ns lr=0.02"
    assert [each.name for each in answer.ties] == ["ns"]
    assert answer.target == pytest.approx(-0.38)
    (slow,) = (arm for arm in answer.arms if arm.status == "slower")
    assert slow.behind is not None
    # 388.9 iterations of 40 ms over 288.9 of 10.
    assert slow.behind.value == pytest.approx(5.385, rel=0.01)
    assert slow.behind.seeds == 2
    assert [arm.status for arm in answer.arms] == [
        "recommended",
        "tied",
        "slower",
        "left",
        "diverged",
    ]


@pytest.mark.parametrize(
    ("ridge", "verdict"),
    [
        (0.567, "Training is not worth it: the trained arm has -0.167 ± 0.007 over ridge"),
        (0.4, "Training is not clearly worth it: the trained arm has +0.000 ± 0.007 over ridge"),
        (0.2, "Training is worth it: the trained arm has +0.200 ± 0.007 over ridge"),
    ],
)
def test_the_verdict_is_of_validation_links(answer, ridge, verdict):
    """The largest recall of all is 0.4."""
    floors = floors_of([judged_floor("profile", 0.1, 3.5), judged_floor("ridge", ridge, 19.0)])
    beside = dataclasses.replace(answer, floors=floors)
    assert worth_sentence(beside) == f"{verdict}, by validation links."
    assert summary.headline(beside).startswith("To train, use --encoder cnn --loss sg")


def test_floors_stand_below_the_arms_of_a_race(answer):
    """In the table, the paragraph and JSON; with no best arm, too."""
    floors = floors_of([judged_floor("profile", 0.35, 3.5), judged_floor("ridge", 0.567, 19.0)])
    beside = dataclasses.replace(answer, floors=floors, unfitted=["No ease: it would take 9 h."])
    assert summary.headline(beside).endswith(
        "Without training on validation links: ridge 0.567 (19 s), profile 0.350 (3.5 s). The"
        " recommended arm, 0.400 ± 0.005, is above profile (+0.050 ± 0.007, after 3 s), below ridge"
        " (-0.167 ± 0.007)."
    )
    (table,) = summary.answer_tables(beside)
    shown = [[cell.text for cell in row] for row in table.rows]
    assert shown[-1] == ["no training: profile", "3.5", "-", "0.350", "0.350 ± 0.005", "-"]
    document = json.loads(json_text(summary.as_json(beside, Path("runs"), {})))
    assert [floor["best_arm"] for floor in document["floors"]] == ["below", "passes"]
    assert document["floors"][1]["passed_after_seconds"] == pytest.approx(3)
    assert "Floors that were left out: No ease: it would take 9 h." in document["trust"]
    trained = [arm for arm in beside.arms if arm.has_run]
    arms = [dataclasses.replace(arm, status="slower") for arm in trained]
    none = dataclasses.replace(beside, arms=arms, target=None)
    assert summary.answer_tables(none) == [], "nothing is recommended"
    assert "strat-ns lr=0.02, 0.400 ± 0.005, is above profile" in summary.headline(none)


def test_chance_stands_beside_the_recalls_of_floors(answer):
    """Of either split, as the floor's row has it."""
    chances = {"validation_recall_at_50_chance": 0.12, "test_recall_at_50_chance": 0.05}
    rows = [judged_floor("ridge", 0.36, 19.0, test_recall_at_50=0.31, **chances)]
    beside = dataclasses.replace(answer, floors=floors_of(rows))
    said = "Without training on validation links (chance: 0.120): ridge 0.360 (19 s)."
    assert said in summary.headline(beside)
    deploy = summary.as_json(beside, Path("runs"), {})["deploy"]
    assert "(chance 0.050); ridge regression 0.310" in " ".join(deploy["lines"])


@pytest.mark.parametrize("seed", range(20))
def test_numbers_beside_a_floor_subtract(whole, seed):
    """Whatever the records say, the recall of an arm less that of a floor is the difference that
    stands there, but for the last digit.
    """
    found = re.sub(r" \(chance: [\d.]+\)", "", summary.headline(_with_numbers(whole, seed, ALL)))
    _, _, said = found.partition("Without training on validation links: ")
    reached, *stands = re.split(r"\. (?=\S+.*? is )", said)
    floors = {name: float(of) for name, of in re.findall(r"(\w+) (\d\.\d{3}) \(", reached)}
    assert len(floors) == 2
    assert stands
    pairs = 0
    for sentence in stands:
        own = float(re.findall(r"(\d\.\d{3}) ± \S+ is ", sentence.replace(",", ""))[0])
        for name, apart in re.findall(r"(ridge|profile) \(([-+]\d\.\d{3}) ±", sentence):
            assert own - floors[name] == pytest.approx(float(apart), abs=0.00101)
            pairs += 1
    assert pairs >= 2


@pytest.mark.parametrize("seed", range(20))
def test_test_links_choose_nothing(whole, seed):
    """Whatever recalls of test links are put in the place of the records' own, of arms and floors,
    nothing of the answer changes but the numbers that are said to be of test links.
    """
    other = _with_numbers(whole, seed, ("test_",))
    assert _chosen(other) == _chosen(whole)


def _with_numbers(whole, seed, beginnings):
    """Return an answer ranked again with other numbers in columns that begin so, of which some are
    equal.
    """
    rng = random.Random(seed)
    value = rng.choice([0.0, 0.2, 1.0])

    def otherwise(row):
        other = {}
        for name, own in row.items():
            if name.startswith(beginnings) and isinstance(own, float):
                scale = 0.01 if name.endswith("error") else 1.0
                other[name] = scale * rng.choice([value, rng.random()])
        return {**row, **other}

    def run_otherwise(run):
        curve = [otherwise(row) for row in run.curve]
        return dataclasses.replace(run, curve=curve, summary=otherwise(run.summary))

    unranked = [
        dataclasses.replace(
            arm,
            runs={seed: run_otherwise(run) for seed, run in arm.runs.items()},
            status="tied" if arm.status in STAYED else arm.status,
            seeds=(),
            seconds=None,
        )
        for arm in whole.arms
    ]
    ranked, level = rank_soonest(unranked)
    arms = sorted(ranked, key=lambda arm: arm.place)
    floors = by_validation(floors_of([otherwise(floor.row) for floor in whole.floors]))
    return dataclasses.replace(whole, arms=arms, target=level, floors=floors)


ALL = ("test_", "validation_")


@pytest.fixture(
    scope="module", params=[(0.15, 0.2), (0.34, 0.39), (0.4, 0.45), (0.3, 0.3), (1.0, 1.0)]
)
def whole(answer, request):
    """The answer with floors below all arms, level with the best, above all, as good as each other,
    and of a recall of validation links that is 1 by construction.
    """
    chance = {"validation_recall_at_50_chance": 1.0 if request.param == (1.0, 1.0) else 0.1}
    profile, ridge = request.param
    rows = [
        judged_floor("profile", profile, 3.5, validation_ndcg_at_50=0.3, **chance),
        judged_floor("ridge", ridge, 19.0, validation_ndcg_at_50=0.2, **chance),
    ]
    return dataclasses.replace(answer, floors=by_validation(floors_of(rows)))


def _chosen(answer):
    """All that an answer says, without the numbers of test links."""
    document = json.loads(json_text(summary.as_json(answer, Path("runs"), {})))
    for row in document["arms"]:
        for name in [name for name in row if name.startswith("test_")]:
            del row[name]
    for row in document["floors"]:
        for name in [name for name in row if name.startswith("test_")]:
            del row[name]
    if deploy := document["deploy"]:
        del deploy["recall"], deploy["parts"]
        deploy["lines"] = [*map(_without_test_numbers, deploy["lines"])]
    document["headline"] = _without_test_numbers(document["headline"])
    (table,) = summary.answer_tables(answer)
    cells = [[cell.text for cell in (*row[:4], row[5])] for row in table.rows]
    return [document, cells, table.title, table.notes]


def _without_test_numbers(text):
    sentences = text.split(". ")
    return ". ".join(
        re.sub(r"[-+]?\d\.\d+", "#", each) if "test links" in each else each for each in sentences
    )


def test_seconds_of_item_features_come_before_training(answer):
    arms = [
        dataclasses.replace(
            arm,
            runs={
                seed: dataclasses.replace(run, feature_seconds=3.0)
                for seed, run in arm.runs.items()
            },
        )
        for arm in answer.arms
    ]
    floors = floors_of([judged_floor("profile", 0.35, 3.5)])
    waited = dataclasses.replace(answer, arms=arms, floors=floors)
    found = summary.headline(waited)
    assert "It reaches recall@50 0.38 on validation links (chance: 0.001) in 5.89 s" in found
    assert "is above profile (+0.050 ± 0.007, after 6 s)." in found
    assert found.endswith("Times count the item features: 3 s.")
    (table,) = summary.answer_tables(waited)
    assert table.rows[0][1].text == "5.89"
    document = json.loads(json_text(summary.as_json(waited, Path("runs"), {})))
    assert document["feature_seconds"] == 3.0
    assert document["floors"][0]["passed_after_seconds"] == pytest.approx(6)


def test_the_headline_says_what_to_use_and_why(answer):
    found = summary.headline(answer)
    assert found.startswith(
        "To train, use --encoder cnn --loss sg --sampler strat-ns --batch-size 512"
    )
    assert (
        "It reaches recall@50 0.38 on validation links (chance: 0.001) in 2.89 s (0.95 of the best"
        " that was reached), and 0.4 within 4 s." in found
    )
    assert "Recall@50 of test links: 0.400 ± 0.005 at epoch 4." in found
    assert tied_sentence(answer.ties) == "Tied with the trained arm: ns."


def test_trust_names_what_speaks_against_it(answer):
    found = " ".join(caveat.sentence for caveat in summary.caveats(answer))
    assert "2 seeds of each finalist." in found
    assert "its recall rose by 33% in the latter half" in found  # from 0.3 at 2 s to 0.4 at 4 s
    assert "1 arm left before they could be told from it." in found
    assert "no time" not in found


def test_the_table_fits_eighty_columns(answer, monkeypatch):
    """An arm that is the best one for several choices has one row."""
    (table,) = summary.answer_tables(answer)
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["the recommended", "2.89", "4", "0.400", "0.400 ± 0.005", "4"],
        ["sampler ns, learning rate 0.01", "3.18", "4.4", "0.395", "0.395 ± 0.005", "4"],
        ["sampler iid", "15.6", "16", "0.390", "0.390 ± 0.005", "4"],
    ]
    monkeypatch.setenv("COLUMNS", "80")
    console = make_console()
    with console.capture() as captured:
        show(console, table)
    assert max(map(len, captured.get().splitlines())) <= 80


def test_json_says_how_each_entrant_ended(answer, tmp_path):
    found = json.loads(json_text(summary.as_json(answer, tmp_path, {})))
    rows = found["arms"]
    assert [row["status"] for row in rows] == [
        "recommended",
        "tied",
        "slower",
        "left",
        "diverged",
    ]
    assert rows[0]["times_slower"] is None
    assert rows[2]["times_slower"] == pytest.approx(5.385, rel=0.01)
    assert found["recommended"] == "strat-ns lr=0.02"
    assert found["tied"] == ["ns"]
    assert rows[0]["level"] == -0.4


def test_next_commands_repeat_what_was_asked(answer, tmp_path):
    steps = summary.next_steps(answer, tmp_path / "x", {"--data-dir": "here"})
    (_, again), (_, resume) = steps
    assert again == "ncfbench advise tiny --try encoder=cnn --budget 2m --data-dir here"
    assert resume == (
        "ncfbench run --dataset tiny --sampler strat-ns --encoder cnn --loss sg"
        f" --learning-rate 0.02 --data-dir here --runs-dir {tmp_path / 'x'}"
    )
    assert answer.best is not None
    deploy = summary.as_json(answer, tmp_path / "x", {"--data-dir": "here"})["deploy"]
    own = answer.best.first.folder
    command, _, note = deploy["command"].partition("  # ")
    assert command == f"ncfbench export {own} vectors --top 50 --data-dir here"
    assert note == "once it is trained again: its checkpoints are not here"
    assert deploy["lines"][0] == f"DEPLOY {answer.best.name}:"
    for _, command in steps:
        parse(shlex.split(command)[1:])


def test_a_command_names_all_that_was_asked():
    question = Question(
        FIXED | {"dimension": 8},
        tried={"loss": ("sg", "mse"), "sampler": ("ns", "iid"), "learning_rate": (0.01, 0.1)},
    )
    assert summary.advise_command(question, 600.0, {}) == (
        "ncfbench advise tiny --try loss=sg,mse --try sampler=ns,iid --try learning_rate=0.01,0.1"
        " --try encoder=cnn --set dimension=8 --budget 10m"
    )


@pytest.mark.parametrize(("share", "is_said"), [(0.5, False), (0.3, True)])
def test_too_little_training_is_no_answer(answer, share, is_said):
    runs = [run for arm in answer.arms for run in arm.runs.values()]
    for run in runs:
        run.summary["train_seconds"] = 2.0
    spent = 2.0 * len(runs) / share
    beside = dataclasses.replace(answer, spent_seconds=spent)
    document = summary.as_json(beside, Path("runs"), {})
    assert document["training_seconds"] == pytest.approx(share * document["spent_seconds"])
    said = "Too little of the budget was training (30%): no answer."
    assert any(said in text for text in document["trust"]) == is_said
    assert any(said in line for line in document["deploy"]["lines"]) == is_said
