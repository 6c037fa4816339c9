"""Whole races on data that train in a second: what they leave behind, and that they continue."""

import json
import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from support.cli import check, invoke
from support.races import BUDGET, OTHERS, ask

import ncfbench
from ncfbench.advice import pipeline, summary
from ncfbench.config import Locations
from ncfbench.errors import DataError, UsageError
from ncfbench.racing import pipeline as races
from ncfbench.runs import folder as runs
from ncfbench.runs.plan import RunPlan
from ncfbench.storage import schemas, tables
from ncfbench.timing import contention
from ncfbench.training import run as training

SMALL = [
    *("--metric", "recall@10", "--set", "epochs=4", "--set", "dimension=8"),
    *("--try", "encoder=bow", "--try", "loss=sg", "--try", "batch_size=64"),
    *("--try", "stratum_size=4", "--try", "negatives=10"),
    *(word for name, (value,) in OTHERS.items() for word in ("--try", f"{name}={value}")),
]
"""The same on the command line."""
FEW: dict[str, Any] = {"sampler": ("iid", "ns"), "learning_rate": (0.01,)}

TWO: dict[str, Any] = {"sampler": ("iid", "ns"), "learning_rate": (0.01, 1e30)}
"""Two samplers with a usual and an absurd learning rate."""


@pytest.fixture(scope="module")
def raced(data_dir, tmp_path_factory):
    """A race of :data:`TWO`."""
    return ask(data_dir, tmp_path_factory.mktemp("raced"), **TWO)[0]


def test_a_race_leaves_ordinary_runs_and_an_answer(raced):
    assert raced.answer.is_over
    answer = raced.answer
    assert answer.best is not None
    names = {path.name for path in raced.folder.iterdir() if path.is_file()}
    assert names == {"answer.json", ".lock"}
    records, problems = runs.read_all(raced.folder)
    assert problems == []
    # Further seeds of what is recommended, and of the next one.
    assert len(answer.best.runs) > 1
    assert sum(len(each.runs) > 1 for each in answer.main) == 2
    finished = [one for one in records if one.summary["status"] == "finished"]
    assert {0, 1} <= {one.config.seed for one in finished}
    turns = {one.environment["interleaved"][0] for one in finished}
    assert len(turns) == 1  # all took turns
    lost = [each for each in answer.arms if each.status == "diverged"]
    assert len(lost) == 2
    assert all("not finite" in each.reason for each in lost)
    assert all(each.config.learning_rate == 1e30 for each in lost)


def test_a_race_fits_the_floors_that_have_time(raced, data_dir):
    """Once, beside the data: the same question again, or another one, fits none of them. All of
    them rank all of the few validation items, which puts none of them before another.
    """
    answer = raced.answer
    assert {floor.row["floor"] for floor in answer.floors} == {"profile", "ridge", "denoised"}
    assert not answer.unfitted
    kept = tables.read_rows(data_dir / "tiny/floors.parquet", schemas.FLOOR)
    assert {row["validation_recall_at_50"] for row in kept} == {1.0}
    by_name = {row["floor"]: row for row in kept}
    shown = [dict(floor.row) for floor in answer.floors]
    assert shown == [by_name[name] for name in ("profile", "ridge", "denoised")]


@pytest.mark.long
def test_floors_without_time_or_room_are_named(data_dir, tmp_path, monkeypatch):
    shutil.copytree(data_dir, tmp_path / "data", ignore=shutil.ignore_patterns("floors.parquet"))
    monkeypatch.setattr(pipeline, "FLOORS_SHARE", 1e-15)
    answer = ask(tmp_path / "data", tmp_path, **FEW)[0].answer
    assert not answer.floors
    (reason,) = answer.unfitted
    assert "No profile: it would take about" in reason
    assert "No ridge, denoised: it would take about" in reason
    trust = summary.as_json(answer, tmp_path, {})["trust"]
    assert f"Floors that were left out: {reason}" in trust
    monkeypatch.setattr(pipeline, "fit_within", Mock(side_effect=DataError("Cannot write there.")))
    found, _ = ask(tmp_path / "data", tmp_path, **FEW)
    assert found.answer.unfitted == ["Cannot write there."]


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


