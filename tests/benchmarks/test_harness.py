"""The harness: what is measured, kept, measured again, refused and printed."""

import json
import os
from argparse import Namespace

import harness
import measuring
import pytest
from harness import Benchmark

from ncfbench.errors import CheckFailedError, DataError, UsageError
from ncfbench.reporting.table import Col, Table

DESCRIBED = {"key": "here", "cpu": "a small one", "commit": "one", "packages": {"jax": "0.10"}}


class Fake(Benchmark):
    """Help of the fake."""

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
        columns = [Col("cell", "cell"), Col("figure", "figure")]
        return [Table.of("Figures", columns, cells), "and a line"]


@pytest.fixture
def described(monkeypatch):
    described = dict(DESCRIBED)
    monkeypatch.setattr(harness.environment, "describe", lambda: described)
    return described


@pytest.fixture
def run(described, tmp_path):
    """Return the exit code of a benchmark."""

    def run(bench, *words):
        file = tmp_path / "deep" / "result.json"
        try:
            bench.main(["--data-dir", str(tmp_path), "--json", str(file), *words])
        except SystemExit as error:
            return int(error.code or 0)
        return 0

    return run


def kept(tmp_path):
    return json.loads((tmp_path / "deep" / "result.json").read_text())


def test_resume_measures_what_has_changed(run, described, tmp_path, monkeypatch):
    """More rounds, other settings, commit, environment or data, but not another place."""
    bench, words = Fake(), ["--cells", "absent", "--resume"]
    opened = Namespace(fingerprint="one")
    monkeypatch.setattr(harness, "open_dataset", lambda *_, **__: opened)
    changes = (
        ([], {}, 1),
        ([], {}, 1),
        (["--place", "there"], {}, 1),
        (["--rounds", "3"], {}, 1),
        (["--factor", "2"], {}, 2),
        (["--rounds", "7"], {}, 3),
        ([], {"commit": "two"}, 4),
        ([], {"key": "there"}, 5),
    )
    for more, change, count in changes:
        described |= change
        assert run(bench, *words, *more) == 0
        assert len(bench.asked) == count, (more, change)
    opened.fingerprint = "two"
    assert run(bench, *words) == 0
    assert len(bench.asked) == 6
    assert [(cell["cell"], cell["figure"]) for cell in kept(tmp_path)["cells"]] == [("absent", 1)]


def test_finished_cells_survive_what_goes_wrong(run, tmp_path, capsys):
    """Ctrl-C, a cell that fails, a target that is missed, and a data set that is not there."""
    assert run(Fake(b=KeyboardInterrupt()), "--cells", "a,b") == 130
    captured = capsys.readouterr()
    assert "and a line" in captured.out
    assert "Go on with --resume" in captured.err
    bench = Fake(b=CheckFailedError("no luck"))
    assert run(bench, "--cells", "a,b", "--resume") == CheckFailedError.exit_code
    assert bench.asked == ["b"]
    assert "Error: b: no luck" in capsys.readouterr().err
    assert run(Fake(b=11), "--cells", "b") == CheckFailedError.exit_code
    assert "b is large" in capsys.readouterr().err
    assert run(Fake(), "--cells", "a,absent") == DataError.exit_code
    assert f"absent: Data set 'citeulike' is not prepared in {tmp_path}" in capsys.readouterr().err
    result = kept(tmp_path)
    assert [cell["cell"] for cell in result["cells"]] == ["a", "b"]
    assert result["environments"] == {"here": DESCRIBED}


def test_kept_cells_are_shown_without_measuring(run, capsys):
    assert run(Fake(a=7), "--cells", "a") == 0
    capsys.readouterr()
    bench = Fake()
    assert run(bench, "--show") == 0
    assert capsys.readouterr().out.splitlines()[3].split() == ["a", "7"]
    assert not bench.asked


def test_wrong_words_and_files_are_refused(run, tmp_path, capsys):
    assert run(Fake(), "--cells", "a,aa*") == UsageError.exit_code
    assert "no cell 'aa*'. Valid: a, b, absent" in capsys.readouterr().err
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "result.json").write_text('{"steps": []}')
    assert run(Fake()) == UsageError.exit_code
    assert "Use another file" in capsys.readouterr().err


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
