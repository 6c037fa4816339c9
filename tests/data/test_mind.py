"""MIND on made-up files in the published format, in commands and reports, and on a real sample."""

import random

import pytest
from support.cli import check, invoke
from support.records import write_run
from support.tables import (
    BEHAVIORS,
    NEWS,
    ids_of,
    mind_files,
    named_links,
    prepare_mind,
    words_of,
    write_files,
)

from ncfbench.data import prepare, store
from ncfbench.data.sources import mind, prepare_command
from ncfbench.reporting.results import FILE, collect
from ncfbench.storage import tables


@pytest.fixture
def source(tmp_path):
    return write_files(tmp_path / "source", mind_files())


def test_clicks_by_hand(source, tmp_path):
    manifest, said = prepare_mind(source, tmp_path / "d")
    data = store.load(tmp_path / "d", "mind")
    texts = {id_: " ".join(words) for id_, words in words_of(data).items()}
    assert ids_of(data.user_ids) == ["U3", "U20"], "by number"
    assert ids_of(data.item_ids) == ["N2", "N10"]
    assert named_links(data) == [("U20", "N10"), ("U3", "N10"), ("U3", "N2")]
    assert texts == {"N2": "red fish", "N10": "the old dog an old dog at 10 30"}
    assert manifest["removed"] == {"duplicate_links": 1, "links_to_unknown_news": 1}
    assert "dropped 1 clicks" in said[0]
    assert "2 of 4 news" in said[1]
    assert "at most 1 such" in said[2]


def test_the_order_of_lines_changes_nothing(source, tmp_path):
    before, _ = prepare_mind(source, tmp_path / "d")
    for seed in range(5):
        shuffle = random.Random(seed).sample
        lines = (shuffle(rows, len(rows)) for rows in (NEWS, BEHAVIORS))
        shuffled = write_files(tmp_path / str(seed), mind_files(*lines))
        after, _ = prepare_mind(shuffled, tmp_path / f"d{seed}")
        assert after["fingerprint"] == before["fingerprint"]


def test_the_command_says_what_it_stands_in_for(source, tmp_path):
    words = ["prepare", "mind", "--data-dir", tmp_path / "d"]
    check(invoke(*words), 2, "licence", "https://msnews.github.io", "--from FOLDER")
    check(invoke(*words, "--from", source), 0, f"{mind.LABEL}.")


def test_reports_know_it_is_not_the_papers_data(source, tmp_path):
    runs = tmp_path / "r"
    manifest, _ = prepare_mind(source, tmp_path / "d")
    for sampler in ("iid", "ns"):
        write_run(runs, sampler, [9, 5, 3], 200, fingerprint=manifest["fingerprint"])
    tables.write_json(runs / FILE, {manifest["fingerprint"]: manifest})
    assert collect(runs, tmp_path / "d").beside_paper == []
    shares = "test_fraction=0.0, validation_fraction=0.0"
    command = f"prepare mind --name citeulike --from FOLDER  # from Python, with {shares}"
    assert command in prepare_command("citeulike", manifest)


@pytest.mark.real
def test_the_real_sample(shared_data, tmp_path):
    options = mind.Options(from_=shared_data / "mind-sample")
    clicks = prepare("mind", options, tmp_path, say=lambda text: None)["statistics"]
    # Counted from the two files with a dozen lines of plain Python.
    assert [clicks[name] for name in ("users", "items", "links")] == [166, 59, 175]
