"""The harness and `make results`: what is measured, kept, measured again, refused and printed."""

import json
import os
import tomllib
from argparse import Namespace

import harness
import make_results as script
import measuring
import pytest
from harness import Benchmark
from support.cli import parse

from ncfbench.errors import CheckFailedError
from ncfbench.reporting.table import Col, Table
from ncfbench.runs.folder import read_all
from ncfbench.sweeps.presets import preset_paths


class Fake(Benchmark):
    """A benchmark with three cells, whose figures are given."""

    name = "fake"
    options = {"factor": (1, "of all"), "place": ("", "a file")}  # noqa: RUF012
    places = ("place",)

    def __init__(self, **figures):
        self.figures, self.asked = figures, []

    def cells(self, options):
        return {"a": Namespace(), "b": Namespace(), "absent": Namespace(dataset="citeulike")}

    def measure(self, name, cell, options):
        self.asked.append(name)
        figure = self.figures.get(name, 1)
        if isinstance(figure, BaseException):
            raise figure
        return {"figure": figure * options.factor}

    def missed(self, cells):
        return [f"{cell['cell']} is large" for cell in cells if cell["figure"] > 10]

    def tables(self, cells, environments):
        return [Table.of("Figures", [Col("cell", "cell"), Col("figure", "figure")], cells)]


@pytest.fixture
def described(monkeypatch):
    environment = {"key": "here", "commit": "one"}
    monkeypatch.setattr(harness.environment, "describe", lambda: environment)
    return environment


@pytest.fixture
def run(described, tmp_path, capsys):
    """Return the exit code of a benchmark, what it says and what it keeps."""

    def run(bench, *words):
        file, code = tmp_path / "deep" / "result.json", 0
        try:
            bench.main(["--data-dir", str(tmp_path), "--json", str(file), *words])
        except SystemExit as error:
            code = error.code
        return code, "".join(capsys.readouterr()), json.loads(file.read_text())

    return run


def test_resume_measures_what_has_changed(run, described, monkeypatch):
    """More rounds, other settings, commit, environment or data, but not another place."""
    bench, opened = Fake(), Namespace(fingerprint="one")
    monkeypatch.setattr(harness, "open_dataset", lambda *_, **__: opened)
    for words, environment, data, count in (
        ("", {}, "one", 1),
        ("--place there", {}, "one", 1),
        ("--rounds 3", {}, "one", 1),
        ("--factor 2", {}, "one", 2),
        ("--rounds 7", {}, "one", 3),
        ("", {"commit": "two"}, "one", 4),
        ("", {"key": "there"}, "one", 5),
        ("", {}, "two", 6),
    ):
        described |= environment
        opened.fingerprint = data
        code, _, kept = run(bench, "--cells", "absent", "--resume", *words.split())
        assert (code, len(bench.asked)) == (0, count), (words, environment, data)
    assert [(cell["cell"], cell["figure"]) for cell in kept["cells"]] == [("absent", 1)]


def test_finished_cells_survive_what_goes_wrong(run, tmp_path):
    """Ctrl-C, a cell that fails, a target that is missed, a data set that is not there, and words
    and files that are wrong; kept cells are shown without measuring.
    """
    again, shown = Fake(b=CheckFailedError("no luck")), Fake()
    for bench, words, code, said in (
        (Fake(a=7, b=KeyboardInterrupt()), ["--cells=a,b"], 130, "Go on with --resume"),
        (again, ["--cells=a,b", "--resume"], 6, "Error: b: no luck"),
        (Fake(b=11), ["--cells=b"], 6, "b is large"),
        (Fake(), ["--cells=absent"], 3, f"'citeulike' is not prepared in {tmp_path}"),
        (Fake(), ["--cells=b,aa*"], 2, "no cell 'aa*'. Valid: a, b, absent"),
        (shown, ["--show"], 6, "Figures"),
    ):
        ended, text, kept = run(bench, *words)
        assert (ended, said in text) == (code, True), text
    assert (again.asked, shown.asked) == (["b"], [])
    assert {cell["cell"]: cell["figure"] for cell in kept["cells"]} == {"a": 7, "b": 11}
    assert kept["environments"] == {"here": {"key": "here", "commit": "one"}}
    (tmp_path / "deep" / "result.json").write_text('{"steps": []}')
    code, text, _ = run(Fake())
    assert (code, "Use another file" in text) == (2, True)


def test_arms_take_turns_in_changing_order():
    calls = []

    def arm(name, seconds):
        return lambda count: calls.append((name, count)) or count * seconds

    speeds = {"slow": 0.5, "quick": 0.001, "other": 0.25}
    taken = measuring.interleaved({name: arm(name, s) for name, s in speeds.items()}, 6, 1.0)
    assert taken == {name: [pytest.approx(s)] * 6 for name, s in speeds.items()}
    rounds = [calls[at : at + 3] for at in range(6, len(calls), 3)]
    assert len({tuple(order) for order in rounds}) > 2
    assert all(dict(order) == {"slow": 2, "quick": 1000, "other": 4} for order in rounds)


def test_processes_apart():
    """One process for all calls, errors that are raised here, and a process that dies."""
    with measuring.process() as ask:
        assert ask(os.getpid) == ask(os.getpid) != os.getpid()
        with pytest.raises(ZeroDivisionError):
            ask(divmod, 1, 0)
        with pytest.raises(CheckFailedError, match="_exit was ended"):
            ask(os._exit, 3)


# --- `make results`: the plan, what is repeated and what is kept


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
