"""Results kept in the repository: every number comes out again."""

import json
import re

import pytest
from support.records import FOLDERS, REPOSITORY, kept, read, write_run

from ncfbench.reporting.claims import DISTURBED, judge_claims
from ncfbench.reporting.drift import verify
from ncfbench.reporting.results import collect


def test_there_are_results():
    names = [f"citeulike-title-tags{end}" for end in ("", "-bert", "-coupling", "-transformer")]
    names += ["fine-tuned", "frozen-start", "good-start", "movielens-plots", "rivals"]
    assert [folder.name for folder in FOLDERS] == names


@pytest.mark.long_cases("(citeulike-title-tags|movielens-plots|rivals)$")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_number_comes_out_again(folder):
    """A second computation of them is in tests/independent."""
    results = kept(folder.name)
    values, mismatches = verify(results)
    assert values >= 68  # the smallest, of one run
    assert (mismatches, results.problems) == ([], [])


def test_results_stay_below_eight_megabytes():
    files = [path for path in (REPOSITORY / "results").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 8e6
    assert len(files) <= 110


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_they_are_compact_and_name_no_machine(folder):
    assert not [*folder.rglob("checkpoints")]
    for record in read(folder)[0]:
        text = json.dumps({**record.environment})
        commit = record.environment["commit"]
        assert commit["id"]
        assert not commit["dirty"], "measured with code that no commit holds"
        assert not re.search("/tmp|/home|/work|/root", text)


def test_a_profile_decides_where_runs_were_disturbed():
    """With SG strata with sharing ran on another machine, and the profiles of both convolutions
    tell; with MSE the machine was busy.
    """
    folder = REPOSITORY / "results" / "movielens-plots"
    results = collect(folder, profiles=folder, only={"encoder": ["cnn"], "loss": ["sg", "mse"]})
    claims = [one for one in results.claims if one["claim"] == "soonest"]
    judged = {(one["loss"], one["settings"]): one for one in claims}
    assert DISTURBED not in [one["evidence"] for one in judged.values()]
    alone = judge_claims(results.comparisons)
    assert [one["loss"] for one in alone if one["evidence"] == DISTURBED] == ["mse"]
    timed = "epochs=5, profile of 7 rounds"
    assert set(judged) == {("mse", timed), ("sg", timed), ("sg", f"{timed}, convolution=plain")}
    assert {one["verdict"] for one in judged.values()} == {"reproduced"}


def test_runs_that_are_left_out_are_named(tmp_path):
    """An interrupted one with its command, one of a sweep, and one that a newer one replaces."""
    older, _ = (write_run(tmp_path, "iid", [9, 5], 10, time=time) for time in ("1", "2"))
    more = {"status": "interrupted"}
    alone = write_run(tmp_path, "ns", [9, 5], 10, epochs=7, seed=2, **more)
    turns = write_run(tmp_path, "strat", [9, 5], 10, interleaved=["a"], **more)
    results = collect(tmp_path, tmp_path, locations={"--runs-dir": "here"})
    command = "ncfbench run --dataset citeulike --sampler ns --encoder cnn --loss sg --epochs 7"
    stopped = "it is interrupted at iteration 100. To continue it:"
    assert sorted(results.left_out) == [
        f"{older.name} is left out: a newer run has its settings, data and seed.",
        f"{alone.name} is left out: {stopped} {command} --seed 2 --runs-dir here",
        f"{turns.name} is left out: {stopped} the command of its sweep or race",
    ]
    assert results.comparisons
