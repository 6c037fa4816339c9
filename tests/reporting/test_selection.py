"""Selection: runs by settings, tables and figures by name, and the files that they go to."""

import json
import re
from typing import Any

import pytest
from support.cli import check, invoke
from support.records import write_folder, write_run

import ncfbench
from ncfbench.errors import UsageError


def report(*words):
    return invoke("report", *words)


def document(*words):
    result = report(*words, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three seeds at b=512, one at b=128 with several k, and an LSTM, whose k is another."""
    made = write_folder(tmp_path_factory.mktemp("runs"))
    for sampler, k in (("iid", 10), ("iid", 20), ("ns", 10)):
        write_run(made, sampler, [9, 5, 3], 20, [0, 0.3, 0.4], batch_size=128, negatives=k)
    for sampler in ("iid", "ns"):
        write_run(made, sampler, [9, 5, 3], 20, [0, 0.3, 0.4], encoder="lstm")
    return made


def arms(*words):
    rows = document(*words)["speedup"]
    return {(row["encoder"], row["settings"], row["sampler"], row["variant"]) for row in rows}


def test_only_keeps_runs_with_the_values(folder):
    cell = ("cnn", "batch_size=128")
    found = arms(folder, "--only", "b=128", "--only", "rate=0.01", "--only", "sampler=iid,ns")
    assert found == {(*cell, "iid", ""), (*cell, "iid", "k=20"), (*cell, "ns", "")}
    # ns has no k: it stays beside iid of one k, but not where no run has that k.
    found = arms(folder, "--only", "k=20")
    assert found == {(*cell, "iid", "k=20"), (*cell, "ns", "")}
    rows = document(folder, "--only", "seed=1")["speedup"]
    assert {row["seeds"] for row in rows} == {1}


def test_only_leaves_the_written_tables_alone(folder):
    check(report(folder, "--json"), 0)
    before = (folder / "speedup.parquet").read_bytes()
    assert "Written" not in report(folder, "--only", "sampler=iid").output
    assert (folder / "speedup.parquet").read_bytes() == before
    check(report(folder, "--verify"), 0)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--only", "smapler=iid"], 2, "did you mean 'sampler'"),
        (["--only", "sampler=strat-nss"], 2, "did you mean 'strat-ns'"),
        (["--only", "b=many"], 2, "not a whole number"),
        (["--only", "sampler"], 2, "KEY=VALUE"),
        (["--only", "b=128", "--only", "encoder=lstm"], 7, "has all of b=128, encoder=lstm"),
        (["--only", "b=128", "--verify"], 2, "leave --only out"),
        (["--table", "speedupp-citeulike-sg"], 2, "did you mean 'speedup-citeulike-sg'"),
        (["--table", "recall", "--verify"], 2, "leave --table out"),
        (["--profiles", "nowhere"], 2, "No profile in nowhere. Measure one: ncfbench profile"),
        (["--profiles", "p", "--verify"], 2, "leave --profiles out"),
    ],
)
def test_what_cannot_be_selected(folder, words, code, message):
    check(report(folder, *words), code, message)


def test_tables_by_name(folder):
    names = [table.name for table in ncfbench.report(folder).tables]
    assert len(set(names)) == len(names)
    check(report(folder, "--table", "nothing"), 2, f"Valid: {', '.join(names)}")
    chosen = report(folder, "--table", "speedup-citeulike-sg", "--format", "markdown").stdout
    settings = "b=512, s=4, k=10 (CNN), k=5 (LSTM), seeds 0 to 2"
    assert chosen.startswith(f"### Speedup over iid, SG loss: citeulike, {settings}\n")
    several = report(folder, "--table", "speedup", "--format", "latex").stdout
    assert re.findall(r"label{tab:(.*)}", several) == [
        "speedup-citeulike-sg-batch-size-128",
        "speedup-citeulike-sg",
    ]
    csv = report(folder, "--format", "csv", "--table", "recall").stdout
    assert csv.startswith("dataset,encoder,loss,sampler,")
    assert report(folder, "--format", "csv", "--table", "probes").stdout.startswith("run,seconds,")
    frames = "answers, speedup, recall, claims, runs, probes"
    check(report(folder, "--format", "csv", "--table", "nothing"), 2, f"Valid: {frames}")


def test_a_file_has_all_tables_or_those_named(folder, tmp_path):
    whole, alone = tmp_path / "paper.tex", tmp_path / "new" / "speedup.csv"
    check(report(folder, "--format", "latex", "--full", "--paper", "--output", whole), 0)
    text, names = whole.read_text(), [table.name for table in ncfbench.report(folder).tables]
    assert re.findall(r"label{tab:(.*)}", text) == names
    assert text.count(r"\begin{table}") == len(names)
    assert text.startswith(r"% Needs \usepackage{booktabs}.")
    check(report(folder, "--format", "csv", "--table", "speedup", "-o", alone), 0)
    assert alone.read_text().startswith("dataset,encoder,loss,")
    for kind in ("csv", "json", "html"):
        check(report(folder, "--format", kind, "--output", tmp_path), 2, "name a file")


@pytest.mark.long
def test_figures_of_each_kind(folder, tmp_path):
    check(report(folder, "--only", "b=128", "--figures", tmp_path / "f", "--json"), 0)
    name = "targets-citeulike-cnn-sg-ffffff-batch-size-128"
    begins = {"pdf": b"%PDF", "png": b"\x89PNG", "svg": b"<?xml"}
    for kind, first in begins.items():
        assert (tmp_path / "f" / f"{name}.{kind}").read_bytes().startswith(first)


def test_a_run_alone_has_no_figure(tmp_path):
    write_run(tmp_path, "iid", [9, 5, 3], 10)
    assert report(tmp_path, "--format", "csv").stdout.count("# ") == 2, "no empty frame"
    check(report(tmp_path, "--figures", tmp_path / "f"), 0, "nothing to compare yet")


def test_a_part_of_a_report_writes_nothing(tmp_path):
    write_run(tmp_path, "iid", [9, 5, 3], 10)
    check(report(tmp_path, "--table", "recall"), 0)
    assert not list(tmp_path.glob("*.parquet"))
    check(report(tmp_path), 0)
    assert len(list(tmp_path.glob("*.parquet"))) == 2


def test_from_python(folder):
    results = ncfbench.report(folder, only={"batch_size": [128], "sampler": ["iid", "ns"]})
    assert {row["settings"] for row in results.speedup} == {"batch_size=128"}
    with pytest.raises(UsageError, match="did you mean"):
        ncfbench.report(folder, only={"batchsize": [128]})
