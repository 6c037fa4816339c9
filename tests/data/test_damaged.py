"""Hundreds of damaged files: each is read with a warning, or refused in one paragraph that names
the file and the line; nothing else happens.
"""

import gzip
import random
import re
import zlib
from pathlib import Path

import pytest
from support.tables import BEHAVIORS, LIBRARY, NEWS, behavior, mind_files, news, write_files

from ncfbench.data import prepare, store
from ncfbench.data.sources import SOURCES
from ncfbench.errors import DataError, NcfbenchError

# --- small files in the formats of every source

RATINGS = [
    {"userId": n % 7, "movieId": n % 11 + 1, "rating": 1 + n % 5, "timestamp": 10**9 + 60 * n}
    for n in range(60)
]
MOVIES = [
    {"movieId": n + 1, "title": f'The "{n}." Été, of {n * n}', "genres": "Drama|War"}
    for n in range(11)
]


def custom(names, links, items, **options):
    one, two = names.split()
    return "custom", {"links": Path(one), "items": Path(two), **options}, {one: links, two: items}


TEXT = b"##%d\nA text of %d words,\nin lines \xe2\x80\x93 two\n"
RAW = {
    "users.dat": LIBRARY["users.dat"],
    "rawtext.dat": b"".join(TEXT % (n, n) for n in range(5)),
}
CLICKS = mind_files(behaviors=[*BEHAVIORS, behavior(6, "U5", "", "N9-1 N1-1")])
NEWEST, STARS = {"hold_out": "newest-items"}, {"rating_threshold": 2}
FOLDER = {"from_": Path(), "allow_unverified": True}
CASES = {
    "csv": custom("r.csv m.csv", RATINGS, MOVIES, **STARS, **NEWEST),
    "jsonl": custom("r.jsonl m.jsonl", RATINGS, MOVIES, **STARS),
    "parquet": custom("r.parquet m.parquet", RATINGS, MOVIES, **NEWEST),
    "squeezed": custom("r.csv.gz m.jsonl.bz2", RATINGS, MOVIES),
    "citeulike": ("citeulike", {**FOLDER, "text": ("title", "abstract", "tags")}, LIBRARY),
    "raw": ("citeulike-t", FOLDER, RAW),
    "mind": ("mind", {"from_": Path()}, CLICKS),
}
"""Source, options, and files as bytes or rows, by name; a path is relative to the files' folder."""


def write(name, folder):
    """Write the files of a case, and return the source's options."""
    source, options, files = CASES[name]
    write_files(folder, files)
    given = {
        key: folder / value if isinstance(value, Path) else value for key, value in options.items()
    }
    return SOURCES[source].load().Options(**given)


def prepared(name, options, data):
    """Return the error that refuses the files, if one does, and the messages before."""
    said = []
    try:
        prepare(CASES[name][0], options, data, "x", replace=True, say=said.append)
    except NcfbenchError as error:
        return error, "\n".join(said)
    return None, "\n".join(said)


# --- what can go wrong with a file, by a seed

