"""CiteULike-t on made-up files in the published format, with the quirks of the real ones, and on
damaged ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ncfbench import data
from ncfbench.cli import app
from ncfbench.data import store
from ncfbench.data.readers.files import read_lines
from ncfbench.data.sources import prepare_command
from ncfbench.data.sources.citeulike import OptionsT as Options
from ncfbench.errors import DataError, UsageError, VerificationError

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
VOCABULARY = "class&#34\n&#34;real&#34\n60 000\n%\n+/-\n\u2013\nfish\nc++&gt;net\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three users, four articles: one without text, one in Latin 1."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "users.dat").write_text("2 0 2\n1 1\n2 0 3\n")
    (source / "rawtext.dat").write_bytes(RAW)
    (source / "vocabulary.dat").write_text(VOCABULARY)
    (source / "mult.dat").write_text("3 6:2 0:1 3:5\n0\n2 2:2 1:1\n3 4:1 5:2 7:1\n")
    return source


def prepare(folder: Path, tmp_path: Path, **options: Any) -> tuple[dict[str, Any], list[str]]:
    said: list[str] = []
    usual = {"test_fraction": 0.25, "validation_fraction": 0.0, "allow_unverified": True}
    chosen = Options(from_=folder, **(usual | options))
    return data.prepare(
        "citeulike-t", chosen, tmp_path / "data", replace=True, say=said.append
    ), said


def texts_of(data_dir: Path, name: str) -> list[str]:
    dataset = store.load(data_dir, name)
    folder = data_dir / name / dataset.fingerprint[:12]
    words = [
        row["word"]
        for row in store.tables.read_table(
            folder / "vocabulary.parquet", store.VOCABULARY
        ).to_pylist()
    ]
    return [
        " ".join(words[token - 1] for token in dataset.texts[item].tolist())
        for item in range(dataset.n_items)
    ]


def test_texts_in_full_by_hand(folder: Path, tmp_path: Path) -> None:
    manifest, said = prepare(folder, tmp_path)
    assert texts_of(tmp_path / "data", "citeulike-t") == [
        "red fish chips for 60 000 cafés",
        "",
        "a caf dog old 2 dog",
        "old dog",
    ]
    dataset = store.load(tmp_path / "data", "citeulike-t")
    links = sorted(zip(dataset.users.tolist(), dataset.items.tolist(), strict=True))
    assert links == [(0, 0), (0, 2), (1, 1), (2, 0), (2, 3)]
    assert set(manifest["files"]) == {"users.dat", "rawtext.dat"}
    assert manifest["options"]["text"] == ["raw"], (
        "what auto stands for, or the data could change under one name"
    )
    warnings = [text for text in said if "UTF-8" in text]
    assert warnings == [
        "Warning: rawtext.dat has 1 lines with bytes that are not valid UTF-8 (the first: line 7);"
        " each such byte counts as a separator."
    ]


def test_counted_words_by_hand(folder: Path, tmp_path: Path) -> None:
    (folder / "rawtext.dat").unlink()
    manifest, said = prepare(folder, tmp_path)
    assert texts_of(tmp_path / "data", "citeulike-t") == [
        "fish fish class",
        "",
        "60 000 60 000 real",
        "c net",
    ]
    assert set(manifest["files"]) == {"users.dat", "mult.dat", "vocabulary.dat"}
    assert manifest["options"]["text"] == ["bag"]
    assert any("lost their order" in text and "--text raw" in text for text in said)
    assert manifest["statistics"]["items_without_text"] == 1


def test_auto_has_the_fingerprint_of_what_it_finds(folder: Path, tmp_path: Path) -> None:
    raw, _ = prepare(folder, tmp_path / "a", text="raw")
    auto, _ = prepare(folder, tmp_path / "b")
    bag, _ = prepare(folder, tmp_path / "c", text="bag")
    assert raw == auto
    assert raw["fingerprint"] != bag["fingerprint"]
    assert (
        prepare_command("citeulike-t", bag)
        == "ncfbench prepare citeulike-t --text bag --max-length 300 --min-count 1 --test-fraction"
        " 0.25 --validation-fraction 0.0 --split-seed 0 --from FOLDER --allow-unverified"
    )
    (folder / "rawtext.dat").unlink()
    with pytest.raises(DataError, match=r"rawtext\.dat is missing"):
        prepare(folder, tmp_path / "a", text="raw")


def test_windows_line_ends_change_nothing(folder: Path, tmp_path: Path) -> None:
    before = [
        prepare(folder, tmp_path / text, text=text)[0]["fingerprint"] for text in ("raw", "bag")
    ]
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    after = [
        prepare(folder, tmp_path / "x" / text, text=text)[0]["fingerprint"]
        for text in ("raw", "bag")
    ]
    assert after == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("users.dat", b"", "users.dat is empty"),
        ("users.dat", b"1 0\n1 4\n", "users.dat, line 2: item 4 is outside 0..3"),
        ("users.dat", b"1 0\n2 3\n", "line 2: says 2 items and lists 1"),
        ("users.dat", b"1 \xe9\n", "users.dat, line 1: byte 0xe9 is not valid UTF-8"),
        ("rawtext.dat", b"", "rawtext.dat is empty"),
        ("rawtext.dat", b"\n\n", "rawtext.dat has no text"),
        ("rawtext.dat", b"\nfish\n##0\n", "rawtext.dat, line 2: expected ##0, found 'fish'"),
        (
            "rawtext.dat",
            b"##0\nfish\n##2\n",
            "rawtext.dat, line 3: text ##2 where ##1 was expected",
        ),
        ("rawtext.dat", b"##0\n##1\n##0\n", "rawtext.dat, line 3: text ##0 where ##2 was expected"),
        ("rawtext.dat", b"##1\nfish\n", "rawtext.dat, line 1: text ##1 where ##0 was expected"),
        ("rawtext.dat", b"##0\nfish\n##1\n##2\n", "users.dat, line 3: item 3 is outside 0..2"),
        ("mult.dat", b"", "mult.dat is empty"),
        (
            "mult.dat",
            b"1 0:1\n\n",
            "mult.dat, line 2: expected a whole number and then word:count pairs",
        ),
        ("mult.dat", b"1 0\n", "mult.dat, line 1: expected a whole number"),
        ("mult.dat", b"1 0:1:1\n", "mult.dat, line 1: expected a whole number"),
        ("mult.dat", b"1 0:x\n", "mult.dat, line 1: expected a whole number"),
        (
            "mult.dat",
            b"1 0:1\n3 0:1 1:1\n",
            "mult.dat, line 2: says 3 words and lists 2. Is the file truncated?",
        ),
        (
            "mult.dat",
            b"1 8:1\n",
            "mult.dat, line 1: word 8 is outside 0..7.",
        ),
        ("mult.dat", b"1 -1:1\n", "mult.dat, line 1: word -1 is outside 0..7"),
        ("mult.dat", b"2 0:1 1:0\n", "mult.dat, line 1: word 1 occurs 0 times"),
        ("mult.dat", b"1 0:-3\n", "mult.dat, line 1: word 0 occurs -3 times"),
        ("mult.dat", b"1 0:99999999999\n", "mult.dat, line 1: more than 4,194,304 words"),
        ("mult.dat", b"1 0:1\n", "users.dat, line 1: item 2 is outside 0..0"),
        ("mult.dat", b"1 3:1\n0\n0\n0\n", "No word is left"),
        ("vocabulary.dat", b"", "vocabulary.dat is empty"),
        ("vocabulary.dat", b"fish\n\xff\n", "vocabulary.dat, line 2: byte 0xff is not valid UTF-8"),
    ],
)
def test_damaged_files_are_named_with_the_line(
    folder: Path, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    text = "raw" if name == "rawtext.dat" else "bag"
    good, _ = prepare(folder, tmp_path, text=text)
    (folder / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        prepare(folder, tmp_path, text=text)
    assert message in str(caught.value)
    assert store.load(tmp_path / "data", "citeulike-t").fingerprint == good["fingerprint"], (
        "the previous data set is lost"
    )


def test_texts_beyond_every_library_are_counted(folder: Path, tmp_path: Path) -> None:
    (folder / "users.dat").write_text("2 0 1\n1 1\n")
    manifest, said = prepare(folder, tmp_path)
    assert manifest["statistics"]["items"] == 4
    assert "Warning: of 4 texts the last 2 are of articles in nobody's library." in said


def test_invalid_bytes_are_replaced_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfone\n\xe9t\xe9\nthree \xff\n")
    with pytest.raises(DataError, match="line 2: byte 0xe9 is not valid UTF-8"):
        list(read_lines(path))
    numbers: list[int] = []
    assert list(read_lines(path, numbers.append)) == ["one\n", "\ufffdt\ufffd\n", "three \ufffd\n"]
    assert numbers == [2, 3]


def test_impossible_options() -> None:
    with pytest.raises(UsageError, match="did you mean 'bag'"):
        Options(text="bags")
    with pytest.raises(UsageError, match="max_length = 0"):
        Options(max_length=0)


def test_the_command(folder: Path, tmp_path: Path) -> None:
    words = ["prepare", "citeulike-t", "--from", str(folder), "--data-dir", str(tmp_path / "data")]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == VerificationError.exit_code
    assert "users.dat is not the published file" in refused.stderr
    result = CliRunner().invoke(app, [*words, "--allow-unverified"])
    assert result.exit_code == 0, result.output
    for word in ("Data set citeulike-t", "published", "25,975", "Fingerprint"):
        assert word in result.stdout
    missing = CliRunner().invoke(app, [*words[:2], "--from", str(tmp_path / "none"), *words[4:]])
    assert missing.exit_code == DataError.exit_code
    assert "is not a folder" in missing.stderr
    listed = CliRunner().invoke(app, ["list", "--data-dir", str(tmp_path / "data")])
    assert "3 users, 4 items, 5 links (citeulike-t)" in listed.stdout
