"""Answers from records that literals make: words, tables, commands."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.records import FIXED, answered, entered, judged_floor, written

from ncfbench.advice import summary
from ncfbench.advice.answer import by_validation
from ncfbench.advice.question import Question
from ncfbench.cli.output import json_text
from ncfbench.errors import UsageError
from ncfbench.reporting.floors import floors_of
from ncfbench.reporting.render.terminal import make_console, show
from ncfbench.runs.quality import chance


def document_of(answer, folder=Path("runs")):
    return json.loads(json_text(summary.as_json(answer, folder, {})))


def cells_of(answer):
    (table,) = summary.answer_tables(answer)
    return [[cell.text for cell in row] for row in table.rows]


def with_floors(answer, *rows, **more):
    return replace(answer, floors=floors_of(rows), **more)


FIELD = [
    ("iid k=10", "iid", [0, 0.1, 0.2, 0.3, 0.39], 40, {}),
    ("strat-ns lr=0.02", "strat-ns", [0, 0.2, 0.3, 0.39, 0.4], 10, {"learning_rate": 0.02}),
    ("ns", "ns", [0, 0.2, 0.3, 0.39, 0.395], 11, {}),
    ("ns lr=0.03", "ns", [0, 0.3, 0.31], 10, {"learning_rate": 0.03, "reason": "ranked 4 of 4"}),
    ("ns lr=9", "ns", None, 10, {"learning_rate": 9.0, "reason": "diverged: not finite"}),
]
"""Arms: recalls after 0, 100, ... iterations, and the ms of each iteration. The best reaches 0.38,
0.95 of its recall, after 289, the slow one after 389.
"""


@pytest.fixture(scope="module")
def field(tmp_path_factory, tiny):
    folder, arms, records = tmp_path_factory.mktemp("answer"), [], {}
    for name, sampler, recalls, ms, more in FIELD:
        arms.append(entered(name, sampler, **more))
        records[name] = written(folder, arms[-1], recalls, ms) if recalls else []
    return tiny, arms, records


@pytest.fixture(scope="module")
def answer(field):
    return answered(*field, spent=60.0, is_over=True)


def test_an_answer_names_the_best_its_ties_and_the_level(answer):
    assert answer.best.name == "strat-ns lr=0.02"
    assert [arm.name for arm in answer.ties] == ["ns"]
    assert answer.target == pytest.approx(-0.38)
    document = document_of(answer)
    statuses = [row["status"] for row in document["arms"]]
    assert statuses == ["recommended", "tied", "slower", "left", "diverged"]
    # 388.9 iterations of 40 ms over 288.9 of 10, by two seeds.
    slower = [row["times_slower"] for row in document["arms"]][1:3]
    assert slower == pytest.approx([1.1, 5.385], rel=0.01)
    assert answer.arms[2].behind.seeds == 2
    assert document["recommended"] == "strat-ns lr=0.02"
    assert (document["tied"], document["arms"][0]["level"]) == (["ns"], -0.4)


def test_floors_stand_below_the_arms_of_a_race(answer):
    """In the table, the paragraph and JSON, with the chance of either split as the floor's row has
    it; with no best arm, too.
    """
    chance = {"validation_recall_at_50_chance": 0.12, "test_recall_at_50_chance": 0.05}
    rows = judged_floor("profile", 0.35, 3.5), judged_floor("ridge", 0.567, 19.0, **chance)
    beside = with_floors(answer, *rows, unfitted=["No ease: it would take 9 h."])
    said = "Without training: ridge 0.567 (19 s), profile 0.350 (3.5 s). The recommended arm is"
    assert said in summary.headline(beside)
    assert cells_of(beside)[-1][:4] == ["no training: profile", "3.5", "-", "0.350"]
    document = document_of(beside)
    assert "(chance 0.050)" in " ".join(document["deploy"]["lines"])
    assert [floor["best_arm"] for floor in document["floors"]] == ["below", "passes"]
    assert document["floors"][1]["passed_after_seconds"] == pytest.approx(3)
    few, *_ = (row["sentence"] for row in document["caveats"] if row["code"] == "few_arms")
    assert few == "Not among the floors, for want of time or memory: ease."
    arms = [replace(arm, status="slower") for arm in beside.arms if arm.has_run]
    none = replace(beside, arms=arms, target=None)
    assert summary.answer_tables(none) == [], "nothing is recommended"
    assert "strat-ns lr=0.02, 0.400 ± 0.005, is above profile" in summary.headline(none)


def changed(field, floors, seed, beginnings):
    """Return the answer about other numbers in columns that begin so, of which some are equal."""
    rng = random.Random(seed)
    value = rng.choice([0.0, 0.2, 1.0])

    def change(row):
        drawn = {
            name: (0.01 if name.endswith("error") else 1.0) * rng.choice([value, rng.random()])
            for name, number in row.items()
            if name.startswith(beginnings) and isinstance(number, float)
        }
        return {**row, **drawn}

    dataset, arms, records = field
    drawn = {
        name: [
            replace(run, curve=[*map(change, run.curve)], summary=change(run.summary)) for run in of
        ]
        for name, of in records.items()
    }
    answer = answered(dataset, arms, drawn, spent=60.0, is_over=True)
    return replace(answer, floors=by_validation(floors_of(map(change, floors))))


@pytest.fixture(
    scope="module", params=[(0.15, 0.2), (0.34, 0.39), (0.4, 0.45), (0.3, 0.3), (1.0, 1.0)]
)
def floors(request):
    """Floors below all arms, level with the best, above all, as good as each other, and of a recall
    of validation links that is 1 by construction.
    """
    chance = {"validation_recall_at_50_chance": 1.0 if request.param == (1.0, 1.0) else 0.1}
    return [
        judged_floor(name, recall, 3.5, validation_ndcg_at_50=ndcg, **chance)
        for name, recall, ndcg in zip(("profile", "ridge"), request.param, (0.3, 0.2), strict=True)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_numbers_beside_a_floor_subtract(field, floors, seed):
    """Whatever the records say, the recall of an arm less that of a floor is the difference that
    stands there, but for the last digit.
    """
    answer = changed(field, floors, seed, ("test_", "validation_"))
    recall = f"{answer.beside_floors.reported.recall:.3f}"
    text = summary.headline(answer)
    _, _, text = text.partition("Without training: ")
    reached, *stands = re.split(r"\. (?=\S+.*? is )", text)
    recalls, pairs = dict(re.findall(r"(\w+) (\d\.\d{3}) \(", reached)), 0
    for sentence in stands:
        for name, apart in re.findall(r"(ridge|profile) \(([-+]\d\.\d{3}) ±", sentence):
            assert float(recall) - float(recalls[name]) == pytest.approx(float(apart), abs=0.00101)
            pairs += 1
    assert (len(recalls), pairs >= 2) == (2, True)


@pytest.mark.parametrize("seed", range(20))
def test_test_links_choose_nothing(field, floors, seed):
    """Whatever recalls of test links are put in the place of the records' own, of arms and floors:
    they only judge what validation links chose.
    """
    one, other = (_chosen(changed(field, floors, seed, of)) for of in (("none",), ("test_",)))
    assert one == other


def _chosen(answer):
    """What an answer chooses: to deploy, to train with and to train on; the order of its rows."""
    document = document_of(answer)
    deployed = [document["deploy"][name] for name in ("what", "name", "command")]
    arms = [(arm["name"], arm["status"], arm["seconds_to_level"]) for arm in document["arms"]]
    floors = [floor["floor"] for floor in document["floors"]]
    cells = [row[:4] for row in cells_of(answer)]
    return [deployed, document["recommended"], document["next"], arms, floors, cells]


def test_what_is_trained_on_is_what_is_deployed(answer):
    """The seed whose recall of validation links is the larger."""
    first, second = answer.best.runs.values()
    curve = [dict(row) for row in second.curve]
    curve[-1]["validation_recall_at_50"] = 0.7
    better = replace(second, curve=curve)
    for last, name in ((second, first.name), (better, second.name)):
        best = replace(answer.best, runs={0: first, 1: last})
        arms = [best if arm.name == best.name else arm for arm in answer.arms]
        document = document_of(replace(answer, arms=arms))
        assert name in document["deploy"]["command"]
        assert ("--seed 1" in document["next"][1]["command"]) == (name == second.name)


@pytest.mark.parametrize(("share", "is_little"), [(0.5, False), (0.3, True)])
def test_trust_names_what_speaks_against_it(answer, share, is_little):
    """Recall rose from 0.3 at 2 s to 0.4 at 4 s. Too little training is no answer."""
    runs = [run for arm in answer.arms for run in arm.runs.values()]
    for run in runs:
        run.summary["train_seconds"] = 2.0
    document = document_of(replace(answer, spent_seconds=2.0 * len(runs) / share))
    assert document["training_seconds"] == pytest.approx(share * document["spent_seconds"])
    codes = [caveat["code"] for caveat in document["caveats"]]
    assert codes == ["undertrained"] * (1 + is_little) + ["few_seeds", "few_arms"]
    rose, seeds, left = (text for text in document["trust"] if "budget was training" not in text)
    assert "its recall rose by 33% in the latter half" in rose
    assert (seeds[:8], left[:10]) == ("2 seeds ", "1 arm left")
    said = "Too little of the budget was training (30%): no answer."
    assert any(said in line for line in document["deploy"]["lines"]) == is_little


def test_the_table_fits_eighty_columns(answer, monkeypatch):
    assert cells_of(answer) == [
        ["the recommended", "2.89", "4", "0.400", "0.400 ± 0.005", "4"],
        ["sampler ns, learning rate 0.01", "3.18", "4.4", "0.395", "0.395 ± 0.005", "4"],
        ["sampler iid", "15.6", "16", "0.390", "0.390 ± 0.005", "4"],
    ]
    monkeypatch.setenv("COLUMNS", "80")
    console = make_console()
    with console.capture() as captured:
        show(console, *summary.answer_tables(answer))
    assert max(map(len, captured.get().splitlines())) <= 80


def test_next_commands_repeat_what_was_asked(answer, tmp_path):
    where, folder = {"--data-dir": "here"}, tmp_path / "x"
    again, resume = (step["command"] for step in summary.next_steps(answer, folder, where))
    assert again == "ncfbench advise tiny --try encoder=cnn --budget 2m --data-dir here"
    assert resume.endswith(f"--learning-rate 0.02 --data-dir here --runs-dir {folder}")
    deploy = summary.as_json(answer, folder, where)["deploy"]
    export = f"ncfbench export {answer.best.first.folder} vectors --top 50 --data-dir here"
    note = "once it is trained again: its checkpoints are not here"
    assert deploy["command"] == f"{export}  # {note}"
    assert deploy["lines"][0] == f"NO ANSWER YET; so far {answer.best.name}:"


def test_an_arm_at_chance_is_not_recommended(tmp_path, tiny, monkeypatch):
    """However high its recall: noise alone may have brought it there. While all are at chance there
    is no choice, and nothing to compare.
    """
    best, high = entered("best", "ns"), entered("high", "iid")
    records = {"best": written(tmp_path, best, [0, 0.2, 0.4], 10)}
    records |= {"high": written(tmp_path, high, [0, 0.3, 0.5], 40)}
    able = ["ns"]
    monkeypatch.setattr(
        "ncfbench.advice.answer.above_chance_at",
        lambda record, split, by_chance: 1.0 if record.config.sampler in able else None,
    )
    one = answered(tiny, [high, best], records)
    ends = [(arm.name, arm.status, arm.behind) for arm in one.arms]
    assert ends == [("best", "recommended", None), ("high", "slower", None)]
    able.clear()
    none = answered(tiny, [high, best], records)
    assert (none.best, summary.answer_tables(none)) == (None, [])
    said = f"none of 2 is clearly above chance ({chance(tiny, 'validation'):.3f})."
    assert said in summary.headline(none)
    document = document_of(none)
    assert (document["recommended"], document["tied"]) == (None, [])


def test_an_answer_before_any_evaluation(tmp_path, tiny):
    """A race may be interrupted in its first rung; such an arm is neither the best nor worth
    anything beside another. At most 50 items are ranked for validation links here, so that recall
    cannot tell who is at chance.
    """
    early, best = entered("early", "ns"), entered("best", "iid")
    records = {"early": written(tmp_path, early, [], 10), "best": []}
    none = answered(tiny, [early, best], records)
    assert summary.headline(none).startswith("No choice yet: no arm has been evaluated.")
    assert (none.best, none.target) == (None, None)
    assert [row["level"] for row in document_of(none)["arms"]] == [None, None]
    records["best"] = written(tmp_path, best, [0, 0.2, 0.4], 10)
    one = answered(tiny, [early, best], records)
    assert (one.best.name, [row[0] for row in cells_of(one)]) == ("best", ["the recommended"])


def test_a_question_without_an_answer_is_refused():
    for more, message in (
        ({"metric": "speed"}, r"--metric 'speed'.* Valid: recall@10"),
        ({"tried": {"sampler": ("nss",)}}, "did you mean 'ns'"),
        ({"tried": {"seed": (1,)}}, "no setting to try"),
    ):
        with pytest.raises(UsageError, match=message):
            Question(FIXED, **more)


def test_questions_are_named_by_their_settings():
    asked = Question(FIXED, "ndcg@20", {"sampler": ("ns",)})
    assert asked.name.startswith("tiny-ndcg20-")
    assert Question(FIXED | {"dimension": 8}, "ndcg@20", {"sampler": ("ns",)}).name != asked.name
