"""Whole races on data that train in a second: what they leave behind, and that they continue."""

import itertools
import json
import re
import shutil
from contextlib import nullcontext
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from support.cli import check, invoke
from support.races import ask, question_of
from support.training import skippable_clock

import ncfbench
from ncfbench.advice import pipeline, summary
from ncfbench.advice.question import Question
from ncfbench.config import Locations
from ncfbench.data.store import prepare_dataset
from ncfbench.errors import DataError, UsageError
from ncfbench.floors.models import FLOORS
from ncfbench.racing import pipeline as races
from ncfbench.reporting.answers import worth
from ncfbench.reporting.floors import standing
from ncfbench.runs import folder as runs
from ncfbench.runs.plan import RunPlan
from ncfbench.statistics.ranking import NEAR, SHARE
from ncfbench.storage import schemas, tables
from ncfbench.timing import contention
from ncfbench.training import run as training

FEW = {"sampler": ("iid", "ns"), "learning_rate": (0.01,)}
TWO = FEW | {"learning_rate": (0.01, 1e30)}
"""Two samplers with a usual and an absurd learning rate."""


@pytest.fixture(scope="module")
def raced(data_dir, tmp_path_factory):
    """A race of :data:`TWO` beside what a killed one has left, with a further seed of two arms. A
    step of iid takes 40 ms, one of ns 10 ms, and nothing else takes time.
    """
    folder = tmp_path_factory.mktemp("raced")
    (left := folder / "advice" / question_of(**TWO).name / "some run").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ncfbench.advice.race.MOST_SEEDS", 2)
        skippable_clock(patch, lambda config: 0.04 if config.sampler == "iid" else 0.01)
        race, _ = ask(data_dir, folder, **TWO)
    assert race.folder == left.parent.with_name(f"{left.parent.name}-2")
    assert [*left.parent.rglob("*")] == [left]
    return race


def test_a_race_leaves_ordinary_runs_and_an_answer(raced):
    answer = raced.answer
    assert answer.is_over
    files = {path.name for path in raced.folder.iterdir() if path.is_file()}
    assert files == {"answer.json", ".lock"}
    records, problems = runs.read_all(raced.folder)
    assert problems == []
    ends = [
        (run.summary["status"], run.config.sampler, run.config.learning_rate, run.config.seed)
        for run in records
    ]
    good = [("finished", sampler, 0.01, seed) for sampler in ("iid", "ns") for seed in (0, 1)]
    bad = [("diverged", sampler, 1e30, 0) for sampler in ("iid", "ns")]
    assert sorted(ends) == sorted(good + bad)
    assert len({run.environment["interleaved"][0] for run in records}) == 1, "all took turns"
    assert [len(arm.runs) for arm in answer.main] == [2, 2]
    lost = [arm.reason for arm in answer.arms if arm.status == "diverged"]
    assert ["not finite" in reason for reason in lost] == [True, True]


def test_an_answer_is_that_of_the_curves(raced):
    """The level, and what the choice of a sampler is worth, by plain arithmetic."""
    answer, column, tops = raced.answer, "validation_recall_at_10", {}
    for arm in answer.main:
        curves = []
        for run in arm.runs.values():
            rows = [row for row in run.curve if row[column] is not None]
            points = {row["iteration"]: row[column] for row in rows}
            curves.append({0: rows[0][f"{column}_chance"]} | points)
        # The mean over seeds, at each evaluation of one of them, as far as the shortest goes.
        end = min(map(max, curves))
        tops[arm.name] = max(
            np.mean([np.interp(at, [*curve], [*curve.values()]) for curve in curves])
            for at in itertools.chain(*curves)
            if at <= end
        )
    assert {arm.name: -arm.level for arm in answer.main} == pytest.approx(tops)
    assert answer.target == pytest.approx(-SHARE * max(tops.values()))
    assert tops[answer.best.name] >= NEAR * max(tops.values())
    (row,) = worth(answer)
    assert (row.choice, {row.value, answer.best.config.sampler}) == ("sampler", {"iid", "ns"})
    assert [choice["choice"] for choice in raced.document["worth"]] == ["sampler"]
    assert raced.document["metric"] == "recall@10"


def test_a_race_fits_the_floors_that_have_time(raced, data_dir):
    """Once, beside the data. All of them rank all of the few validation items, which puts none of
    them before another.
    """
    kept = tables.read_rows(data_dir / "tiny/floors.parquet", schemas.FLOOR)
    assert {row["validation_recall_at_50"] for row in kept} == {1.0}
    by_name = {row["floor"]: row for row in kept}
    shown = [dict(floor.row) for floor in raced.answer.floors]
    assert shown == [by_name[name] for name in ("profile", "ridge", "denoised")]
    assert not raced.answer.unfitted


def test_the_winner_is_trained_on_by_run(data_dir, raced):
    """It is finished already: found, and not trained again."""
    steps = summary.next_steps(raced.answer, raced.folder, {"--data-dir": str(data_dir)})
    check(invoke(*steps[1]["command"].split()[1:], "--json"), 0)
    records, _ = runs.read_all(raced.folder)
    assert len(records) == len(list(raced.folder.glob("*/config.json")))


