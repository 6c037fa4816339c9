"""``users.dat`` of both CiteULike data sets: line u lists the articles in user u's library."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ncfbench.data.content import distinct_links
from ncfbench.data.readers.lines import read_lists


def read_libraries(
    path: Path, n_items: int, say: Callable[[str], None]
) -> tuple[int, NDArray[np.int32], NDArray[np.int32], int]:
    """The number of users, the two ends of each link, and how many links were named twice.

    Raises:
        DataError: see :func:`ncfbench.data.readers.lines.read_lists`.
    """
    sizes, articles = array("i"), array("i")
    for row in read_lists(path, limit=n_items, what="item"):
        sizes.append(len(row))
        articles.extend(row)
    users = np.repeat(np.arange(len(sizes), dtype=np.int32), np.asarray(sizes))
    users, items, repeated = distinct_links(users, np.asarray(articles))
    if repeated:
        say(f"Warning: {path.name} names {repeated:,} links twice; each counts once.")
    return len(sizes), users, items, repeated
