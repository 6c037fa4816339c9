"""Both CiteULike sources on made-up files in the published formats, with the quirks of the real
ones, and on damaged ones.
"""

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
from tables_of import texts_of
from tiny_bert import PIECES

from ncfbench import data
from ncfbench.data import store
from ncfbench.data.files import read_lines
from ncfbench.data.hold_out import split_items
from ncfbench.data.options import SourceOptions
from ncfbench.data.sources import citeulike, prepare_command
from ncfbench.data.sources.citeulike import Options, OptionsT, read_articles, read_lists
from ncfbench.errors import DataError, UsageError, VerificationError

HEADER = ["doc.id", "title", "citeulike.id", "raw.title", "raw.abstract"]
HEAD = ",".join(HEADER).encode()
RAW = b"""##0
Red &#34;Fish&#34 &amp; chips
for 60 000 caf\xc3\xa9s
##1

##2
a caf\xe9 \xff\xfe dog
old ##2 dog
##3
&lt;i&gt;Old&lt;/i&gt; dog
"""


def articles(rows):
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(HEADER)
    for number, (title, abstract) in enumerate(rows, start=1):
        writer.writerow([number, title.lower(), 100 + number, title, abstract])
    return out.getvalue()


@pytest.fixture
def folder(tmp_path):
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


@pytest.fixture
def folder_t(tmp_path):
    """Three users, four articles: one without text, one in Latin 1."""
    source = tmp_path / "source-t"
    source.mkdir()
    (source / "users.dat").write_text("2 0 2\n1 1\n2 0 3\n")
    (source / "rawtext.dat").write_bytes(RAW)
    return source


def prepare(folder, tmp_path, **options):
    """Prepare the files of ``folder`` or ``folder_t``."""
    said: list[str] = []
    usual = {"test_fraction": 0.25, "validation_fraction": 0.0, "allow_unverified": True}
    is_a = folder.name == "source"
    chosen = (Options if is_a else OptionsT)(from_=folder, **(usual | options))
    name = "citeulike" if is_a else "citeulike-t"
    return data.prepare(name, chosen, tmp_path / "data", replace=True, say=said.append), said


def words_in(data_dir, name):
    return [" ".join(words) for words in texts_of(store.load(data_dir, name))]


def test_a_small_library_by_hand(folder, tmp_path):
    manifest, said = prepare(folder, tmp_path, text=("title", "abstract", "tags"))
    dataset = store.load(tmp_path / "data", "citeulike")
    assert words_in(tmp_path / "data", "citeulike") == [
        "red fish blue green fish big fish pet",
        "old dog",
        "fish dog red dog",
        "empty big fish",
        "new cat cat cat red dog pet",
    ]
    links = sorted(zip(dataset.users.tolist(), dataset.items.tolist(), strict=True))
    assert links == [(0, 0), (0, 2), (0, 4), (1, 2), (2, 1), (2, 3)]
    assert manifest["statistics"]["links"] == 6
    assert manifest["files"]["users.dat"]["verified"] is False
    assert any("users.dat is not the published file" in text for text in said)


def test_options_decide_the_text(folder, tmp_path):
    tags, _ = prepare(folder, tmp_path, text=("tags",), min_count=2, max_length=1)
    assert tags["statistics"]["vocabulary"] == 5
    assert tags["statistics"]["words_max"] == 1
    assert tags["statistics"]["items_without_text"] == 1
    assert set(tags["files"]) == {"users.dat", "item-tag.dat", "tags.dat"}
    title, _ = prepare(folder, tmp_path, text=("title",))
    assert title["fingerprint"] != tags["fingerprint"]


def test_texts_in_full_by_hand(folder_t, tmp_path):
    manifest, said = prepare(folder_t, tmp_path)
    assert words_in(tmp_path / "data", "citeulike-t") == [
        "red fish chips for 60 000 cafés",
        "",
        "a caf dog old 2 dog",
        "old dog",
    ]
    dataset = store.load(tmp_path / "data", "citeulike-t")
    links = sorted(zip(dataset.users.tolist(), dataset.items.tolist(), strict=True))
    assert links == [(0, 0), (0, 2), (1, 1), (2, 0), (2, 3)]
    assert set(manifest["files"]) == {"users.dat", "rawtext.dat"}
    warnings = [text for text in said if "UTF-8" in text]
    assert warnings == [
        "Warning: rawtext.dat has 1 lines with bytes that are not valid UTF-8 (the first: line 7);"
        " each such byte counts as a separator."
    ]


