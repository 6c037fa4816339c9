"""The harness: what is measured, kept, measured again, refused and printed."""

import json
import os
import sys
from argparse import Namespace
from typing import ClassVar

import harness
import measuring
import pytest
from harness import Benchmark

from ncfbench.errors import CheckFailedError, DataError, UsageError
from ncfbench.reporting.table import Col, Table

DESCRIBED = {"key": "here", "cpu": "a small one", "cores": 2, "packages": {"jax": "0.10"}}


class Fake(Benchmark):
    """Help of the fake."""

    name = "fake"
    options: ClassVar = {"factor": (1, "of all"), "place": ("", "a file")}
    places = ("place",)

    def __init__(self, **found):
        self.found, self.asked = found, list[str]()

    def cells(self, options):
        return {"a": Namespace(), "b": Namespace(), "absent": Namespace(dataset="citeulike")}

    def measure(self, name, cell, options):
        self.asked.append(name)
        figure = self.found.get(name, 1)
        if isinstance(figure, BaseException):
            raise figure
        return {"figure": figure * options.factor}

    def missed(self, cells):
        return [f"{cell['cell']} is large" for cell in cells if cell["figure"] > 10]

    def tables(self, cells, environments):
        columns = [Col("cell", "cell"), Col("figure", "figure")]
        return [Table.of("Figures", columns, cells), "and a line"]


@pytest.fixture(autouse=True)
def described(monkeypatch):
    monkeypatch.setattr(harness.environment, "describe", lambda: DESCRIBED)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "deep" / "result.json"


def run(bench, file, *words):
    """Exit code of the program."""
    try:
        bench.main(["--data-dir", str(file.parents[1]), "--json", str(file), *words])
    except SystemExit as error:
        return int(error.code or 0)
    return 0


def test_resume_measures_what_has_changed(file, monkeypatch):
    """More rounds, other settings, code or environment, but not another place."""
    bench, words = Fake(), ["--cells", "a", "--resume"]
    for more in ([], [], ["--place", "there"], ["--rounds", "3"]):
        assert run(bench, file, *words, *more) == 0
    assert len(bench.asked) == 1
    for more in (["--factor", "2"], ["--rounds", "7"]):
        assert run(bench, file, *words, *more) == 0
    assert len(bench.asked) == 3
    with monkeypatch.context() as patch:
        patch.setattr(harness, "code_fingerprint", lambda benchmark: "other")
        assert run(bench, file, *words) == 0
    monkeypatch.setattr(harness.environment, "describe", lambda: DESCRIBED | {"key": "there"})
    assert run(bench, file, *words) == 0
    assert len(bench.asked) == 5
    cells = json.loads(file.read_text())["cells"]
    assert [(cell["cell"], cell["figure"]) for cell in cells] == [("a", 1)]


def test_other_data_are_measured_again(file, monkeypatch):
    bench, words = Fake(), ["--cells", "absent", "--resume"]
    for fingerprint, count in (("one", 1), ("one", 1), ("two", 2)):
        monkeypatch.setattr(harness, "prepared", lambda *rest, found=fingerprint: found)
        assert run(bench, file, *words) == 0
        assert len(bench.asked) == count


def test_finished_cells_survive_what_goes_wrong(file, capsys):
    """Ctrl-C, a cell that fails, a target that is missed, and a data set that is not there."""
    assert run(Fake(b=KeyboardInterrupt()), file, "--cells", "a,b") == 130
    captured = capsys.readouterr()
    assert "and a line" in captured.out
    assert "Go on with --resume" in captured.err
    bench = Fake(b=CheckFailedError("no luck"))
    assert run(bench, file, "--cells", "a,b", "--resume") == CheckFailedError.exit_code
    assert bench.asked == ["b"]
    assert "Error: b: no luck" in capsys.readouterr().err
    assert run(Fake(b=11), file, "--cells", "b") == CheckFailedError.exit_code
    assert "b is large" in capsys.readouterr().err
    assert run(Fake(), file) == DataError.exit_code
    messages = capsys.readouterr().err
    assert "absent: no data set citeulike in" in messages
    assert "ncfbench prepare citeulike --text title,tags" in messages
    assert f"--data-dir={file.parents[1]}" in messages
    result = json.loads(file.read_text())
    assert [cell["cell"] for cell in result["cells"]] == ["a", "b"]
    assert result["environments"] == {"here": DESCRIBED}


def test_kept_cells_are_shown_without_measuring(file, capsys):
    assert run(Fake(a=7), file, "--cells", "a") == 0
    capsys.readouterr()
    bench = Fake()
    assert run(bench, file, "--show") == 0
    assert capsys.readouterr().out.splitlines()[3].split() == ["a", "7"]
    assert not bench.asked


def test_wrong_words_and_files_are_refused(file, capsys):
    assert run(Fake(), file, "--cells", "a,aa*") == UsageError.exit_code
    assert "no cell 'aa*'. Valid: a, b, absent" in capsys.readouterr().err
    file.parent.mkdir()
    file.write_text('{"steps": []}')
    assert run(Fake(), file) == UsageError.exit_code
    assert "Use another file" in capsys.readouterr().err


def test_arms_take_turns_in_changing_order():
    calls: list[tuple[str, int]] = []

    def arm(name, seconds):
        return lambda count: calls.append((name, count)) or count * seconds  # type: ignore[func-returns-value]

    speeds = {"slow": 0.5, "quick": 0.001, "other": 0.25}
    found = measuring.interleaved({name: arm(name, s) for name, s in speeds.items()}, 6, 1.0)
    assert found == {name: [pytest.approx(s)] * 6 for name, s in speeds.items()}
    rounds = [calls[at : at + 3] for at in range(6, len(calls), 3)]
    assert len({tuple(each) for each in rounds}) > 2
    for each in rounds:
        assert dict(each) == {"slow": 2, "quick": 1000, "other": 4}


def test_processes_apart(tmp_path):
    """One process for all calls, errors that are raised here, and a process that dies."""
    with measuring.process() as ask:
        assert ask(os.getpid) == ask(os.getpid) != os.getpid()
        with pytest.raises(ZeroDivisionError):
            ask(divmod, 1, 0)
    with pytest.raises(CheckFailedError, match="_exit was ended"), measuring.process() as ask:
        ask(os._exit, 3)


def test_a_program_is_run_to_its_end():
    code = "import os, sys; print(os.environ['WORD']); sys.exit(3)"
    done = measuring.command([sys.executable, "-c", code], variables={"WORD": "here"})
    assert (done.exit_code, done.output) == (3, "here\n")
