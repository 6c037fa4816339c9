"""Whole races on data that train in a second: what they leave behind, and that they continue."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from invoked import check, invoke
from pyarrow.parquet import read_table
from races import BUDGET, OTHERS, answer_of, ask

import ncfbench
from ncfbench.advice import answer_rows, pipeline, summary
from ncfbench.advice.pipeline import Advice
from ncfbench.advice.state import read_state
from ncfbench.config import Locations
from ncfbench.errors import DataError, UsageError
from ncfbench.runs import folder as runs
from ncfbench.storage import schemas, tables
from ncfbench.timing import contention
from ncfbench.training import run as training

SMALL = [
    *("--encoder", "bow", "--loss", "sg", "--batch-sizes", "64", "--metric", "recall@10"),
    *("--stratum-sizes", "4", "--negatives", "10", "--set", "epochs=4", "--set", "dimension=8"),
    *(word for name, (value,) in OTHERS.items() for word in ("--try", f"{name}={value}")),
]
"""The same on the command line."""
FEW: dict[str, Any] = {"samplers": ("iid", "ns"), "learning_rates": (0.01,), "seeds": 1}

TWO: dict[str, Any] = {"samplers": ("iid", "ns"), "learning_rates": (0.01, 1e30)}
"""Two samplers with a usual and an absurd learning rate."""


@pytest.fixture(scope="module")
def raced(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Advice:
    """A race of :data:`TWO`."""
    return ask(data_dir, tmp_path_factory.mktemp("raced"), **TWO)[0]


def test_a_race_leaves_ordinary_runs_and_an_answer(raced: Advice) -> None:
    assert raced.is_complete
    answer = answer_of(raced)
    assert answer.best is not None
    names = {path.name for path in raced.folder.iterdir() if path.is_file()}
    assert names == {"advice.json", "advice.parquet", "answer.json", "advice.png", ".lock"}
    records, problems = runs.read_all(raced.folder)
    assert problems == []
    # Two seeds of what is recommended, and of the next one.
    assert len(answer.best.runs) == 2
    assert sum(len(each.runs) == 2 for each in answer.main) == 2
    finished = [one for one in records if one.summary["status"] == "finished"]
    assert {one.config.seed for one in finished} == {0, 1}
    turns = {one.environment["interleaved"][0] for one in finished}
    assert len(turns) == 1  # all took turns
    lost = [each for each in answer.arms if each.status == "diverged"]
    assert len(lost) == 2
    assert all("not finite" in each.entrant.reason for each in lost)
    assert all(each.entrant.config.learning_rate == 1e30 for each in lost)


def test_a_race_fits_the_floors_that_have_time(raced: Advice, data_dir: Path) -> None:
    """Once, beside the data: the same question again, or another one, fits none of them."""
    answer = answer_of(raced)
    assert {floor.row["floor"] for floor in answer.floors} == {"profile", "ridge"}
    assert not answer.unfitted
    kept = tables.read_rows(data_dir / "tiny/floors.parquet", schemas.FLOOR)
    assert [dict(floor.row) for floor in answer.floors] == sorted(
        kept, key=lambda row: -row["test_recall_at_50"]
    )


@pytest.mark.long
@pytest.mark.usefixtures("undrawn")
def test_floors_without_time_or_room_are_named(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(data_dir, tmp_path / "data", ignore=shutil.ignore_patterns("floors.parquet"))
    monkeypatch.setattr(pipeline, "FLOORS_SHARE", 1e-15)
    answer = answer_of(ask(tmp_path / "data", tmp_path, **FEW)[0])
    assert not answer.floors
    (reason,) = answer.unfitted
    assert "No profile: it would take about" in reason
    assert "No ridge: it would take about" in reason
    trust = answer_rows.as_json(answer, tmp_path, {})["trust"]
    assert f"Floors that were left out: {reason}" in trust
    monkeypatch.setattr(pipeline, "floor", Mock(side_effect=DataError("Cannot write there.")))
    ask(tmp_path / "data", tmp_path, dry_run=True, **FEW)
    assert pipeline.floor.call_count == 0  # type: ignore[attr-defined]
    found, _ = ask(tmp_path / "data", tmp_path, **FEW)
    assert answer_of(found).unfitted == ["Cannot write there."]


@pytest.mark.usefixtures("undrawn")
def test_a_finished_race_answers_again_at_once(data_dir: Path, raced: Advice) -> None:
    before = {path: read_table(path) for path in raced.folder.glob("*/curve.parquet")}
    again, said = ask(data_dir, raced.folder.parent.parent, **TWO)
    assert answer_of(again).best == answer_of(raced).best
    assert not any("candidates" in line for line in said)
    assert before == {path: read_table(path) for path in before}


@pytest.mark.usefixtures("undrawn")
def test_times_of_two_environments_are_named(data_dir: Path, raced: Advice, tmp_path: Path) -> None:
    """As after new packages: the others' times are not measured again."""
    shutil.copytree(raced.folder.parent, tmp_path / "advice")
    (path, *_) = tmp_path.glob("advice/*/*/environment.json")
    path.write_text(path.read_text().replace(json.loads(path.read_text())["key"], "elsewhere"))
    again, _ = ask(data_dir, tmp_path, **TWO)
    assert pipeline.MIXED_NOTE in answer_of(again).state.notes
    assert pipeline.MIXED_NOTE not in answer_of(raced).state.notes


