"""Small tables of links and items as files of every format, files of MIND as they are published,
and the data sets that are prepared of them.
"""

import bz2
import csv
import gzip
import json
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ncfbench import data
from ncfbench.data import store
from ncfbench.data.sources import custom, mind

LINKS = [
    {"userId": 7, "movieId": 30, "rating": 4.0, "timestamp": 50},
    {"userId": 10, "movieId": 5, "rating": 2.5, "timestamp": 10},
    {"userId": 7, "movieId": 5, "rating": 5.0, "timestamp": 20},
    {"userId": 9, "movieId": 100, "rating": 3.0, "timestamp": 30},
    {"userId": 9, "movieId": 30, "rating": 4.5, "timestamp": 45},
    {"userId": 10, "movieId": 77, "rating": 1.0, "timestamp": 99},
]
ITEMS = [
    {"movieId": 100, "title": 'The "Red", Fish', "genres": "Drama|War"},
    {"movieId": 5, "title": "Blue\nfish", "genres": "War"},
    {"movieId": 30, "title": "Dogs; cats", "genres": ""},
    {"movieId": 8, "title": "Nobody's", "genres": "War"},
]


def as_csv(path, rows, delimiter=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def as_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def as_parquet(path, rows):
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([*rows]), path)
    return path


def squeezed(path, rows, squeeze):
    plain = (as_jsonl if ".jsonl" in path.name else as_csv)(path.with_suffix(".plain"), rows)
    path.write_bytes(squeeze(plain.read_bytes()))
    return path


FORMATS = {
    "csv": as_csv,
    "jsonl": as_jsonl,
    "parquet": as_parquet,
    "tsv": lambda path, rows: as_csv(path, rows, "\t"),
    "semicolons.csv": lambda path, rows: as_csv(path, rows, ";"),
    "csv.gz": lambda path, rows: squeezed(path, rows, partial(gzip.compress, mtime=0)),
    "jsonl.bz2": lambda path, rows: squeezed(path, rows, bz2.compress),
    "csv.zst": lambda path, rows: squeezed(
        path, rows, lambda text: pa.compress(text, "zstd", asbytes=True)
    ),
}


def prepare(folder, links=LINKS, items=ITEMS, **options):
    """Prepare files, or rows as CSV files r.csv and m.csv; return the data set and the messages."""
    one, two = (
        rows if isinstance(rows, Path) else as_csv(folder / name, rows)
        for name, rows in (("r.csv", links), ("m.csv", items))
    )
    said = []
    usual = {"validation_fraction": 0.0, "test_fraction": 0.34}
    chosen = custom.Options(links=one, items=two, **(usual | options))
    data.prepare("custom", chosen, folder / "data", "x", replace=True, say=said.append)
    return store.load(folder / "data", "x"), said


def ids_of(ids):
    """The source's ids of users or items, which there must be."""
    return ids.to_pylist()


def named(dataset, users, items):
    names = ids_of(dataset.user_ids), ids_of(dataset.item_ids)
    pairs = zip(users, items, strict=True)
    return sorted((names[0][user], names[1][item]) for user, item in pairs)


def named_links(dataset):
    return named(dataset, dataset.users, dataset.items)


def texts_of(dataset):
    words = ["", *dataset.vocabulary]
    texts = map(dataset.texts.__getitem__, range(dataset.n_items))
    return [[words[token] for token in text] for text in texts]


def words_of(dataset):
    return dict(zip(ids_of(dataset.item_ids), texts_of(dataset), strict=True))


def news(id_, title, abstract="", category="sports", subcategory="golf"):
    return f"{id_}\t{category}\t{subcategory}\t{title}\t{abstract}\thttps://example.com/{id_}\t[]\t[]\n"


def behavior(number, user, history, impressions):
    return f"{number}\t{user}\t11/12/2019 2:14:46 PM\t{history}\t{impressions}\n"


NEWS = [
    news("N10", 'The "Old" dog', "An old dog, at 10:30."),
    news("N2", "Red fish"),
    news("N9", 'A " quote', "fish", "news", "newsworld"),
    news("N1", "Never clicked", "dog"),
]
BEHAVIORS = [
    behavior(1, "U20", "N9 N77", "N10-1 N2-0 N1-0"),
    behavior(2, "U3", "", "N2-1 N10-1"),
    behavior(3, "U20", "N9 N77", "N10-1 N9-0"),
    behavior(4, "U100", "N2", "N1-0 N88-1"),
    behavior(5, "U4", "N10 N9", "N1-0"),
]


def write_files(folder, files):
    """Make a folder with these files: bytes by name, or rows in the format of the suffix."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            FORMATS[name.partition(".")[2]](folder / name, content)
    return folder


def articles(texts):
    """Rows of CiteULike's articles from titles and abstracts."""
    names = ("doc.id", "title", "citeulike.id", "raw.title", "raw.abstract")
    rows = ((n, text[0].lower(), 100 + n, *text) for n, text in enumerate(texts, start=1))
    return [dict(zip(names, row, strict=True)) for row in rows]


LIBRARY = {
    "users.dat": b"3 0 2 4\n1 2\n2 1 3\n",
    "raw-data.csv": articles(
        [
            *[("Red fish", 'Blue, "green"\nfish'), ("Old {D}og", ""), ("Fish", "dog")],
            *[("Empty", ""), ("New cat", "cat cat")],
        ]
    ),
    "item-tag.dat": b"2 0 1\n0\n1 2\n1 0\n2 2 1\n",
    "tags.dat": b"big-fish\npet\nred_dog\n",
}
"""Files of CiteULike: three users, five articles."""


def mind_files(news_lines=NEWS, behaviors=BEHAVIORS):
    return {
        "news.tsv": "".join(news_lines).encode(),
        "behaviors.tsv": "".join(behaviors).encode(),
    }


def prepare_mind(folder, data_dir, **options):
    said = []
    usual = {"test_fraction": 0.0, "validation_fraction": 0.0}
    chosen = mind.Options(from_=folder, **(usual | options))
    return data.prepare("mind", chosen, data_dir, replace=True, say=said.append), said