MOST_BYTES = 2**18


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Short lines count as long, beyond MOST_BYTES."""
    monkeypatch.setattr("ncfbench.data.csv_rows.MOST_BYTES", MOST_BYTES)


def _line(put):
    """Replace one line, any but the first where there are others."""

    def damaged(content, rng):
        lines = content.splitlines(True)
        number = rng.randrange(min(1, len(lines) - 1), len(lines))
        lines[number] = put(lines[number])
        return b"".join(lines)

    return damaged


def _number(put):
    """Replace one of the digits behind the first line."""

    def damaged(content, rng):
        digits = [at.start() for at in re.finditer(rb"\d", content)]
        index = rng.choice([at for at in digits if at > content.find(b"\n")] or [0])
        return content[:index] + put + content[index + 1 :]

    return damaged


def _flipped(content, rng):
    damaged = bytearray(content)
    for _ in range(3):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


DAMAGES = {
    "cut at random": lambda content, rng: content[: rng.randrange(1, len(content))],
    "last byte gone": lambda content, rng: content[:-2],
    "empty": lambda content, rng: b"",
    "blank lines only": lambda content, rng: b"\n \n\n",
    "first line only": lambda content, rng: content.splitlines(True)[0],
    "first line gone": lambda content, rng: b"".join(content.splitlines(True)[1:]),
    "wrong delimiter": lambda content, rng: content.translate(bytes.maketrans(b",\t ", b";|,")),
    "other delimiter in a line": _line(lambda line: line.replace(b",", b";").replace(b" ", b";")),
    "line twice": _line(lambda line: line + line),
    "line gone": _line(lambda line: b""),
    "spaces and commas": _number(b'" 1, 2 "'),
    "byte order mark": lambda content, rng: b"\xef\xbb\xbf" + content,
    "windows line ends": lambda content, rng: content.replace(b"\n", b"\r\n"),
    "latin-1 in the middle": _line(lambda line: line[:-1] + b" caf\xe9 \n"),
    "utf-16": lambda content, rng: content.decode("utf-8", "replace").encode("utf-16"),
    "not a number": _number(b"NaN"),
    "infinite": _number(b"1e999"),
    "negative": _number(b"-3"),
    "huge number": _number(b"9" * 40),
    "nothing there": _number(b""),
    "huge line": _line(lambda line: line[:-1] + b"x" * MOST_BYTES + b"\n"),
    "zero bytes": _line(lambda line: line[:-1] + b"\0\0\n"),
    "open quote": _line(lambda line: b'"' + line),
    "bits flipped": _flipped,
    "noise": lambda content, rng: rng.randbytes(300),
    "compressed": lambda content, rng: gzip.compress(content, mtime=0),
    "compressed and cut": lambda content, rng: gzip.compress(content, mtime=0)[:-9],
}
"""Damages of a file's content, by name."""
HARMLESS = {"windows line ends", "byte order mark"}
"""Damages that no text file minds."""
PLACED = {
    *("latin-1 in the middle", "huge line", "open quote"),
    *("not a number", "infinite", "huge number"),
}
"""Damages of one line of a text: where they are refused, the line is named."""
STATED = {"line twice", "compressed", "wrong delimiter", "last byte gone", "cut at random"}
"""Damages that are told from what is left: where such a file is read, something is said."""
FILES = [(name, file) for name, (_, _, files) in CASES.items() for file in files]
BINARY = {"r.parquet", "m.parquet", "r.csv.gz", "m.jsonl.bz2"}


@pytest.mark.parametrize(("source", "name"), FILES)
def test_damaged_files(tmp_path, source, name):
    """All damages of one file."""
    options = write(source, tmp_path / "files")
    assert prepared(source, options, tmp_path / "good")[0] is None
    good = store.load(tmp_path / "good", "x")
    assert good.graph.n_links > 3
    path, is_text, refused = tmp_path / "files" / name, name not in BINARY, 0
    content = path.read_bytes()
    for number, (damage, damaged) in enumerate(DAMAGES.items()):
        rng = random.Random(zlib.crc32(f"{source} {name} {damage}".encode()))
        path.write_bytes(damaged(content, rng))
        data = tmp_path / f"data{number}"
        error, said = prepared(source, options, data)
        case = f"{damage}: {error}\n{said}"
        if error is None:
            dataset = store.load(data, "x")
            assert len(dataset.users) == dataset.manifest["statistics"]["links"] > 0, case
            if is_text and damage in HARMLESS:
                assert dataset.fingerprint == good.fingerprint, case
            if source in ("csv", "jsonl") and damage in STATED:
                assert re.search(r"Warning:|separated by", said), case
            continue
        refused, refusal = refused + isinstance(error, DataError), str(error)
        assert error.exit_code in (2, 3, 4), case
        assert len(refusal) < 1500, case
        assert not re.search(r"\.\.(\s|$)", refusal), case
        about = (name, "disagree", "Is another file cut off", "nothing to train on")
        assert any(words in refusal for words in about), case
        assert not (damage in HARMLESS and is_text), case
        if damage in PLACED and is_text and "nothing to train on" not in refusal:
            assert re.search(r"line \d|example", refusal), case
        assert {file.name for file in data.rglob("*")} <= {"x", ".lock"}, case
    assert refused