@pytest.mark.long
@pytest.mark.usefixtures("undrawn")
def test_an_interrupted_race_answers_and_continues(data_dir: Path, tmp_path: Path) -> None:
    """Ctrl-C in the middle of a rung, while other programs are at work, which the command says at
    once and the answer later. The answer stays when its runs train on, by the command that it
    prints; then the same question trains the rest.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "deferred_signals", _after(12))
        patch.setattr(contention.OtherPrograms, "cores", lambda self: 64.0)
        cut, said = ask(data_dir, tmp_path, **FEW)
    assert said[0].startswith("Warning: other programs use 64.0 of")
    assert not cut.is_complete
    state = read_state(cut.folder)
    assert state is not None
    assert not state.is_over
    before = read_table(cut.folder / "advice.parquet")
    begun = next(one for one in runs.read_all(cut.folder)[0] if one.summary["iterations"])
    assert begun.summary["status"] == "interrupted"
    for options in ({"resume": True}, {"again": True}):
        more = training.run(begun.config, Locations(data_dir, cut.folder), **options)
        assert more.summary["iterations"] > begun.summary["iterations"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "DONE_SHARE", 1.1)  # no time is left
        again, _ = ask(data_dir, tmp_path, **FEW)
    assert answer_of(again).arms == answer_of(cut).arms
    assert read_table(again.folder / "advice.parquet") == before
    trained = {one.name: one.summary["iterations"] for one in runs.read_all(cut.folder)[0]}
    whole, said = ask(data_dir, tmp_path, **FEW)
    assert whole.is_complete
    assert not any("candidates" in line for line in said)
    later = {one.name: one.summary["iterations"] for one in runs.read_all(whole.folder)[0]}
    assert all(later[name] >= iterations for name, iterations in trained.items())
    assert len(later) > len(trained) or later != trained
    assert pipeline.BUSY_NOTE in answer_of(whole).state.notes


@pytest.mark.long
def test_a_killed_race_continues(data_dir: Path, tmp_path: Path) -> None:
    """SIGKILL soon after a rung was kept; then the same command ends the race."""
    words = ["advise", "tiny", "--budget", "30m", "--samplers", "iid,ns", *SMALL]
    words += ["--learning-rates", "0.01", "--seeds", "1"]
    words += ["--data-dir", str(data_dir), "--runs-dir", str(tmp_path)]
    silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, "-m", "ncfbench", *words], **silent)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("advice/*/advice.json")) and time.monotonic() < deadline:
        assert process.poll() is None, "the race was over before it was killed"
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    (folder,) = tmp_path.glob("advice/*")
    before = {one.name: one.summary["iterations"] for one in runs.read_all(folder)[0]}
    check(invoke(*words, "--json"), 0)
    state = read_state(folder)
    assert state is not None
    assert state.is_over
    after = {one.name: one.summary for one in runs.read_all(folder)[0]}
    assert all(after[name]["iterations"] >= iterations for name, iterations in before.items())
    assert {summary["status"] for summary in after.values()} == {"finished"}


def test_the_winner_is_trained_on_by_run(
    data_dir: Path, raced: Advice, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = dict(summary.next_steps(answer_of(raced), raced.folder, {"--data-dir": str(data_dir)}))
    command = steps["To train on from where the race left it"].split()[1:]
    check(invoke(*command, "--json"), 0)  # finished already: found, and not trained again
    records, _ = runs.read_all(raced.folder)
    assert len(records) == len(list(raced.folder.glob("*/config.json")))


def test_a_dry_run_only_lists(data_dir: Path, tmp_path: Path) -> None:
    found, _ = ask(data_dir, tmp_path, dry_run=True)
    assert found.answer is None
    assert [each.name for each in found.state.entrants] == [
        "bow sg strat-ns",
        "bow sg ns",
        "bow sg iid k=10",
    ]
    assert found.state.horizon > found.state.first_clock > 0
    assert not list(tmp_path.glob("advice/*/*/config.json"))
    assert read_state(found.folder) is None


def test_a_dry_run_lists_a_race_that_is_over(data_dir: Path, raced: Advice) -> None:
    """It names all that raced, and leaves the answer's files alone."""
    before = (raced.folder / "advice.parquet").stat().st_mtime_ns
    found, _ = ask(data_dir, raced.folder.parent.parent, dry_run=True, **TWO)
    assert found.answer is None
    assert found.state == read_state(raced.folder)
    assert (raced.folder / "advice.parquet").stat().st_mtime_ns == before


