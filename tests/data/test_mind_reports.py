"""MIND in commands and reports: what it stands in for, and the real sample."""

import pytest
from folders import write_run
from invoked import check, invoke
from mind_files import prepare, write

from ncfbench.data import prepare as prepare_data
from ncfbench.data.sources import mind, prepare_command
from ncfbench.data.sources.mind import Options
from ncfbench.reporting.results import FILE, collect
from ncfbench.storage import tables


def test_the_command_says_what_it_stands_in_for(tmp_path):
    words = ["--data-dir", str(tmp_path / "d")]
    needed = ("licence", "https://msnews.github.io", "--from FOLDER")
    check(invoke("prepare", "mind", *words), 2, *needed)
    source = write(tmp_path / "source")
    result = invoke("prepare", "mind", "--from", source, *words)
    check(result, 0, f"{mind.LABEL}.")


def test_reports_know_it_is_not_the_papers_data(tmp_path):
    source, runs = write(tmp_path / "source"), tmp_path / "r"
    manifest, _ = prepare(source, tmp_path / "d")
    for sampler in ("iid", "ns"):
        write_run(runs, sampler, [9, 5, 3], 200, fingerprint=manifest["fingerprint"])
    tables.write_json(runs / FILE, {manifest["fingerprint"]: manifest})
    assert collect(runs, tmp_path / "d").beside_paper == []
    shares = "test_fraction=0.0, validation_fraction=0.0"
    command = f"prepare mind --name citeulike --from FOLDER  # from Python, with {shares}"
    assert command in prepare_command("citeulike", manifest)


@pytest.mark.real
def test_the_real_sample(shared_data, tmp_path):
    said: list[str] = []
    options = Options(from_=shared_data / "mind-sample")
    clicks = prepare_data("mind", options, tmp_path, say=said.append)["statistics"]
    # Counted from the two files with a dozen lines of plain Python.
    assert [clicks[name] for name in ("users", "items", "links")] == [166, 59, 175]