def test_from_python_and_the_command_line(data_dir, tmp_path, raced, monkeypatch):
    asked = []

    def ask_once(*parts):
        asked.append(Question(*parts).name)
        raise UsageError("asked")

    monkeypatch.setattr(pipeline, "Question", ask_once)
    monkeypatch.setenv("COLUMNS", "80")
    tried = {"encoder": ["bow"], "sampler": ["iid", "ns"]}
    where = {"data_dir": data_dir, "runs_dir": tmp_path}
    more = {"metric": "recall@10", "budget_seconds": 120.0, "dimension": 8}
    with pytest.raises(UsageError, match="asked"):
        ncfbench.advise("tiny", tried=tried, **where, **more)
    words = "advise tiny --budget 2m --metric recall@10 --set dimension=8 --try encoder=bow --try"
    words = [*words.split(), "sampler=iid,ns", "--data-dir", data_dir, "--runs-dir", tmp_path, "-q"]
    check(invoke(*words), 2, "asked")
    assert asked == [asked[0]] * 2
    given = Mock(return_value=raced)
    monkeypatch.setattr(pipeline, "advise", given)
    printed = invoke(*words)
    assert given.call_args.kwargs["budget_seconds"] == 120
    said = "How far to trust it:", "What ranks best soonest: tiny, recall@10"
    check(printed, 0, "se --encoder bow --loss sg --sampler", *said, "ncfbench run --dataset")
    prose = printed.stdout.partition("To be surer")[0]
    assert max(len(line) for line in prose.splitlines() if line[:1] != " ") <= 80
    assert not re.search(r"[a-z]-$", prose, re.M), "no flag is cut at a hyphen"
    document = json.loads(invoke(*words, "--json").stdout)
    assert document == tables.read_json(raced.folder / "answer.json")


@pytest.mark.long
def test_floors_without_time_or_room_are_named(data_dir, tmp_path, monkeypatch):
    shutil.copytree(data_dir, tmp_path / "data", ignore=shutil.ignore_patterns("floors.parquet"))
    monkeypatch.setattr(pipeline, "FLOORS_SHARE", 1e-15)
    monkeypatch.setattr("ncfbench.floors.floor.LEAST_SECONDS", 0.0)
    answer = ask(tmp_path / "data", tmp_path, **FEW)[0].answer
    (reason,) = answer.unfitted
    assert (answer.floors, reason[:33]) == ([], "No profile, denoised, ridge: it w")
    monkeypatch.setattr(pipeline, "fit_within", Mock(side_effect=DataError("Cannot write there.")))
    outcome, _ = ask(tmp_path / "data", tmp_path, **FEW)
    assert outcome.answer.unfitted == ["Cannot write there."]


@pytest.mark.long
def test_an_interrupted_race_answers(data_dir, tmp_path):
    """Ctrl-C in the middle of a rung, while other programs are at work, which the command says at
    once and the answer later. The answer stays when its runs train on.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(races, "deferred_signals", _after(12))
        patch.setattr(contention.OtherPrograms, "cores", lambda self: 64.0)
        cut, said = ask(data_dir, tmp_path, **FEW)
    assert said[0].startswith("Warning: other programs use 64.0 of")
    assert not cut.answer.is_over
    assert any("other programs used 64.0 of" in note for note in cut.answer.notes)
    begun = next(one for one in runs.read_all(cut.folder)[0] if one.summary["iterations"])
    assert begun.summary["status"] == "interrupted"
    before = (cut.folder / "answer.json").read_bytes()
    more = training.run(RunPlan.of(begun.config, Locations(data_dir, cut.folder)))
    assert more.summary["iterations"] > begun.summary["iterations"]
    assert (cut.folder / "answer.json").read_bytes() == before


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"budget": 0.5}, r"--budget: 0 s are too short: two arms need about \d+0 s"),
        ({"sampler": ("ns",), "learning_rate": (0.01,)}, "one arm only, bow sg ns"),
    ],
)
def test_what_is_no_race_is_refused(data_dir, tmp_path, more, message):
    with pytest.raises(UsageError, match=message):
        ask(data_dir, tmp_path, **more)


@pytest.mark.long
def test_a_race_on_held_out_links(tmp_path, tiny_options):
    options = replace(tiny_options, hold_out="links")
    data = prepare_dataset("synthetic", name="tiny", data_dir=tmp_path, **vars(options))
    few = {"sampler": ("neg", "ns"), "learning_rate": (0.01,), "loss": ("log",)}
    answer = ask(tmp_path, tmp_path, encoder="mf", metric="recall@50", **few)[0].answer
    assert {floor.row["floor"] for floor in answer.floors} == {*FLOORS} - {"denoised"}
    assert any(standing(arm, answer.floors[0]).error is not None for arm in answer.arms)
    training = data.links("train")[0].tolist()
    left = [data.n_items - training.count(user) for user in set(data.links("test")[0].tolist())]
    assert answer.chance == pytest.approx(np.mean([50 / count for count in left]))
    assert not re.search("(test|validation|held-out) items", summary.headline(answer))


def _after(count):
    """A stand-in for ``deferred_signals`` whose flag is set once it was asked so often."""
    asked = iter(range(10**9))
    return lambda say, text: nullcontext(lambda: next(asked) > count)
