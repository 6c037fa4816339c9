"""Both CiteULike sources on made-up files in the published formats, with the quirks of the real
ones.
"""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli import check, invoke
from support.tables import texts_of, write_files
from support.tiny_bert import PIECES

from ncfbench import data
from ncfbench.data import store
from ncfbench.data.sources import prepare_command
from ncfbench.data.sources.citeulike import Options, OptionsT, read_articles, read_lists

HEADER = ["doc.id", "title", "citeulike.id", "raw.title", "raw.abstract"]
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
ARTICLES = [
    ("Red fish", 'Blue, "green"\nfish'),
    ("Old {D}og", ""),
    ("Fish", "dog"),
    ("Empty", ""),
    ("New cat", "cat cat"),
]


def articles(rows):
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(HEADER)
    for number, (title, abstract) in enumerate(rows, start=1):
        writer.writerow([number, title.lower(), 100 + number, title, abstract])
    return out.getvalue().encode()


@pytest.fixture
def folder(tmp_path):
    """Three users, five articles."""
    files = {
        "users.dat": b"3 0 2 4\n1 2\n2 1 3\n",
        "raw-data.csv": articles(ARTICLES),
        "item-tag.dat": b"2 0 1\n0\n1 2\n1 0\n2 2 1\n",
        "tags.dat": b"big-fish\npet\nred_dog\n",
    }
    return write_files(tmp_path / "source", files)


def prepare(folder, tmp_path, kind=Options, **options):
    """Prepare the files of a folder; return the data set and the messages."""
    said, name = [], "citeulike" if kind is Options else "citeulike-t"
    usual = {"test_fraction": 0.25, "validation_fraction": 0.0, "allow_unverified": True}
    chosen = kind(from_=folder, **(usual | options))
    data.prepare(name, chosen, tmp_path / "data", replace=True, say=said.append)
    return store.load(tmp_path / "data", name), said


def check_content(dataset, links, texts):
    assert [" ".join(words) for words in texts_of(dataset)] == texts
    assert sorted(zip(dataset.users.tolist(), dataset.items.tolist(), strict=True)) == links
    assert dataset.manifest["statistics"]["links"] == len(links)


def test_a_small_library_by_hand(folder, tmp_path):
    """A link that is given twice counts once."""
    texts = [
        "red fish blue green fish big fish pet",
        "old dog",
        "fish dog red dog",
        "empty big fish",
        "new cat cat cat red dog pet",
    ]
    links = [(0, 0), (0, 2), (0, 4), (1, 2), (2, 1), (2, 3)]
    for users, repeated in (("3 0 2 4", False), ("5 0 2 0 4 2", True)):
        (folder / "users.dat").write_text(f"{users}\n1 2\n2 1 3\n")
        dataset, said = prepare(folder, tmp_path, text=("title", "abstract", "tags"))
        check_content(dataset, links, texts)
        assert dataset.manifest["files"]["users.dat"]["verified"] is False
        assert any("2 links twice" in text for text in said) == repeated


def test_options_decide_the_text(folder, tmp_path):
    tags, _ = prepare(folder, tmp_path, text=("tags",), min_count=2, max_length=1)
    counts = [tags.manifest["statistics"][name] for name in ("vocabulary", "words_max")]
    assert [*counts, tags.manifest["statistics"]["items_without_text"]] == [5, 1, 1]
    assert set(tags.manifest["files"]) == {"users.dat", "item-tag.dat", "tags.dat"}
    assert prepare(folder, tmp_path, text=("title",))[0].fingerprint != tags.fingerprint


@pytest.mark.parametrize(
    ("users", "links"),
    [
        (b"2 0 2\n1 1\n2 0 3\n", [(0, 0), (0, 2), (1, 1), (2, 0), (2, 3)]),
        (b"2 0 1\n1 1\n", [(0, 0), (0, 1), (1, 1)]),
    ],
)
def test_texts_in_full_by_hand(tmp_path, users, links):
    """Four articles, one without text and one in Latin 1; or two more than libraries have."""
    folder = write_files(tmp_path / "source", {"users.dat": users, "rawtext.dat": RAW})
    dataset, said = prepare(folder, tmp_path, OptionsT)
    texts = ["red fish chips for 60 000 cafés", "", "a caf dog old 2 dog", "old dog"]
    check_content(dataset, links, texts)
    assert any("has 1 lines" in text and "the first: line 7" in text for text in said)
    assert any("the last 2 are of" in text for text in said) == (len(links) == 3)
    command = prepare_command("citeulike-t", dataset.manifest)
    assert "--from FOLDER --allow-unverified" in command
    assert "test_fraction=0.25, validation_fraction=0.0" in command


def test_word_pieces(folder, tmp_path):
    """Articles and tags as pieces, which the vocabulary of the tokenizer numbers."""
    vocabulary = ("\n".join(PIECES) + "\n").encode()
    model = write_files(tmp_path / "model", {"vocab.txt": vocabulary})
    words = ["prepare", "citeulike", "--from", folder, "--text", "title,tags"]
    words += ["--tokenizer", model, "--data-dir", tmp_path / "data"]
    check(invoke(*words), 4, "is not the published file")
    shown = "Data set citeulike", "published", "16,980", "Fingerprint"
    check(invoke(*words, "--allow-unverified"), 0, *shown)
    dataset = store.load(tmp_path / "data", "citeulike")
    first = [PIECES[token] for token in dataset.texts[0]]
    assert first == ["[CLS]", "red", "fish", *["[UNK]"] * 2, "fish", "[UNK]", "[SEP]"]
    assert dataset.n_words == len(PIECES) - 1
    assert dataset.manifest["tokenizer"]["name"] == "model"


# --- parsers by property


@given(st.lists(st.lists(st.integers(0, 30), max_size=6), min_size=1, max_size=8).filter(any))
def test_lists_come_back(tmp_path, lists):
    path = tmp_path / "lists.dat"
    path.write_text("".join(f"{len(row)} {' '.join(map(str, row))}\n" for row in lists))
    assert list(read_lists(path, 31, "item")) == lists


TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"))


@given(st.lists(st.tuples(TEXTS, st.text('ab\n",;')), min_size=1))
def test_articles_come_back_whatever_they_hold(tmp_path, rows):
    path = tmp_path / "raw-data.csv"
    path.write_bytes(articles(rows))
    columns = [read_articles(path, f"raw.{part}") for part in ("title", "abstract")]
    assert list(zip(*columns, strict=True)) == rows
