"""Folders of runs, their exports and what damaged files leave out; parts of a report, and files."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from support.cli import check, invoke
from support.records import MANIFEST, filled, write_run

import ncfbench
from ncfbench.data.sources import prepare_command
from ncfbench.errors import UsageError
from ncfbench.reporting.results import FILE, collect
from ncfbench.runs.folder import read_all
from ncfbench.storage import schemas, tables


def test_an_export_stands_by_itself(rich, tmp_path):
    target = tmp_path / "kept"
    words = ("report", "--data-dir", tmp_path / "data", "--json", "--runs-dir")
    done = invoke(*words, rich, "--export", target)
    check(done, 0, f"Exported to {target}: 26 runs")
    names = ("runs", "curves", "timings", "blends", "speedup", "recall", "floors")
    files = [*(f"{name}.parquet" for name in names), "datasets.json"]
    assert sorted(path.name for path in target.rglob("*")) == sorted(files), "no checkpoints"
    check(invoke("report", target, "--verify"), 0, "0 do not match")
    before = {path: path.stat().st_mtime_ns for path in target.iterdir()}
    texts = [invoke(*words, target).stdout.replace(str(target), str(rich)), done.stdout]
    after = {path: path.stat().st_mtime_ns for path in target.iterdir()}
    assert after == before, "looking changes nothing"
    copied, original = (re.sub(r"  # [^\"]*", "", text) for text in texts)  # on checkpoints
    assert copied == original


def test_exported_records_are_those_of_the_runs(rich, tmp_path):
    """All values, also from a copy of the copy; a run that is trained there replaces its copy."""

    def values(run):
        """Without the name of the run in each row, nor its folder."""
        kinds = ("curve", "timing", "ledger")
        rows = {kind: [row | {"run": run.name} for row in getattr(run, kind)] for kind in kinds}
        return vars(run) | {"folder": None, "exported": None, "summary": {**run.summary}} | rows

    copy, runs = tmp_path / "copy", read_all(rich)[0]
    assert {run.feature_seconds for run in runs} == {0.0, 3.5}
    for source, target in ((rich, copy), (copy, tmp_path / "second")):
        check(invoke("report", source, "--export", target), 0)
        copies, problems = read_all(target)
        assert problems == []
        assert [*map(values, copies)] == [*map(values, runs)]
    changed = write_run(copy, "ns", [9, 1], 30, seed=1)
    (retrained,) = (run for run in read_all(copy)[0] if run.name == changed.name)
    assert (retrained.folder, len(retrained.curve)) == (changed, 2)
    assert len(read_all(copy)[0]) == len(runs)


@pytest.mark.parametrize("kind", ["run", "curve", "timing"])
def test_damaged_exports_are_named(tmp_path, kind):
    write_run(tmp_path / "runs", "ns", [9, 2], 30)
    tables.write_rows(tmp_path / "runs/audit.parquet", [filled(schemas.AUDIT)], schemas.AUDIT)
    copy = tmp_path / "copy"
    check(invoke("report", tmp_path / "runs", "--export", copy), 0)
    assert (copy / "audit.parquet").exists()
    path = copy / f"{kind}s.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    check(invoke("report", copy), 3, f"Cannot read {path}")
    if kind == "curve":
        path.unlink()
        _, (problem,) = read_all(copy)
        assert "has no row, though the run is finished" in problem


def test_a_folder_that_cannot_be_written_is_printed_and_exported(tmp_path, monkeypatch):
    folder, kept, page = (tmp_path / name for name in ("r", "kept", "page.html"))
    write_run(folder, "iid", [9, 5, 3], 200)
    refused = folder, os.W_OK  # not by its mode, for the superuser may write everywhere
    monkeypatch.setattr(os, "access", lambda path, mode: (Path(path), mode) != refused)
    done = invoke("report", folder, "--export", kept)
    check(done, 0, "Speedup over iid", "is read-only")
    check(invoke("report", folder, "--format", "html", "--output", page), 0)
    assert not list(folder.glob("*.parquet"))
    assert (kept / "speedup.parquet").exists()
    assert page.exists()
    monkeypatch.undo()
    (folder / "recall.parquet").mkdir()
    check(invoke("report", folder), 3, "Speedup over iid", "Cannot write")


def test_a_damaged_run_is_named_and_left_out(tmp_path):
    """Each of its files is cut, missing, or something else."""
    runs = [write_run(tmp_path, sampler, [9, 5, 3], 200) for sampler in ("iid", "ns")]
    for file in sorted(path for path in runs[1].iterdir() if path.name != "ledger.parquet"):
        content = file.read_bytes()
        for damaged in (content[:-20], b"{}", None):
            file.unlink() if damaged is None else file.write_bytes(damaged)
            whole, (problem,) = read_all(tmp_path)
            assert [run.folder for run in whole] == [runs[0]]
            assert problem.startswith(f"Skipped {runs[1].name}")
            assert file.name in problem
        if file.name == "config.json":
            check(invoke("report", tmp_path), 0, f"Skipped {runs[1].name}", "Speedup over iid")
        file.write_bytes(content)


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
        f"{turns.name} is left out: {stopped} the command of its sweep (a race begins anew)",
    ]
    assert results.comparisons


def test_races_below_the_runs_are_named(tmp_path, monkeypatch):
    """Beside the answer about the runs; races of programs deploy nothing."""
    write_run(tmp_path, "iid", [9, 5, 3], 200)
    parts = {
        "floor": {"recall_at_50": 0.556, "recall_at_50_error": 0.008},
        "both": {"recall_at_50": 0.595, "recall_at_50_error": None},
    }
    deployed = {"deploy": {"what": "both", "lines": ["DEPLOY both:"], "parts": parts}}
    deployed |= {"headline": "To train, use it.", "trust": [], "next": [], "folder": "there"}
    answers = {"mine": json.dumps(deployed), "programs": '{"deploy": {}}', "torn": "{"}
    for name, text in answers.items():
        (tmp_path / "advice" / name).mkdir(parents=True)
        (tmp_path / "advice" / name / "answer.json").write_text(text)
    printed = invoke("report", tmp_path)
    check(printed, 0, "mine is a race of its own: DEPLOY both", "Skipped torn:")
    (line,) = (line for line in printed.stdout.splitlines() if line.startswith("mine "))
    assert re.split(r"  +", line) == ["mine", "both", "0.556 ± 0.008", "-", "0.595"]
    race = tmp_path / "advice" / "mine"
    # Its answer is printed again, from JSON where it has no text of its time.
    check(invoke("report", race), 0, "DEPLOY both: To train, use it. Written: there")
    write_run(race, "iid", [9, 5, 3], 200)
    (race / "answer.txt").write_text("As it was.")
    monkeypatch.chdir(race)
    assert invoke("report", ".").stdout == "As it was.\n"
    check(invoke("report", ".", "--full"), 0, "mine is a race of its own")
    os.utime(race / "answer.txt", (0, 0))
    check(invoke("report", "."), 0, "DEPLOY both: To train, use it.")


@pytest.mark.parametrize("text", ["", '{"a": 1}', "null", "another"])
def test_damaged_descriptions_of_data_are_left_out(tmp_path, text):
    write_run(tmp_path, "iid", [9, 5, 3], 200)
    tables.write_json(tmp_path / FILE, {"f" * 64: MANIFEST})
    assert [*collect(tmp_path, tmp_path / "no-data").manifests] == ["f" * 64]
    another = {"f" * 64: MANIFEST | {"fingerprint": "e" * 64}}
    (tmp_path / FILE).write_text(json.dumps(another) if text == "another" else text)
    results = collect(tmp_path, tmp_path / "no-data")
    assert results.manifests == {}
    (problem,) = results.problems
    assert problem.startswith("Skipped datasets.json")


def test_commands_to_prepare_data_again():
    begin = "ncfbench prepare citeulike"
    assert prepare_command("citeulike", MANIFEST) == f"{begin} --text title,tags --max-length 40"
    manifest = MANIFEST | {"options": {"text": [], "max_length": 40, "retired": 3}}
    whole, other = {"verified": True}, {"verified": False}
    named = {"name": "my links.csv", "sha256": "0"}
    for files, ends in (
        ({"a": whole, "b": whole}, ""),
        ({"a": whole, "b": other}, " --from FOLDER --allow-unverified"),
        ({"a": {"sha256": "0"}}, " --from FOLDER"),
        ({"links": named}, " --links 'my links.csv'"),
    ):
        command = prepare_command("citeulike", manifest | {"files": files})
        assert command == f"{begin} --max-length 40{ends}"


# --- parts of a report, and the files that tables go to


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
        rows = json.loads(invoke("report", folder, *words, "--json").stdout)["speedup"]
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
    check(invoke("report", tmp_path, "--table", "recall"), 0)
    check(invoke("report", tmp_path, "--only", "sampler=iid"), 0)
    assert not list(tmp_path.glob("*.parquet"))
    check(invoke("report", tmp_path), 0)
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    assert invoke("report", tmp_path, "--format", "csv").stdout.count("# ") == 2, "no empty frame"
    check(invoke("report", tmp_path, "--figures", tmp_path / "f"), 0, "nothing to compare yet")
    write_run(tmp_path, "ns", [9, 4, 2], 10)
    check(invoke("report", tmp_path, "--figures", tmp_path / "f"), 0)
    kinds = {path.suffix for path in (tmp_path / "f").glob("targets-citeulike-cnn-sg-ffffff.*")}
    assert kinds == {".pdf", ".png", ".svg"}


# Refusals that need no runs are rows of tests/golden/refusals.txt.
REFUSED = [
    ("--format csv --output .", 2, "name a file"),
    ("--only batchsize=128", 2, "did you mean 'batch_size'"),
    ("--only b=100", 2, "No run has batch_size = 100"),
    ("--only sampler=strat_ns", 2, "did you mean 'strat-ns'"),
    ("--only b=many", 2, "whole number"),
    ("--only b=128 --only encoder=lstm", 7, "has all of b=128, encoder=lstm"),
    ("--table speedupp-citeulike-sg", 2, "did you mean 'speedup-citeulike-sg'"),
    ("--profiles nowhere", 2, "No profile in nowhere. Measure one: ncfbench profile"),
    ("--baseline neeg", 2, "No run has the sampler 'neeg'"),
    ("--baseline ns --export out", 2, "leave --baseline out"),
    ("--baseline ns --paper", 2, "leave --baseline out"),
    *(
        (f"--verify {flag}", 2, f"leave {flag.split()[0]} out")
        for flag in ("--only b=128", "--table recall", "--profiles p", "--baseline ns")
    ),
]


@pytest.mark.parametrize(("words", "code", "message"), REFUSED)
def test_what_does_not_go_together_is_refused(folder, words, code, message):
    check(invoke("report", folder, *words.split()), code, message)


def test_the_folder_of_one_run_names_the_one_above(rich, tmp_path):
    (source,) = rich.glob("citeulike-cnn-sg-ns-seed0-*")
    run = shutil.copytree(source, tmp_path / source.name)
    check(invoke("report", run), 7, "the folder of one run", f"ncfbench report {tmp_path}")
    check(invoke("report", tmp_path, "--verify"), 7, "ncfbench report")


def test_tables_by_name(folder):
    names = [table.name for table in ncfbench.report(folder).tables]
    assert len(set(names)) == len(names)
    check(invoke("report", folder, "--table", "nothing"), 2, f"Valid: {', '.join(names)}")
    chosen = invoke(
        "report", folder, "--table", "speedup-citeulike-sg", "--format", "markdown"
    ).stdout
    settings = "b=512, s=4, k=10 (CNN), k=5 (LSTM), seeds 0 to 2"
    assert chosen.startswith(f"### Speedup over iid, SG loss: citeulike, {settings}\n")
    several = invoke("report", folder, "--table", "speedup", "--format", "latex").stdout
    kept = [name for name in names if name.startswith("speedup")]
    assert re.findall(r"label{tab:(.*)}", several) == kept
    assert len(kept) == 3
    frame = invoke("report", folder, "--format", "csv", "--table", "probes").stdout
    assert frame.startswith("run,seconds,")
    frames = "answers, speedup, recall, claims, runs, probes"
    check(invoke("report", folder, "--format", "csv", "--table", "nothing"), 2, f"Valid: {frames}")


def test_details_are_folded_until_they_are_wanted(rich):
    brief = invoke("report", rich).stdout
    titles = ("All arms", "Quality on", "beside the paper's", "The paper's claims")
    assert not [title for title in titles if title in brief]
    words = "Further tables: 3 with details (--full), 3 with the paper's claims and figures"
    assert words in " ".join(brief.split())
    assert invoke("report", rich, "--table", "arms").stdout.startswith("All arms")


def test_a_file_has_all_tables_or_those_named(rich, tmp_path):
    whole, alone = tmp_path / "paper.tex", tmp_path / "new" / "speedup.csv"
    check(invoke("report", rich, "--format", "latex", "--full", "--paper", "--output", whole), 0)
    names = [table.name for table in ncfbench.report(rich).tables]
    assert re.findall(r"label{tab:(.*)}", whole.read_text()) == names
    check(invoke("report", rich, "--format", "csv", "--table", "speedup", "-o", alone), 0)
    assert alone.read_text().startswith("dataset,encoder,loss,")
    below = alone / "below-a-file.csv"
    check(invoke("report", rich, "--format", "csv", "--output", below), 3, "Cannot write")