def test_from_python(data_dir: Path, tmp_path: Path) -> None:
    found = ncfbench.advise(
        "tiny",
        encoder="bow",
        loss="hinge",
        budget_seconds=BUDGET,
        dry_run=True,
        data_dir=data_dir,
        runs_dir=tmp_path,
        samplers=["neg", "ns"],
        batch_sizes=[64],
        negatives=[10],
        learning_rates=[0.1],
        others=OTHERS,
        dimension=8,
    )
    names = [each.name for each in found.state.entrants]
    assert names == ["bow hinge neg", "bow hinge ns"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"budget": 0.5}, r"--budget: 0 s are too short: two candidates need about \d+0 s"),
        ({"samplers": ("ns",), "learning_rates": (0.01,)}, "one candidate only, bow sg ns"),
    ],
)
def test_what_is_no_race_is_refused(
    data_dir: Path, tmp_path: Path, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        ask(data_dir, tmp_path, **more)


def test_other_data_begin_another_race(data_dir: Path, tmp_path: Path, raced: Advice) -> None:
    state = read_state(raced.folder)
    assert state is not None
    state.fingerprint = "0" * 64
    own = tmp_path / "advice" / raced.folder.name
    own.mkdir(parents=True)
    state.write(own)
    found, said = ask(data_dir, tmp_path, dry_run=True, **TWO)
    assert found.folder == own
    assert any("has changed since this race began" in line for line in said)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["tiny", "--budget", "10"], 2, "--budget '10' is not a time. Use for example 2h"),
        (["tiny", "--budget", "0m"], 2, "--budget must be positive, for example 10m."),
        (["absent"], 3, "is not prepared"),
        (["tiny", "--batch-sizes", "many"], 2, "--batch-sizes 'many' is not a list of numbers"),
        (["tiny", "--samplers", "ns", "--set", "sampler=ns"], 2, "sampler is what advise tries"),
        (["tiny", "--set", "target=loss"], 2, "Unknown setting 'target'"),
        (["tiny", "--metric", "recal@50"], 2, "--metric 'recal@50'; did you mean 'recall@50'"),
        (["tiny", "--metric", "ndcg@100"], 2, "items are ranked for validation links, so"),
        (["tiny", "--try", "gamma"], 2, "--try 'gamma': give a setting and its values"),
        (["tiny", "--try", "gama=5"], 2, "--try 'gama'; did you mean 'gamma'"),
        (["tiny", "--try", "loss=log"], 2, "--try loss: use --loss"),
        (["tiny", "--encoder", "mf"], 2, "mf has no vectors of them. Use another"),
    ],
)
def test_bad_input_is_one_sentence(
    data_dir: Path, tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    found = invoke("advise", *words, "--data-dir", data_dir, "--runs-dir", tmp_path)
    check(found, code, message)


@pytest.mark.usefixtures("undrawn")
def test_the_command_prints_the_answer(
    data_dir: Path, raced: Advice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ["advise", "tiny", "--budget", "2000m", *SMALL]
    words += ["--samplers", "iid,ns", "--learning-rates", "0.01,1e30"]
    runs_dir = raced.folder.parent.parent
    words += ["--data-dir", str(data_dir), "--runs-dir", str(runs_dir)]
    printed = invoke(*words, "--quiet")
    check(printed, 0, "se --encoder bow --loss sg --sampler", "How far to trust it:")
    check(printed, 0, "What ranks best soonest: tiny, recall@10", "ncfbench run --dataset")
    prose = printed.stdout.partition("To be surer")[0]
    assert max(map(len, prose.splitlines())) <= 80
    assert not re.search(r"[a-z]-$", prose, re.M), "no flag is cut at a hyphen"
    listed = invoke(*words, "--quiet", "--dry-run")
    check(listed, 0, "Would race")
    # The race's runs are below other ones; the report says where its answer is.
    below = invoke("report", "--runs-dir", runs_dir)
    check(below, 0, "No finished run in", f"advise {raced.folder.name}", answer_of(raced).best.name)
    check(below, 0, f"ncfbench report {raced.folder}")
    again = invoke("report", raced.folder, "--only", "sampler=iid")  # writes nothing
    check(again, 0, "se --encoder bow --loss sg --sampler")
    unfinished = raced.folder.parent / "unfinished"
    unfinished.mkdir()
    (unfinished / "answer.json").write_bytes((raced.folder / "answer.json").read_bytes())
    for kind in ("csv", "markdown", "html"):
        silent = invoke("report", unfinished, "--format", kind)
        check(silent, 7, f"no finished run, so --format {kind} has no table to print")
    found = json.loads(invoke(*words, "--quiet", "--json").stdout)
    best = answer_of(raced).best
    assert best is not None
    assert found["recommended"] == best.name
    assert found["folder"] == str(raced.folder)


def _after(count: int) -> Any:
    """A stand-in for ``deferred_signals`` whose flag is set once it was asked so often."""
    asked = iter(range(10**9))
    return lambda say, text: nullcontext(lambda: next(asked) > count)
