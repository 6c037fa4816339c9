"""Small files in the formats of every source, and what can go wrong with a file, by a seed."""

import csv
import gzip
import io
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from mind_files import BEHAVIORS, NEWS, behavior

from ncfbench.data.sources import SOURCES

MOST_BYTES = 2**18
"""Bytes that a line may have in these tests."""
Damage = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Source:
    """Files by name, and options of ``ncfbench prepare``; a path is relative to their folder."""

    name: str
    options: Mapping[str, Any]
    files: Mapping[str, bytes]

    def write(self, folder):
        """Write the files, and return the source's options."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        options = {
            name: folder / value if isinstance(value, Path) else value
            for name, value in self.options.items()
        }
        return SOURCES[self.name].load().Options(**options)


def _table(header, rows):
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header.split(","))
    writer.writerows(rows)
    return out.getvalue().encode()


def _jsonl(table):
    rows = pacsv.read_csv(pa.BufferReader(table)).to_pylist()
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _parquet(table):
    out = io.BytesIO()
    pq.write_table(pacsv.read_csv(pa.BufferReader(table)), out)
    return out.getvalue()


RATINGS = _table(
    "userId,movieId,rating,timestamp",
    [(n % 7, n % 11 + 1, 1 + n % 5, 10**9 + 60 * n) for n in range(60)],
)
MOVIES = _table(
    "movieId,title,genres", [(n + 1, f'The "{n}." Été, of {n * n}', "Drama|War") for n in range(11)]
)


def _custom(links, items, ratings, movies, **more):
    options = {"links": Path(links), "items": Path(items), **more}
    return Source("custom", options, {links: ratings, items: movies})


CLICKS = [*BEHAVIORS, behavior(6, "U5", "", "N9-1 N1-1")]
USERS = b"3 0 2 4\n1 2\n2 1 3\n4 0 1 2 3\n2 5 6\n"
FOLDER = {"from_": Path(), "allow_unverified": True}
CASES: dict[str, Source] = {
    "csv": _custom("r.csv", "m.csv", RATINGS, MOVIES, rating_threshold=2, hold_out="newest-items"),
    "tsv": _custom(
        "r.tsv",
        "m.tsv",
        RATINGS.replace(b",", b"\t"),
        b"id\ttext\n" + b"".join(b"%d\tx y%d\n" % (n, n) for n in range(12)),
    ),
    "jsonl": _custom("r.jsonl", "m.jsonl", _jsonl(RATINGS), _jsonl(MOVIES), rating_threshold=2),
    "parquet": _custom(
        "r.parquet", "m.parquet", _parquet(RATINGS), _parquet(MOVIES), hold_out="newest-items"
    ),
    "gzip": _custom(
        "r.csv.gz",
        "m.jsonl.gz",
        gzip.compress(RATINGS, mtime=0),
        gzip.compress(_jsonl(MOVIES), mtime=0),
    ),
    "citeulike": Source(
        "citeulike",
        {**FOLDER, "text": ("title", "abstract", "tags")},
        {
            "users.dat": USERS,
            "raw-data.csv": _table(
                "doc.id,title,citeulike.id,raw.title,raw.abstract",
                [
                    (n + 1, f"t {n}", 40 + n, f"Title {n}, é", f'an "abstract"\nof {n} words')
                    for n in range(7)
                ],
            ),
            "item-tag.dat": b"2 0 1\n0\n1 2\n1 0\n2 2 1\n1 1\n1 0\n",
            "tags.dat": b"big-fish\npet\nred_dog\n",
        },
    ),
    "raw": Source(
        "citeulike-t",
        FOLDER,
        {
            "users.dat": USERS,
            "rawtext.dat": b"".join(
                b"##%d\nA text of %d words,\nin lines \xe2\x80\x93 two\n" % (n, n) for n in range(7)
            ),
        },
    ),
    "mind": Source(
        "mind",
        {"from_": Path()},
        {
            "news.tsv": "".join(NEWS).encode(),
            "behaviors.tsv": "".join(CLICKS).encode(),
        },
    ),
}


def _lines(content):
    return content.splitlines(keepends=True)


def _at(content, rng, put):
    """One line replaced, any but the first where there are others."""
    lines = _lines(content)
    number = rng.randrange(min(1, len(lines) - 1), len(lines))
    lines[number] = put(lines[number])
    return b"".join(lines)


def _flipped(content, rng):
    damaged = bytearray(content)
    for _ in range(3):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _number(content, rng, put):
    """One of the numbers behind the first line replaced."""
    digits = [
        index
        for index in range(content.find(b"\n") + 1, len(content))
        if content[index : index + 1].isdigit()
    ]
    index = rng.choice(digits or [0])
    return content[:index] + put + content[index + 1 :]


DAMAGES: dict[str, Damage] = {
    "cut in half": lambda content, rng: content[: len(content) // 2],
    "cut at random": lambda content, rng: content[: rng.randrange(1, len(content))],
    "last byte gone": lambda content, rng: content[:-2],
    "empty": lambda content, rng: b"",
    "blank lines only": lambda content, rng: b"\n \n\n",
    "first line only": lambda content, rng: _lines(content)[0],
    "first line gone": lambda content, rng: b"".join(_lines(content)[1:]),
    "wrong delimiter": lambda content, rng: (
        content.replace(b",", b";").replace(b"\t", b"|").replace(b" ", b",")
    ),
    "other delimiter in a line": lambda content, rng: _at(
        content, rng, lambda line: line.replace(b",", b";").replace(b" ", b";")
    ),
    "line twice": lambda content, rng: _at(content, rng, lambda line: line + line),
    "line gone": lambda content, rng: _at(content, rng, lambda line: b""),
    "everything twice": lambda content, rng: content + content,
    "spaces and commas": lambda content, rng: _number(content, rng, b'" 1, 2 "'),
    "byte order mark": lambda content, rng: b"\xef\xbb\xbf" + content,
    "windows line ends": lambda content, rng: content.replace(b"\n", b"\r\n"),
    "latin-1 in the middle": lambda content, rng: _at(
        content, rng, lambda line: line[:-1] + b" caf\xe9 \n"
    ),
    "utf-16": lambda content, rng: content.decode("utf-8", "replace").encode("utf-16"),
    "not a number": lambda content, rng: _number(content, rng, b"NaN"),
    "infinite": lambda content, rng: _number(content, rng, b"1e999"),
    "negative": lambda content, rng: _number(content, rng, b"-3"),
    "huge number": lambda content, rng: _number(content, rng, b"9" * 40),
    "nothing there": lambda content, rng: _number(content, rng, b""),
    "huge line": lambda content, rng: _at(
        content, rng, lambda line: line[:-1] + b"x" * MOST_BYTES + b"\n"
    ),
    "zero bytes": lambda content, rng: _at(content, rng, lambda line: line[:-1] + b"\0\0\n"),
    "open quote": lambda content, rng: _at(content, rng, lambda line: b'"' + line),
    "bits flipped": _flipped,
    "noise": lambda content, rng: rng.randbytes(300),
    "compressed": lambda content, rng: gzip.compress(content, mtime=0),
    "compressed and cut": lambda content, rng: gzip.compress(content, mtime=0)[:-9],
    "archive": lambda content, rng: b"PK\x03\x04" + content,
    "web page": lambda content, rng: b"<!DOCTYPE html>\n<html><title>404</title>\n" + content,
}
"""Damages of a file's content, by name."""
HARMLESS = {"windows line ends", "byte order mark"}
"""Damages that no text file minds."""
