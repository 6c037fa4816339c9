"""Selection: runs by settings, tables and figures by name, and the files that they go to."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from folders import write_folder, write_profile, write_run
from typer.testing import CliRunner, Result

import ncfbench
from ncfbench.cli import app
from ncfbench.errors import UsageError
from ncfbench.reporting.selection import choose, parse_only, unique
from ncfbench.reporting.table import Table, slug
from ncfbench.storage import schemas, tables


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, words)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds at b=512, one at b=128 with several k, and an LSTM, whose k is another."""
    made = write_folder(tmp_path_factory.mktemp("runs"))
    for sampler, k in (("iid", 10), ("iid", 20), ("ns", 10)):
        write_run(made, sampler, [9, 5, 3], 20, [0, 0.3, 0.4], batch_size=128, negatives=k)
    for sampler in ("iid", "ns"):
        write_run(made, sampler, [9, 5, 3], 20, [0, 0.3, 0.4], encoder="lstm")
    return made


def arms(result: Result) -> set[tuple[str, str, str, str]]:
    assert result.exit_code == 0, result.output
    return {
        (row["encoder"], row["settings"], row["sampler"], row["variant"])
        for row in json.loads(result.stdout)["speedup"]
    }


def test_only_keeps_runs_with_the_values(folder: Path) -> None:
    found = arms(
        invoke(
            folder, "--json", "--only", "b=128", "--only", "rate=0.01", "--only", "sampler=iid,ns"
        )
    )
    settings = "batch_size=128"
    assert found == {
        ("cnn", settings, "iid", ""),
        ("cnn", settings, "iid", "k=20"),
        ("cnn", settings, "ns", ""),
    }
    rows = json.loads(invoke(folder, "--json", "--only", "seed=1").stdout)["speedup"]
    assert {row["seeds"] for row in rows} == {1}


def test_runs_that_do_not_use_a_setting_stay(folder: Path) -> None:
    """N.S. has no k: it stays beside IID of one k, but not where no run has that k."""
    cell = ("cnn", "batch_size=128")
    found = arms(invoke(folder, "--json", "--only", "k=20"))
    assert found == {(*cell, "iid", "k=20"), (*cell, "ns", "")}


def test_only_leaves_the_written_tables_alone(folder: Path) -> None:
    assert invoke(folder, "--json").exit_code == 0
    before = (folder / "speedup.parquet").read_bytes()
    result = invoke(folder, "--only", "sampler=iid")
    assert "Written" not in result.output
    assert (folder / "speedup.parquet").read_bytes() == before
    assert invoke(folder, "--verify").exit_code == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--only", "smapler=iid"], 2, "did you mean 'sampler'"),
        (["--only", "sampler=strat-nss"], 2, "did you mean 'strat-ns'"),
        (["--only", "b=many"], 2, "not a whole number"),
        (["--only", "sampler"], 2, "KEY=VALUE"),
        (["--only", "b=128", "--only", "encoder=lstm"], 7, "has all of b=128, encoder=lstm"),
        (["--only", "b=128", "--verify"], 2, "leave --only out"),
        (["--table", "speedupp-sg"], 2, "did you mean 'speedup-sg'"),
        (["--table", "recall", "--verify"], 2, "leave --format, --table"),
        (["--figure", "convergence"], 2, "--figures DIR or --output"),
        (["--figures-format", "pdf"], 2, "goes with --figures"),
        (["--profiles", "nowhere"], 2, "No profile in nowhere"),
        (["--profiles", "p", "--export", "e"], 2, "leave --profiles out"),
        (["--profiles", "p", "--verify"], 2, "and --profiles out"),
    ],
)
def test_what_cannot_be_selected(folder: Path, words: list[str], code: int, message: str) -> None:
    result = invoke(folder, *words)
    assert result.exit_code == code, result.output
    assert message in " ".join(result.output.split())


def test_tables_by_name(folder: Path) -> None:
    listed = invoke(folder, "--table", "list").stdout
    names = [line.split()[0] for line in listed.splitlines() if re.match("[a-z]+(-| )", line)]
    tables = json.loads(invoke(folder, "--json").stdout)["tables"]
    assert {table["name"] for table in tables} <= set(names)
    assert len({table["name"] for table in tables}) == len(tables)
    (chosen,) = json.loads(invoke(folder, "--json", "--table", "speedup-sg").stdout)["tables"]
    assert (
        chosen["title"]
        == "Speedup over IID, SG loss: b=512, s=4, k=10 (CNN), k=5 (LSTM), seeds 0 to 2"
    )
    several = json.loads(invoke(folder, "--json", "--table", "speedup").stdout)["tables"]
    assert [table["name"] for table in several] == ["speedup-sg-batch-size-128", "speedup-sg"]
    csv = invoke(folder, "--format", "csv", "--table", "recall").stdout
    assert "encoder,sampler,citeulike: SG\n" in csv