def test_the_command_to_repeat(folder_t, tmp_path):
    manifest, _ = prepare(folder_t, tmp_path)
    assert (
        prepare_command("citeulike-t", manifest)
        == "ncfbench prepare citeulike-t --from FOLDER --allow-unverified"
        "  # from Python, with test_fraction=0.25, validation_fraction=0.0"
    )
    (folder_t / "rawtext.dat").unlink()
    with pytest.raises(DataError, match=r"rawtext\.dat is missing"):
        prepare(folder_t, tmp_path)


def test_texts_beyond_every_library_are_counted(folder_t, tmp_path):
    (folder_t / "users.dat").write_text("2 0 1\n1 1\n")
    manifest, said = prepare(folder_t, tmp_path)
    assert manifest["statistics"]["items"] == 4
    assert "Warning: of 4 texts the last 2 are of articles in nobody's library." in said


def test_word_pieces(folder, tmp_path):
    """Articles and tags as pieces, which the vocabulary of the tokenizer numbers."""
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


def test_only_a_changed_file_is_prepared_again(folder, tmp_path, monkeypatch):
    first, _ = prepare(folder, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(citeulike, "read", lambda *_: pytest.fail("parsed again"))
        again, said = prepare(folder, tmp_path)
    assert again == first == prepare(folder, tmp_path / "b")[0]
    assert any("Already prepared" in text for text in said)
    (folder / "users.dat").write_text("1 0\n1 1\n1 3\n")
    changed, _ = prepare(folder, tmp_path)
    assert changed["fingerprint"] != first["fingerprint"]
    assert [path.name for path in (tmp_path / "data/citeulike").iterdir() if path.is_dir()] == [
        changed["fingerprint"][:12]
    ]


def test_links_given_twice_count_once_with_a_warning(folder, tmp_path):
    (folder / "users.dat").write_text("4 0 2 0 4\n1 2\n2 1 3\n")
    manifest, said = prepare(folder, tmp_path)
    assert manifest["statistics"]["links"] == 6
    assert any("1 links twice" in text for text in said)


def test_unpublished_files_are_refused_with_both_ids(folder, tmp_path):
    with pytest.raises(VerificationError) as caught:
        prepare(folder, tmp_path, allow_unverified=False)
    found = hashlib.sha1(b"blob 18\0" + (folder / "users.dat").read_bytes()).hexdigest()
    published = citeulike.CITEULIKE_A.blob_ids["users.dat"]
    for word in ("users.dat", published, found, "--allow-unverified"):
        assert word in str(caught.value)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("users.dat", b"", "users.dat is empty"),
        ("users.dat", b"0\n0\n", "names no item"),
        ("users.dat", b"3 0 2 4\n1 2\n3 1 3", "line 3: says 3 items and lists 2"),
        ("users.dat", b"3 0 2 5\n", "line 1: item 5 is outside 0..4"),
        ("users.dat", b"2 0 -1\n", "item -1 is outside"),
        ("users.dat", b"1 0\nx 1\n", "line 2: expected whole numbers"),
        ("users.dat", b"1 0\n\n1 1\n", "line 2: expected whole numbers"),
        ("users.dat", b"1 0\n1 \xff\n", "line 2: byte 0xff is not valid UTF-8"),
        ("users.dat", b"1 99999999999999999999999\n", "outside 0..4"),
        ("raw-data.csv", b"", "raw-data.csv is empty"),
        ("raw-data.csv", b"doc.id,title,raw.title\n1,a,A\n", "lacks the column 'raw.abstract'"),
        ("raw-data.csv", HEAD + b"\n", "title ends after 0"),
        ("raw-data.csv", HEAD + b'\n1,a,1,"A","b\n', "line 2: a quotation mark is never closed"),
        ("raw-data.csv", HEAD + b"\n1,a,1,A\n", "line 2: 4 fields where the header has 5"),
        ("raw-data.csv", HEAD + b"\n2,a,1,A,b\n", "doc.id '2' where 1 was expected"),
        ("raw-data.csv", HEAD + b"\n1,a,1,A,b\xe9\n", "line 2: byte 0xe9 is not valid UTF-8"),
        ("item-tag.dat", b"2 0 1\n0\n1 3\n1 0\n0\n", "line 3: tag 3 is outside 0..2"),
        ("item-tag.dat", b"2 0 1\n0\n1 2\n", "disagree about the number of items"),
        ("tags.dat", b"", "tags.dat is empty"),
        ("rawtext.dat", b"", "rawtext.dat is empty"),
        ("rawtext.dat", b"\n\n", "rawtext.dat has no text"),
        ("rawtext.dat", b"\nfish\n##0\n", "rawtext.dat, line 2: expected ##0, found 'fish'"),
        ("rawtext.dat", b"##0\nfish\n##2\n", "rawtext.dat, line 3: expected ##1, found '##2'"),
        ("rawtext.dat", b"##0\n##1\n##0\n", "rawtext.dat, line 3: expected ##2, found '##0'"),
        ("rawtext.dat", b"##1\nfish\n", "rawtext.dat, line 1: expected ##0, found '##1'"),
        ("rawtext.dat", b"##0\nfish\n##1\n##2\n", "users.dat, line 3: item 3 is outside 0..2"),
    ],
)
def test_damaged_files_are_named_with_the_line(folder, folder_t, tmp_path, name, content, message):
    source: Path = folder
    options: dict[str, Any] = {"text": ("title", "abstract", "tags")}
    if not (folder / name).exists():
        source, options = folder_t, {}
    good, _ = prepare(source, tmp_path, **options)
    (source / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        prepare(source, tmp_path, **options)
    assert message in str(caught.value)
    kept = store.load(tmp_path / "data", good["name"]).fingerprint
    assert kept == good["fingerprint"], "the previous data set is lost"


def test_missing_files_and_folders(folder, tmp_path):
    (folder / "users.dat").unlink()
    with pytest.raises(DataError, match="users.dat is missing"):
        prepare(folder, tmp_path)
    with pytest.raises(DataError, match=r"users\.dat is missing\. --from takes the folder"):
        prepare(tmp_path / "nowhere", tmp_path)


def test_invalid_bytes_are_replaced_only_on_request(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfone\n\xe9t\xe9\nthree \xff\n")
    with pytest.raises(DataError, match="line 2: byte 0xe9 is not valid UTF-8"):
        list(read_lines(path))
    assert list(read_lines(path, "replace")) == ["one\n", "\ufffdt\ufffd\n", "three \ufffd\n"]


def test_the_command(folder_t, tmp_path):
    place = ["--data-dir", tmp_path / "data"]
    words = ["prepare", "citeulike-t", *place, "--from"]
    check(invoke(*words, folder_t), 4, "is not the published file")
    done = invoke(*words, folder_t, "--allow-unverified")
    check(done, 0, "Data set citeulike-t", "published", "25,975", "Fingerprint")
    check(invoke(*words, tmp_path / "none"), 3, "--from takes the folder")


# --- parsers by property


@given(st.lists(st.lists(st.integers(0, 30), max_size=6), min_size=1, max_size=8).filter(any))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_lists_come_back(tmp_path, lists):
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
def test_articles_come_back_whatever_they_hold(tmp_path, rows):
    path = tmp_path / "raw-data.csv"
    path.write_bytes(articles(rows).encode())
    columns = [read_articles(path, f"raw.{part}") for part in ("title", "abstract")]
    assert list(zip(*columns, strict=True)) == rows


def test_splits_are_shares_of_the_items():
    split = split_items(1000, SourceOptions())
    assert np.bincount(split).tolist() == [720, 80, 200]
    assert (split == split_items(1000, SourceOptions())).all()
    no_validation = split_items(1000, SourceOptions(validation_fraction=0))
    assert np.bincount(no_validation, minlength=3).tolist() == [800, 0, 200]
    with pytest.raises(UsageError, match="hold every item out"):
        split_items(1, SourceOptions(test_fraction=0.9))
