"""`make results`: the plan, the list of cells, what is repeated and what is kept."""

import json
import tomllib

import make_results as script
import pytest
from support.cli import parse

from ncfbench.runs.folder import read_all
from ncfbench.sweeps.presets import preset_paths


def test_commands_of_the_plan_are_valid(monkeypatch):
    """Flags are parsed, presets exist, and both data sets have all claims' commands."""
    for name in ("MOVIELENS_PLOTS", "MOVIELENS_100K", "MINILM", "ANIME", "YELP", "DEBIAN"):
        monkeypatch.setenv(name, "folder")
    sweeps = {}
    for folder in tomllib.loads(script.PLAN.read_text())["folder"]:
        commands = script.spelled_out(folder["commands"])
        commands += (f"prepare {of}" for of in folder["prepare"])
        words = [script.split(command) for command in commands]
        for command in words:
            parse(command)
        sweeps[folder["name"]] = {name for kind, name, *_ in words if kind == "sweep"}
    claims = {"paper-plain", "paper-recall", "paper-strata", "paper-negatives", "paper-coupling"}
    for name in ("citeulike", "movielens"):
        assert claims <= sweeps.pop(name) <= preset_paths().keys()
    assert set().union(*sweeps.values()) == {"rivals", "paper-speedup"}
    assert len(sweeps) == 7


def test_a_range_stands_for_a_command_each():
    commands = script.spelled_out(["floor a", "run --seed {0..2}"])
    assert commands == ["floor a", "run --seed 0", "run --seed 1", "run --seed 2"]


SMALL = "--dataset tiny --epochs 1 --set encoder=bow --set batch_size=64 --set loss=sg"
SMALL += " --set dimension=8 --set word_dimension=8"
PLAN = f"""[[folder]]
name = "small"
prepare = ["synthetic --name tiny"]
commands = [
  "sweep smoke {SMALL} --set sampler=iid,ns",
  "audit --dataset tiny --set encoder=bow --samplers ns --loss sg --noise unigram --batches 0",
]
png = ["targets-tiny-bow"]

[[folder]]
name = "costs"
profiles_of = "small"
prepare = ["synthetic --name tiny"]
commands = ["profile --dataset tiny --encoder bow"]

[[folder]]
name = "absent"
prepare = ["custom --name absent --links $NOWHERE_TO_BE_FOUND/links.csv"]
commands = ["sweep smoke --dataset absent"]
"""


@pytest.fixture
def main(data_dir, tmp_path):
    """Return a function that makes folders of the plan, and returns the exit code."""
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    words = [f"--plan={plan}", f"--data-dir={data_dir}"]
    words += [f"--runs-dir={tmp_path / 'runs'}", f"--results={tmp_path / 'kept'}"]

    def run(*more):
        with pytest.raises(SystemExit) as ended:
            script.main([*words, *more])
        return int(str(ended.value.code))

    return run


def test_results_resume(main, tmp_path, monkeypatch, capsys):
    """Commands only leave what they were called with. An audit that ended is not repeated, also one
    that found faults; what failed is. Profiles stand beside the runs of another folder.
    """
    called, of_audit = [], 0

    def call(words):
        called.append(words)
        if words[0] == "audit" and of_audit == 130:
            raise KeyboardInterrupt
        return of_audit if words[0] == "audit" else 0

    monkeypatch.setattr(script, "call", call)
    assert main("--folder=absent") == 3, "its data are missing"
    assert "absent: $NOWHERE_TO_BE_FOUND/links.csv: set this" in capsys.readouterr().err
    assert not called
    for of_audit, names in (
        (130, ["sweep", "audit"]),
        (3, ["sweep", "audit", "report", "report"]),
        (6, ["sweep", "audit", "report", "report"]),
        (6, ["sweep", "report", "report"]),
    ):
        called.clear()
        assert main("--folder=small") == of_audit
        assert [words[0] for words in called] == names
    called.clear()
    assert main("--folder=costs") == 0
    profile, export = called
    in_runs = f"--runs-dir={tmp_path / 'runs' / 'costs'}"
    assert profile[-1] == in_runs
    assert export == ["report", in_runs, f"--export={tmp_path / 'kept' / 'costs'}"]


@pytest.mark.long
def test_results_are_made(main, tmp_path):
    """With the commands themselves, each in its process."""
    assert main("--folder=small") == 0
    kept = tmp_path / "kept" / "small"
    assert {run.config.sampler for run in read_all(kept)[0]} == {"iid", "ns"}
    figures = {path.suffix for path in (kept / "figures").glob("targets*")}
    assert figures == {".svg", ".png"}
    steps = json.loads((tmp_path / "runs" / "small" / "steps.json").read_text())
    assert [(command.split()[0], code) for command, code in steps.items()] == [("audit", 0)]
