"""`make results`: the plan, the list of cells, what is repeated and what is kept."""

import json
import tomllib

import make_results as script
import pytest
from support.cli import parse

from ncfbench.runs.folder import read_all
from ncfbench.sweeps.presets import preset_paths


def test_commands_of_the_plan_are_valid(monkeypatch):
    """Flags are parsed, presets exist, and both data sets have all claims' commands, and
    the rivals.
    """
    for name in ("MOVIELENS_PLOTS", "MOVIELENS_100K", "MINILM", "ANIME", "YELP", "DEBIAN"):
        monkeypatch.setenv(name, "folder")
    plan = tomllib.loads(script.PLAN.read_text())["folder"]
    both = ["citeulike", "movielens"]
    dear = ["citeulike-transformer", "citeulike-bert", "cite-bert", "anime-bert"]
    rivals = [f"{name}-rivals" for name in both]
    names = [both[0], "citeulike-encoders", both[1], *dear, *rivals]
    names += ["good-start", "frozen-start"]
    assert [folder["name"] for folder in plan] == names
    for folder in plan:
        sweeps = set()
        for command in [*folder["commands"], *(f"prepare {one}" for one in folder["prepare"])]:
            words = script.split(command)
            parse(words)
            if words[0] == "sweep":
                sweeps.add(words[1])
        if folder["name"] not in both:
            assert sweeps <= {"rivals", "paper-speedup"}
            continue
        claims = {"paper-plain", "paper-recall", "paper-strata", "paper-negatives"}
        assert claims | {"paper-coupling"} <= sweeps <= preset_paths().keys()
        assert any(command.startswith("audit ") for command in folder["commands"])


PLAN = """[[folder]]
name = "small"
prepare = ["synthetic --name tiny"]
commands = [
  "sweep smoke {small} --set sampler=iid,ns",
  "sweep smoke {small} --set sampler=ns,strat-ns",
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
SMALL = (
    "--dataset tiny --epochs 1 --set encoder=bow --set dimension=8 --set word_dimension=8"
    " --set batch_size=64 --set loss=sg"
)


@pytest.fixture
def main(data_dir, tmp_path):
    """The script on a plan of two sweeps that share a cell, an audit, and data that are missing;
    returns the exit code.
    """
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN.format(small=SMALL))
    words = [f"--plan={plan}", f"--data-dir={data_dir}", f"--runs-dir={tmp_path / 'runs'}"]
    words.append(f"--results={tmp_path / 'kept'}")

    def run(*more):
        with pytest.raises(SystemExit) as ended:
            script.main([*words, *more])
        return int(str(ended.value.code))

    return run


def test_results_resume(main, tmp_path, monkeypatch, capsys):
    """Commands only leave what they were called with. An audit that ended is not repeated, also one
    that found faults; what failed is.
    """
    called: list[list[str]] = []
    codes: dict[str, int] = {}

    def call(words):
        called.append(words)
        if codes.get(words[0]) == 130:
            raise KeyboardInterrupt
        return codes.get(words[0], 0)

    monkeypatch.setattr(script, "call", call)
    assert main("--folder=absent") == 3, "its data are missing"
    said = capsys.readouterr()
    assert "absent: $NOWHERE_TO_BE_FOUND/links.csv: set this variable" in said.err
    assert not called

    def names(*words, code):
        called.clear()
        assert main("--folder=small", *words) == code
        return [each[0] for each in called]

    codes["audit"] = 130
    assert names(code=130) == ["sweep", "sweep", "audit"]
    codes["audit"] = 3
    rest = ["report"] * 2
    assert names(code=3) == ["sweep", "sweep", "audit", *rest]
    codes["audit"] = 6
    assert names(code=6) == ["sweep", "sweep", "audit", *rest]
    assert names(code=6) == ["sweep", "sweep", *rest], "its faults are told again"
    (tmp_path / "runs" / "small" / "steps.json").unlink()
    codes["audit"] = 0
    assert names(code=0) == ["sweep", "sweep", "audit", *rest]


def test_profiles_stand_beside_the_runs_of_another_folder(main, tmp_path, monkeypatch):
    called: list[list[str]] = []
    monkeypatch.setattr(script, "call", lambda words: called.append(words) or 0)
    assert main("--folder=costs") == 0
    profile, export = called
    own, kept = tmp_path / "runs" / "costs", tmp_path / "kept" / "costs"
    assert profile[-1] == f"--runs-dir={own}"
    assert export == ["report", f"--runs-dir={own}", f"--export={kept}"]


@pytest.mark.long
def test_results_are_made(main, tmp_path):
    """With the commands themselves, each in its process."""
    assert main("--folder=small") == 0
    kept = tmp_path / "kept" / "small"
    names = {run.name.split("-seed")[0] for run in read_all(kept)[0]}
    assert names == {"tiny-bow-sg-iid", "tiny-bow-sg-ns", "tiny-bow-sg-strat-ns"}
    assert not [*kept.glob("tiny-*")]
    assert not list(kept.rglob("checkpoints"))
    figures = {path.suffix for path in (kept / "figures").glob("targets*")}
    assert figures == {".svg", ".png"}
    steps = json.loads((tmp_path / "runs" / "small" / "steps.json").read_text())
    assert [(command.split()[0], code) for command, code in steps.items()] == [("audit", 0)]
