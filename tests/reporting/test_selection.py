"""Selection: runs by settings, tables by name, what is refused, and the files that tables go to."""

import json
import re
import shutil

import pytest
from support.cli import check, invoke
from support.records import write_run

import ncfbench
from ncfbench.errors import UsageError


def report(*words):
    return invoke("report", *words)


@pytest.fixture(scope="module")
def folder(rich, tmp_path_factory):
    """Three seeds at b=512, one at b=128 with several k, and an LSTM, whose k is another."""
    copied = shutil.copytree(rich, tmp_path_factory.mktemp("runs") / "all")
    for sampler, k in (("iid", 10), ("iid", 20), ("ns", 10)):
        write_run(copied, sampler, [9, 5, 3], 20, [0, 0.3, 0.4], batch_size=128, negatives=k)
    for sampler in ("iid", "ns"):
        write_run(copied, sampler, [9, 5, 3], 20, [0, 0.3, 0.4], encoder="lstm")
    return copied


def test_only_keeps_runs_with_the_values(folder):
    def arms(*words):
        names = ("encoder", "settings", "sampler", "variant")
        rows = json.loads(report(folder, *words, "--json").stdout)["speedup"]
        return {tuple(row[name] for name in names) for row in rows}

    cell = ("cnn", "batch_size=128")
    shown = arms("--only", "b=128", "--only", "rate=0.01", "--only", "sampler=iid,ns")
    assert shown == {(*cell, "iid", ""), (*cell, "iid", "k=20"), (*cell, "ns", "")}
    # ns has no k: it stays beside iid of one k, but not where no run has that k.
    shown = arms("--only", "k=20", "--only", "encoder=cnn")
    assert shown == {(*cell, "iid", "k=20"), (*cell, "ns", "")}
    results = ncfbench.report(folder, only={"seed": [1], "sampler": ["iid", "ns"]})
    assert {row["seeds"] for row in results.speedup} == {1}
    with pytest.raises(UsageError, match="did you mean"):
        ncfbench.report(folder, only={"batchsize": [128]})


def test_a_part_of_a_report_writes_nothing(tmp_path):
    write_run(tmp_path, "iid", [9, 5, 3], 10)
    check(report(tmp_path, "--table", "recall"), 0)
    check(report(tmp_path, "--only", "sampler=iid"), 0)
    assert not list(tmp_path.glob("*.parquet"))
    check(report(tmp_path), 0)
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    assert report(tmp_path, "--format", "csv").stdout.count("# ") == 2, "no empty frame"
    check(report(tmp_path, "--figures", tmp_path / "f"), 0, "nothing to compare yet")
    write_run(tmp_path, "ns", [9, 4, 2], 10)
    check(report(tmp_path, "--figures", tmp_path / "f"), 0)
    kinds = {path.suffix for path in (tmp_path / "f").glob("targets-citeulike-cnn-sg-ffffff.*")}
    assert kinds == {".pdf", ".png", ".svg"}


REFUSED = [
    ("--format htlm", 2, "did you mean 'html'"),
    ("--format md", 2, "did you mean 'markdown'"),
    ("--json --format csv", 2, "does not go with"),
    ("--runs-dir RUNS", 2, "once"),
    ("--output x", 2, "> FILE"),
    ("--format csv --output .", 2, "name a file"),
    ("--json --table recall", 2, "leave --table out"),
    ("--only batchsize=128", 2, "did you mean 'batch_size'"),
    ("--only b=100", 2, "No run has batch_size = 100"),
    ("--only sampler=strat_ns", 2, "did you mean 'strat-ns'"),
    ("--only b=many", 2, "whole number"),
    ("--only sampler", 2, "such as sampler=iid,ns"),
    ("--only b=128 --only encoder=lstm", 7, "has all of b=128, encoder=lstm"),
    ("--table speedupp-citeulike-sg", 2, "did you mean 'speedup-citeulike-sg'"),
    ("--profiles nowhere", 2, "No profile in nowhere. Measure one: ncfbench profile"),
    ("--baseline neeg", 2, "No run has the sampler 'neeg'"),
    ("--baseline ns --export out", 2, "leave --baseline out"),
    ("--baseline ns --paper", 2, "leave --baseline out"),
    *(
        (f"--verify {flag}", 2, f"leave {flag.split()[0]} out")
        for flag in ("--format html", "--only b=128", "--table recall", "--profiles p")
    ),
    ("--verify --baseline ns", 2, "leave --baseline out"),
]


@pytest.mark.parametrize(("words", "code", "message"), REFUSED)
def test_what_does_not_go_together_is_refused(folder, words, code, message):
    check(report(folder, *words.replace("RUNS", str(folder)).split()), code, message)


def test_what_there_is_nothing_of(rich, tmp_path):
    check(report(tmp_path), 7, "No finished run", "ncfbench sweep smoke")
    check(report(tmp_path / "absent"), 2, "absent is no folder.")
    (source,) = rich.glob("citeulike-cnn-sg-ns-seed0-*")
    run = shutil.copytree(source, tmp_path / source.name)
    check(report(run), 7, "the folder of one run", f"ncfbench report {tmp_path}")
    check(report(tmp_path, "--verify"), 7, "ncfbench report")


def test_tables_by_name(folder):
    names = [table.name for table in ncfbench.report(folder).tables]
    assert len(set(names)) == len(names)
    check(report(folder, "--table", "nothing"), 2, f"Valid: {', '.join(names)}")
    chosen = report(folder, "--table", "speedup-citeulike-sg", "--format", "markdown").stdout
    settings = "b=512, s=4, k=10 (CNN), k=5 (LSTM), seeds 0 to 2"
    assert chosen.startswith(f"### Speedup over iid, SG loss: citeulike, {settings}\n")
    several = report(folder, "--table", "speedup", "--format", "latex").stdout
    kept = [name for name in names if name.startswith("speedup")]
    assert re.findall(r"label{tab:(.*)}", several) == kept
    assert len(kept) == 3
    frame = report(folder, "--format", "csv", "--table", "probes").stdout
    assert frame.startswith("run,seconds,")
    frames = "answers, speedup, recall, claims, runs, probes"
    check(report(folder, "--format", "csv", "--table", "nothing"), 2, f"Valid: {frames}")


def test_details_are_folded_until_they_are_wanted(rich):
    brief = report(rich).stdout
    titles = ("All arms", "Quality on", "beside the paper's", "The paper's claims")
    assert not [title for title in titles if title in brief]
    words = "Further tables: 3 with details (--full), 3 with the paper's claims and figures"
    assert words in " ".join(brief.split())
    assert report(rich, "--table", "arms").stdout.startswith("All arms")


def test_a_file_has_all_tables_or_those_named(rich, tmp_path):
    whole, alone = tmp_path / "paper.tex", tmp_path / "new" / "speedup.csv"
    check(report(rich, "--format", "latex", "--full", "--paper", "--output", whole), 0)
    names = [table.name for table in ncfbench.report(rich).tables]
    assert re.findall(r"label{tab:(.*)}", whole.read_text()) == names
    check(report(rich, "--format", "csv", "--table", "speedup", "-o", alone), 0)
    assert alone.read_text().startswith("dataset,encoder,loss,")
    below = alone / "below-a-file.csv"
    check(report(rich, "--format", "csv", "--output", below), 3, "Cannot write")