@pytest.mark.parametrize(("source", "name"), FILES)
def test_files_that_cannot_be_read(tmp_path, monkeypatch, source, name):
    """Permission is denied, a folder has the name, or nothing is there: errors, whoever runs it."""
    options = write(source, tmp_path / "files")
    path, opened = tmp_path / "files" / name, Path.open

    def denied(file, *arguments, **more):
        if file == path:
            raise PermissionError(13, "Permission denied", str(file))
        return opened(file, *arguments, **more)

    monkeypatch.setattr(Path, "open", denied)
    for words in ("Permission denied", "", ""):
        error, _ = prepared(source, options, tmp_path / "data")
        assert isinstance(error, DataError)
        assert name in str(error)
        assert words in str(error)
        monkeypatch.setattr(Path, "open", opened)
        if path.is_file():
            path.unlink()
        else:
            path.mkdir(exist_ok=True)


HEAD = b"doc.id,title,citeulike.id,raw.title,raw.abstract\n"


def click(impressions, user="U1"):
    return behavior(1, user, "N2", impressions).encode()


FIRST = NEWS[0].encode()
DAMAGED = {
    "citeulike users.dat": [
        (b"0\n0\n", "names no item"),
        (b"3 0 2 4\n1 2\n3 1 3", "line 3: says 3 items and lists 2"),
        (b"3 0 2 7\n", "line 1: item 7 is outside 0..4"),
        (b"2 0 -1\n", "item -1 is outside"),
        (b"1 0\nx 1\n", "line 2: expected whole numbers"),
        (b"1 0\n\n1 1\n", "line 2: expected whole numbers"),
        (b"1 99999999999999999999999\n", "outside 0..4"),
    ],
    "citeulike raw-data.csv": [
        (b"doc.id,title,raw.title\n1,a,A\n", "lacks the column 'raw.abstract'"),
        (HEAD, "title ends after 0"),
        (HEAD + b'1,a,1,"A","b\n', "line 2: a quotation mark is never closed"),
        (HEAD + b"1,a,1,A\n", "line 2: 4 fields where the header has 5"),
        (HEAD + b"2,a,1,A,b\n", "doc.id '2' where 1 was expected"),
    ],
    "citeulike item-tag.dat": [
        (b"2 0 1\n0\n1 3\n1 0\n0\n", "line 3: tag 3 is outside 0..2"),
        (b"2 0 1\n0\n1 2\n", "disagree about the number of items"),
    ],
    "raw rawtext.dat": [
        (b"\n\n", "rawtext.dat has no text"),
        (b"\nfish\n##0\n", "rawtext.dat, line 2: expected ##0, found 'fish'"),
        (b"##0\nfish\n##2\n", "rawtext.dat, line 3: expected ##1, found '##2'"),
        (b"##0\nfish\n##1\n##2\n", "users.dat, line 1: item 4 is outside 0..2"),
    ],
    "mind news.tsv": [
        (FIRST + b"N3\tsports\tgolf\tTitle\n", "line 2: 4 fields, separated"),
        (b"\t\t\t\t\t\t\t\n", "news.tsv, line 1: '' is no id"),
        (news("N 1", "a").encode(), "news.tsv, line 1: 'N 1' is no id"),
        (news("N5", "a").encode(), "No link is left"),
        ((NEWS[1] + news("N2", "Blue fish")).encode(), "line 2: news N2 has another"),
    ],
    "mind behaviors.tsv": [
        (b"1\tU1\t\tN1-1\n", "behaviors.tsv, line 1: 4 fields"),
        (click("N1-1 N2"), "line 1: impression 'N2' lacks a -0 or -1"),
        (click("N1-2"), "impression 'N1-2' lacks a"),
        (click("N2-1").replace(b"11/12", b"13/12"), "line 1: '13/12/2019 2:14:46 PM' is no time"),
        (click("N1-1", user=""), "behaviors.tsv, line 1: '' is no id"),
        (click("N2-0"), "No link is left"),
    ],
}


@pytest.mark.parametrize("where", DAMAGED)
def test_published_files_are_named_with_the_line(tmp_path, where):
    source, name = where.split()
    options = write(source, tmp_path / "files")
    prepared(source, options, tmp_path / "data")
    good = store.load(tmp_path / "data", "x").fingerprint
    for content, message in DAMAGED[where]:
        (tmp_path / "files" / name).write_bytes(content)
        error, _ = prepared(source, options, tmp_path / "data")
        assert isinstance(error, DataError)
        assert message in str(error)
        assert store.load(tmp_path / "data", "x").fingerprint == good, "the previous data are lost"