def test_a_race_is_raced_again_in_a_folder_of_its_own(data_dir, tmp_path):
    """A killed one left its runs there."""
    first, _ = ask(data_dir, tmp_path, **FEW)
    kept = {path: path.read_bytes() for path in first.folder.rglob("*") if path.is_file()}
    again, _ = ask(data_dir, tmp_path, **FEW)
    assert again.folder == first.folder.with_name(f"{first.folder.name}-2")
    assert kept == {path: path.read_bytes() for path in kept}
    assert len(again.answer.arms) == len(first.answer.arms)


def test_the_winner_is_trained_on_by_run(data_dir, raced, monkeypatch):
    steps = dict(summary.next_steps(raced.answer, raced.folder, {"--data-dir": str(data_dir)}))
    command = steps["To train on from where the race left it"].split()[1:]
    check(invoke(*command, "--json"), 0)  # finished already: found, and not trained again
    records, _ = runs.read_all(raced.folder)
    assert len(records) == len(list(raced.folder.glob("*/config.json")))


def test_from_python(data_dir, tmp_path):
    found = ncfbench.advise(
        "tiny",
        tried={
            **{"encoder": ["bow"], "loss": ["hinge"], "sampler": ["neg", "ns"]},
            **{"batch_size": [64], "negatives": [10], "learning_rate": [0.1]},
            **OTHERS,
        },
        budget_seconds=BUDGET,
        data_dir=data_dir,
        runs_dir=tmp_path,
        dimension=8,
        epochs=4,
    )
    names = [arm.name for arm in found.answer.arms]
    assert sorted(names) == ["bow hinge neg", "bow hinge ns"]


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


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["tiny", "--budget", "10"], 2, "--budget '10' is not a time. Use for example 2h"),
        (["tiny", "--budget", "0m"], 2, "--budget must be positive, for example 10m."),
        (["absent"], 3, "is not prepared"),
        (["tiny", "--try", "batch_size=many"], 2, "batch_size"),
        (["tiny", "--try", "sampler=ns", "--set", "sampler=ns"], 2, "sampler is what advise tries"),
        (["tiny", "--set", "target=loss"], 2, "Unknown setting 'target'"),
        (["tiny", "--metric", "recal@50"], 2, "--metric 'recal@50'; did you mean 'recall@50'"),
        (["tiny", "--metric", "ndcg@100"], 2, "items are ranked for validation links, so"),
        (["tiny", "--try", "gamma"], 2, "--try 'gamma': give a name and its values"),
        (["tiny", "--try", "gama=5"], 2, "--try 'gama'; did you mean 'gamma'"),
        (["tiny", "--try", "encoder=mf"], 2, "mf has no vectors of them. Try another"),
    ],
)
def test_bad_input_is_one_sentence(data_dir, tmp_path, words, code, message):
    found = invoke("advise", *words, "--data-dir", data_dir, "--runs-dir", tmp_path)
    check(found, code, message)


def test_the_command_prints_the_answer(data_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = ["advise", "tiny", "--budget", "2000m", *SMALL]
    words += ["--try", "sampler=iid,ns", "--try", "learning_rate=0.01"]
    words += ["--data-dir", str(data_dir), "--runs-dir", str(tmp_path)]
    printed = invoke(*words, "--quiet")
    check(printed, 0, "se --encoder bow --loss sg --sampler", "How far to trust it:")
    check(printed, 0, "What ranks best soonest: tiny, recall@10", "ncfbench run --dataset")
    prose = printed.stdout.partition("To be surer")[0]
    assert max(len(line) for line in prose.splitlines() if line[:1] != " ") <= 80
    assert not re.search(r"[a-z]-$", prose, re.M), "no flag is cut at a hyphen"
    found = json.loads(invoke(*words, "--quiet", "--json").stdout)
    assert found["recommended"] in {each["name"] for each in found["arms"]}
    assert tables.read_json(Path(found["folder"]) / "answer.json") == found


def _after(count):
    """A stand-in for ``deferred_signals`` whose flag is set once it was asked so often."""
    asked = iter(range(10**9))
    return lambda say, text: nullcontext(lambda: next(asked) > count)
