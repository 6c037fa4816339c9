"""A file of the histories of users whom training does not know: a row for each user and item."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.ids import encode, positions
from ncfbench.data.sources.custom_columns import choose_id
from ncfbench.data.store import Dataset
from ncfbench.data.table import read_table
from ncfbench.data.text import Int32
from ncfbench.errors import DataError


class NewUsers(NamedTuple):
    """Users and their histories."""

    names: pa.StringArray
    """The ids of U users, in the order of the file."""
    items: Int32
    """int32[N]: item ids, user after user, those of a user's last rows first, each once."""
    offsets: NDArray[np.int64]
    """int64[U + 1]: where the items of each user begin."""


def read_new_users(
    path: Path,
    dataset: Dataset,
    is_usable: NDArray[np.bool_],
    say: Callable[[str], None],
    *,
    user_column: str | None = None,
    item_column: str | None = None,
) -> NewUsers:
    """Read a table of histories, in any format of ``ncfbench prepare custom``.

    Args:
        dataset: whose ids the items have.
        is_usable: bool[n_items], which items count; rows of others are counted as left out.
        say: receives what is left out, a line each.
        user_column, item_column: columns of ids; by default those of a usual name.

    Raises:
        DataError: the file cannot be read, has no such column, or no row with a usable item.
    """
    table = read_table(path)
    for warning in table.warnings:
        say(warning)
    users, items = (
        encode(table[choose_id(what, table, asked)])
        for what, asked in (("user", user_column), ("item", item_column))
    )
    own = dataset.item_ids
    if own is None:
        own = pa.array(np.arange(dataset.n_items)).cast(pa.string())
    ids = np.append(positions(items.names, own), -1)[items.codes]
    has_ids = (users.codes >= 0) & (items.codes >= 0)
    is_known = has_ids & (ids >= 0)
    is_kept = is_known & is_usable[ids]
    for count, what in (
        (~has_ids, "without a user or an item"),
        (has_ids & ~is_known, f"of items that {dataset.name} does not have"),
        (is_known & ~is_kept, "of items without training links, whose vectors are not trained"),
    ):
        if count.any():
            say(f"Left out, rows of {path.name} {what}: {int(count.sum()):,} of {len(count):,}.")
    if not is_kept.any():
        raise DataError(
            f"{path} has no row with a user and an item of {dataset.name} that training knows."
            " Items are named as in the data that were prepared."
        )
    # The last rows first.
    user, item = users.codes[is_kept][::-1], ids[is_kept][::-1]
    _, first = np.unique(user.astype(np.int64) * dataset.n_items + item, return_index=True)
    first.sort()
    user, item = user[first], item[first]
    order = np.argsort(user, kind="stable")
    present, counts = np.unique(user, return_counts=True)
    if missing := len(users.names) - len(present):
        say(f"Left out, users of {path.name} of whom no row is left: {missing:,}.")
    return NewUsers(
        users.names.take(pa.array(present)), item[order], np.cumsum([0, *counts.tolist()])
    )
