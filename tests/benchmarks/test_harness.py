"""The harness: what is measured, kept, measured again, refused and printed."""

import json
import os
from argparse import Namespace

import harness
import measuring
import pytest
from harness import Benchmark

from ncfbench.errors import CheckFailedError
from ncfbench.reporting.table import Col, Table


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
