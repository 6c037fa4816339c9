"""Files of a data set's content; data/README.md lists them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ncfbench.data.content import Content
from ncfbench.data.text import Texts, Vocabulary
from ncfbench.storage import tables

ARRAYS: Mapping[str, tuple[type[np.generic], int]] = {
    "links": (np.int32, 2),
    "words": (np.int32, 1),
    "lengths": (np.int32, 1),
    "split": (np.uint8, 1),
    "held_out": (np.uint8, 1),
    "item_features": (np.float32, 2),
}
"""Type and number of axes of each ``.npy`` file."""
VOCABULARY = pa.schema([("word", pa.string()), ("count", pa.int64())])
IDS = pa.schema([("id", pa.string())])
TABLES = {"vocabulary": VOCABULARY, "user_ids": IDS, "item_ids": IDS}
"""Schema of each ``.parquet`` file."""
OPTIONAL = [field.name for field in dataclasses.fields(Content) if field.default is None]
"""Files that a data set may lack, named as the fields of its content, which may be None."""


def _path(folder: Path, part: str) -> Path:
    return folder / f"{part}{'.npy' if part in ARRAYS else '.parquet'}"


def write(folder: Path, content: Content) -> None:
    """Write the files of a content into a new folder."""
    folder.mkdir()
    parts = vars(content) | {
        "links": (content.users, content.items),
        "words": content.texts.words,
        "lengths": content.texts.lengths,
        "vocabulary": (content.vocabulary.words, content.vocabulary.counts),
        "user_ids": [content.user_ids],
        "item_ids": [content.item_ids],
    }
    for part, (dtype, _) in ARRAYS.items():
        if parts[part] is not None:
            tables.write_array(_path(folder, part), parts[part], dtype)
    for part, schema in TABLES.items():
        if parts[part][0] is not None:
            table = pa.table(list(parts[part]), schema=schema)
            tables.write_table(_path(folder, part), [table], schema)


def read(folder: Path, n_users: int) -> Content:
    """Map the files of a content into memory; a DataError where one is missing or damaged."""
    parts: dict[str, Any] = {}
    for part in (*ARRAYS, *TABLES):
        path = _path(folder, part)
        if part in OPTIONAL and not path.exists():
            parts[part] = None
        elif part in ARRAYS:
            parts[part] = tables.read_array(path, *ARRAYS[part])
        elif part == "vocabulary":
            columns = tables.read_table(path, VOCABULARY)
            parts[part] = Vocabulary(*(tuple(column.to_pylist()) for column in columns.columns))
        else:
            parts[part] = tables.read_table(path, IDS)["id"].combine_chunks()
    users, items = parts.pop("links")
    texts = Texts(parts.pop("words"), parts.pop("lengths"))
    return Content(n_users=n_users, users=users, items=items, texts=texts, **parts)