def test_profiles_of_another_folder_take_the_place_of_those_beside_the_runs(
    folder: Path, tmp_path: Path
) -> None:
    """The runs' own folder has no profile, or another one."""
    pytest.importorskip("matplotlib")
    (tmp_path / "quick").mkdir()
    write_profile(tmp_path / "quick")
    both = shutil.copytree(folder, tmp_path / "both")
    write_profile(both)
    rows = tables.read_rows(both / "costmodel.parquet", schemas.COSTMODEL)
    others = [row | {"dataset": "another"} for row in rows]
    tables.write_rows(both / "costmodel.parquet", others, schemas.COSTMODEL)
    names = ("epoch-time-citeulike-sg", "epoch-time-another-sg")
    for where, profiles, expected in (
        (folder, tmp_path / "quick", (0, 2)),
        (both, tmp_path / "quick", (0, 2)),
        (both, None, (2, 0)),
        (folder, None, (2, 2)),
    ):
        words = ["--profiles", profiles] if profiles else []
        drawn = [
            invoke(where, *words, "--figure", name, "--output", tmp_path / f"{name}.svg")
            for name in names
        ]
        assert tuple(each.exit_code for each in drawn) == expected


def test_a_folder_gets_a_file_for_each_table(folder: Path, tmp_path: Path) -> None:
    result = invoke(
        folder, "--format", "latex", "--full", "--paper", "--output", tmp_path / "paper"
    )
    assert result.exit_code == 0, result.output
    names = [table["name"] for table in json.loads(invoke(folder, "--json").stdout)["tables"]]
    files = {path.stem: path.read_text() for path in (tmp_path / "paper").glob("*.tex")}
    assert set(files) == set(names)
    for name, text in files.items():
        assert text.count(r"\begin{table}") == text.count(rf"\label{{tab:{name}}}") == 1
        assert text.startswith(r"% Needs \usepackage{booktabs}.")
    (tmp_path / "there").mkdir()
    assert invoke(folder, "--format", "csv", "-o", tmp_path / "there").exit_code == 0
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["results.csv"]
    refused = invoke(folder, "--format", "json", "--output", tmp_path / "there")
    assert (refused.exit_code, "name a file" in refused.output) == (2, True)


def test_figures_by_name_and_kind(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    wanted = ("--only", "b=128", "--figures", tmp_path / "f", "--json")
    assert (
        invoke(folder, *wanted, "--figures-format", "pdf", "--figure", "convergence").exit_code == 0
    )
    names = [path.name for path in (tmp_path / "f").iterdir()]
    assert names == ["convergence-citeulike-cnn-sg-ffffff-batch-size-128.pdf"]
    assert (tmp_path / "f" / names[0]).read_bytes().startswith(b"%PDF")
    file = tmp_path / "one.png"
    result = invoke(folder, "--only", "b=128", "--figure", "targets", "--output", file)
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    assert file.read_bytes().startswith(b"\x89PNG")
    for words, message in (
        (["--figure", "convergence", "-o", tmp_path / "x.png"], "holds one figure, but"),
        (["--figure", "targets-x", "-o", tmp_path / "x.png"], "--figure list"),
        (["--figure", "targets", "-o", tmp_path / "x.gif"], "Unknown kind of figure 'gif'"),
        (["--figures", tmp_path, "--figures-format", "pfd"], "did you mean 'pdf'"),
    ):
        refused = invoke(folder, *words)
        assert refused.exit_code == 2, refused.output
        assert message in " ".join(refused.output.split())
    listed = invoke(folder, "--only", "encoder=lstm", "--figure", "list").stdout
    assert "convergence-citeulike-lstm-sg-ffffff" in listed


def test_lists_are_in_the_format(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of figures, without drawing one."""
    monkeypatch.setattr("ncfbench.reporting.figures.drawing.new_figure", None)
    for what in ("--table", "--figure"):
        found = json.loads(invoke(folder, what, "list", "--json").stdout)
        assert all(row["name"] for row in found)
        assert invoke(folder, what, "list", "--format", "csv").stdout.startswith("name")


def test_a_part_of_a_report_writes_nothing(tmp_path: Path) -> None:
    write_run(tmp_path, "iid", [9, 5, 3], 10)
    for words in (["--table", "recall"], ["--table", "list"], ["--figure", "list"]):
        assert invoke(tmp_path, *words).exit_code == 0
        assert not list(tmp_path.glob("*.parquet"))
    assert invoke(tmp_path).exit_code == 0
    assert len(list(tmp_path.glob("*.parquet"))) == 2


def test_from_python(folder: Path) -> None:
    results = ncfbench.report(folder, only={"batch_size": [128], "sampler": ["iid", "ns"]})
    assert {row["settings"] for row in results.speedup} == {"batch_size=128"}
    with pytest.raises(UsageError, match="did you mean"):
        ncfbench.report(folder, only={"batchsize": [128]})


def test_names_and_values() -> None:
    assert parse_only(["b=1,2", "b=3", "noise=0.75"]) == {"b": ["1", "2", "3"], "noise": ["0.75"]}
    assert slug("Speedup", "log", "epochs=8, noise=0.75") == "speedup-log-epochs-8-noise-0.75"
    assert choose(["a", "a-b", "ab"], ["a"], "table") == ["a"]
    assert choose(["a-c", "a-b", "ab"], ["a"], "table") == ["a-c", "a-b"]
    tables = [Table("T", ["x"], [], name="t") for _ in range(3)]
    assert [table.name for table in unique(tables)] == ["t", "t-2", "t-3"]
