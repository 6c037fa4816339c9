"""Files of a data set's content; data/README.md lists them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ncfbench.data.content import Content
from ncfbench.data.text import Texts
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
TABLES = {"vocabulary": "word", "user_ids": "id", "item_ids": "id"}
"""The one column, of strings, of each ``.parquet`` file."""
OPTIONAL = [field.name for field in dataclasses.fields(Content) if field.default is None]
"""Files that a data set may lack, named as the fields of its content, which may be None."""


def write(folder: Path, content: Content) -> None:
    """Write the files of a content into a new folder."""
    folder.mkdir()
    links, texts = (content.users, content.items), content.texts
    parts = {**vars(content), "links": links, "words": texts.words, "lengths": texts.lengths}
    for part, (dtype, _) in ARRAYS.items():
        if parts[part] is not None:
            tables.write_array(folder / f"{part}.npy", parts[part], dtype)
    for part, name in TABLES.items():
        if parts[part] is not None:
            schema = pa.schema([(name, pa.string())])
            table = pa.table([parts[part]], schema=schema)
            tables.write_table(folder / f"{part}.parquet", [table], schema)


def read(folder: Path, n_users: int) -> Content:
    """Map the files of a content into memory; a DataError where one is missing or damaged."""
    parts: dict[str, Any] = {}
    for part in (*ARRAYS, *TABLES):
        path = folder / f"{part}.{'npy' if part in ARRAYS else 'parquet'}"
        if part in OPTIONAL and not path.exists():
            parts[part] = None
        elif part in ARRAYS:
            parts[part] = tables.read_array(path, *ARRAYS[part])
        else:
            schema = pa.schema([(TABLES[part], pa.string())])
            parts[part] = tables.read_table(path, schema)[TABLES[part]].combine_chunks()
    parts["vocabulary"] = tuple(parts["vocabulary"].to_pylist())
    users, items = parts.pop("links")
    texts = Texts(parts.pop("words"), parts.pop("lengths"))
    return Content(n_users=n_users, users=users, items=items, texts=texts, **parts)
