"""The CiteULike parsers on made-up files in the published format, on damaged ones, and against a
server on loopback.
"""

from __future__ import annotations

import csv
import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invoked import check, invoke
from tiny_bert import PIECES

from ncfbench import data
from ncfbench.data import store
from ncfbench.data.content import split_items
from ncfbench.data.sources import citeulike
from ncfbench.data.sources.citeulike import Options, read_articles, read_lists
from ncfbench.errors import DataError, UsageError, VerificationError

HEADER = ["doc.id", "title", "citeulike.id", "raw.title", "raw.abstract"]


def articles(rows: list[tuple[str, str]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(HEADER)
    for number, (title, abstract) in enumerate(rows, start=1):
        writer.writerow([number, title.lower(), 100 + number, title, abstract])
    return out.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three users, five articles."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "users.dat").write_text("3 0 2 4\n1 2\n2 1 3\n")
    rows = [
        ("Red fish", 'Blue, "green"\nfish'),
        ("Old {D}og", ""),
        ("Fish", "dog"),
        ("Empty", ""),
        ("New cat", "cat cat"),
    ]
    (source / "raw-data.csv").write_text(articles(rows))
    (source / "item-tag.dat").write_text("2 0 1\n0\n1 2\n1 0\n2 2 1\n")
    (source / "tags.dat").write_text("big-fish\npet\nred_dog\n")
    return source


def prepare(folder: Path, tmp_path: Path, **options: Any) -> tuple[dict[str, Any], list[str]]:
    said: list[str] = []
    usual = {"test_fraction": 0.2, "validation_fraction": 0.0, "allow_unverified": True}
    chosen = Options(from_=folder, **(usual | options))
    return data.prepare("citeulike", chosen, tmp_path / "data", replace=True, say=said.append), said


def test_a_small_library_by_hand(folder: Path, tmp_path: Path) -> None:
    manifest, said = prepare(folder, tmp_path, text=("title", "abstract", "tags"))
    dataset = store.load(tmp_path / "data", "citeulike")
    folder = tmp_path / "data/citeulike" / manifest["fingerprint"][:12]
    words = store.tables.read_table(folder / "vocabulary.parquet", store.VOCABULARY).to_pylist()
    names = [""] + [row["word"] for row in words]
    texts = [
        [names[t] for t in row[:n]]
        for row, n in zip(dataset.tokens_IxL.tolist(), dataset.lengths.tolist(), strict=True)
    ]
    assert texts == [
        ["red", "fish", "blue", "green", "fish", "big", "fish", "pet"],
        ["old", "dog"],
        ["fish", "dog", "red", "dog"],
        ["empty", "big", "fish"],
        ["new", "cat", "cat", "cat", "red", "dog", "pet"],
    ]
    links = sorted(zip(dataset.users.tolist(), dataset.items.tolist(), strict=True))
    assert links == [(0, 0), (0, 2), (0, 4), (1, 2), (2, 1), (2, 3)]
    assert (words[0]["word"], words[0]["count"]) == ("fish", 5)
    assert manifest["statistics"]["links"] == 6
    assert manifest["files"]["users.dat"]["verified"] is False
    assert any("users.dat is not the published file" in text for text in said)


def test_options_decide_the_text(folder: Path, tmp_path: Path) -> None:
    tags, _ = prepare(folder, tmp_path, text=("tags",), min_count=2, max_length=1)
    assert tags["statistics"]["vocabulary"] == 5
    assert tags["statistics"]["words_max"] == 1
    assert tags["statistics"]["items_without_text"] == 1
    assert set(tags["files"]) == {"users.dat", "item-tag.dat", "tags.dat"}
    title, _ = prepare(folder, tmp_path, text=("title",), vocabulary_size=1)
    assert title["statistics"]["vocabulary"] == 1
    assert title["fingerprint"] != tags["fingerprint"]


def test_word_pieces(folder: Path, tmp_path: Path) -> None:
    """Articles and tags as pieces, which the vocabulary of the tokenizer numbers."""
    pytest.importorskip("tokenizers")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    words = ["prepare", "citeulike", "--from", folder, "--allow-unverified", "--text", "title,tags"]
    words += ["--tokenizer", tmp_path / "model", "--data-dir", tmp_path / "data"]
    check(invoke(*words), 0)
    dataset = store.load(tmp_path / "data", "citeulike")
    first = [PIECES[token] for token in dataset.texts[0]]
    assert first == ["[CLS]", "red", "fish", *["[UNK]"] * 2, "fish", "[UNK]", "[SEP]"]
    assert dataset.n_words == len(PIECES) - 1
    assert dataset.manifest["tokenizer"]["name"] == "model"


def test_only_a_changed_file_is_prepared_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = prepare(folder, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Options, "read", lambda *_: pytest.fail("parsed again"))
        again, said = prepare(folder, tmp_path)
    assert again == first
    assert any("Already prepared" in text for text in said)
    (folder / "users.dat").write_text("1 0\n1 1\n1 3\n")
    changed, _ = prepare(folder, tmp_path)
    assert changed["fingerprint"] != first["fingerprint"]
    assert [path.name for path in (tmp_path / "data/citeulike").iterdir() if path.is_dir()] == [
        changed["fingerprint"][:12]
    ]


def test_same_input_same_fingerprint(folder: Path, tmp_path: Path) -> None:
    one, _ = prepare(folder, tmp_path / "a")
    two, _ = prepare(folder, tmp_path / "b")
    assert one == two
    three, _ = prepare(folder, tmp_path / "b", split_seed=1)
    assert three["fingerprint"] != one["fingerprint"]


def test_links_given_twice_count_once_with_a_warning(folder: Path, tmp_path: Path) -> None:
    (folder / "users.dat").write_text("4 0 2 0 4\n1 2\n2 1 3\n")
    manifest, said = prepare(folder, tmp_path)
    assert manifest["statistics"]["links"] == 6
    assert any("1 links twice" in text for text in said)


def test_windows_line_ends_are_accepted(folder: Path, tmp_path: Path) -> None:
    before, _ = prepare(folder, tmp_path / "a")
    for name in ("users.dat", "item-tag.dat"):
        (folder / name).write_bytes((folder / name).read_bytes().replace(b"\n", b"\r\n"))
    after, _ = prepare(folder, tmp_path / "b")
    assert after["fingerprint"] == before["fingerprint"]


def test_unpublished_files_are_refused_with_both_ids(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(VerificationError) as caught:
        prepare(folder, tmp_path, allow_unverified=False)
    found = hashlib.sha1(b"blob 18\0" + (folder / "users.dat").read_bytes()).hexdigest()
    for word in (
        "users.dat",
        citeulike.CITEULIKE_A.blob_ids["users.dat"],
        found,
        "--allow-unverified",
    ):
        assert word in str(caught.value)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("users.dat", b"", "users.dat is empty"),
        ("users.dat", b"0\n0\n", "names no item"),
        (
            "users.dat",
            b"3 0 2 4\n1 2\n3 1 3",
            "line 3: says 3 items and lists 2. Is the file truncated",
        ),
        ("users.dat", b"3 0 2 5\n", "line 1: item 5 is outside 0..4"),
        ("users.dat", b"2 0 -1\n", "item -1 is outside"),
        ("users.dat", b"1 0\nx 1\n", "line 2: expected whole numbers"),
        ("users.dat", b"1 0\n\n1 1\n", "line 2: expected whole numbers"),
        ("users.dat", b"1 0\n1 \xff\n", "line 2: byte 0xff is not valid UTF-8"),
        ("users.dat", b"1 99999999999999999999999\n", "outside 0..4"),
        ("raw-data.csv", b"", "raw-data.csv is empty"),
        (
            "raw-data.csv",
            b'"doc.id","title","raw.title"\n1,"a","A"\n',
            "lacks the column 'raw.abstract'",
        ),
        ("raw-data.csv", ",".join(HEADER).encode() + b"\n", "has no article"),
        ("raw-data.csv", ",".join(HEADER).encode() + b'\n1,a,1,"A","b\n', "truncated"),
        (
            "raw-data.csv",
            ",".join(HEADER).encode() + b"\n1,a,1,A\n",
            "line 2: 4 fields where the header has 5",
        ),
        (
            "raw-data.csv",
            ",".join(HEADER).encode() + b"\n2,a,1,A,b\n",
            "doc.id '2' where 1 was expected",
        ),
        (
            "raw-data.csv",
            ",".join(HEADER).encode() + b"\n1,a,1,A,b\xe9\n",
            "line 2: byte 0xe9 is not valid UTF-8",
        ),
        ("item-tag.dat", b"2 0 1\n0\n1 3\n1 0\n0\n", "line 3: tag 3 is outside 0..2"),
        ("item-tag.dat", b"2 0 1\n0\n1 2\n", "disagree about the number of items"),
        ("tags.dat", b"", "tags.dat is empty"),
    ],
)
def test_damaged_files_are_named_with_the_line(
    folder: Path, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    good, _ = prepare(folder, tmp_path)
    (folder / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        prepare(folder, tmp_path, text=("title", "abstract", "tags"))
    assert message in str(caught.value)
    assert name in str(caught.value) or "disagree" in message
    assert store.load(tmp_path / "data", "citeulike").fingerprint == good["fingerprint"], (
        "the previous data set is lost"
    )


def test_missing_files_and_folders(folder: Path, tmp_path: Path) -> None:
    (folder / "users.dat").unlink()
    with pytest.raises(DataError, match="users.dat is missing"):
        prepare(folder, tmp_path)
    (folder / "users.dat").mkdir()
    with pytest.raises(DataError, match="Cannot read"):
        prepare(folder, tmp_path)
    with pytest.raises(DataError, match="is not a folder"):
        prepare(tmp_path / "nowhere", tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": ("titel",)}, "did you mean 'title'"),
        ({"text": ()}, "name each of"),
        ({"text": ("title", "title")}, "at most once"),
        ({"max_length": 0}, "max_length = 0"),
        ({"min_count": 0}, "min_count = 0"),
        ({"vocabulary_size": 0}, "vocabulary_size = 0"),
        ({"test_fraction": 1.0}, "test_fraction = 1.0"),
        ({"validation_fraction": -0.1}, "validation_fraction = -0.1"),
        ({"test_fraction": float("nan")}, "test_fraction = nan"),
    ],
)
def test_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Options(**options)


# --- parsers by property


@given(st.lists(st.lists(st.integers(0, 30), max_size=6), min_size=1, max_size=8).filter(any))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_lists_come_back(tmp_path: Path, lists: list[list[int]]) -> None:
    path = tmp_path / "lists.dat"
    path.write_text("".join(f"{len(row)} {' '.join(map(str, row))}\n" for row in lists))
    assert list(read_lists(path, 31, "item")) == lists


@given(
    st.lists(
        st.tuples(
            st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0\r")),
            st.text('ab\n",;'),
        ),
        min_size=1,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_articles_come_back_whatever_they_hold(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    path = tmp_path / "raw-data.csv"
    path.write_bytes(articles(rows).encode())
    assert list(read_articles(path, ["raw.title", "raw.abstract"])) == rows


@given(st.binary(max_size=200))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200
)
def test_any_bytes_parse_or_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "any"
    path.write_bytes(content)
    for parse in (
        lambda: list(read_lists(path, 9, "item")),
        lambda: list(read_articles(path, ["raw.title"])),
    ):
        try:
            parse()
        except DataError as error:
            assert str(path) in str(error)


def test_splits_are_shares_of_the_items() -> None:
    split = split_items(1000, 0.2, 0.1, 3)
    assert np.bincount(split).tolist() == [720, 80, 200]
    assert (split == split_items(1000, 0.2, 0.1, 3)).all()
    assert (split != split_items(1000, 0.2, 0.1, 4)).any()
    assert np.bincount(split_items(1000, 0.2, 0.0, 3), minlength=3).tolist() == [800, 0, 200]
    with pytest.raises(UsageError, match="hold every item out"):
        split_items(1, 0.9, 0.0, 0)
