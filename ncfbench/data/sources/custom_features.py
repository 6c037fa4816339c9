"""Dense features of users' own items and users: a table with ids, or an array in the items' order.

A table is a CSV, TSV, JSON Lines or Parquet file with a column of ids; all its other columns are
features, each a number or a list of numbers in every row. An array is a ``.npy`` file of two axes
whose row i belongs to row i of the file of items.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.features import MAX_FEATURES, Float32, first_not_finite, standardise
from ncfbench.data.ids import positions
from ncfbench.data.readers import columns
from ncfbench.data.readers.opening import open_rows
from ncfbench.data.readers.rows import RowFile
from ncfbench.data.sources.custom_columns import choose_id, named
from ncfbench.errors import DataError, UsageError, reason

if TYPE_CHECKING:
    from ncfbench.data.sources.custom import Options
    from ncfbench.data.sources.custom_columns import Columns


@dataclass(frozen=True)
class FeatureTable:
    """Features by id.

    Args:
        what: "item" or "user", for messages.
        names: the columns that hold features.
    """

    rows: RowFile
    what: str
    id: str
    names: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The file."""
        return self.rows.path

    def describe(self) -> str:
        """Return what was chosen."""
        shown = ", ".join(self.names[:5]) + (", ..." if len(self.names) > 5 else "")
        return (
            f"Features of {self.what}s: {self.path.name} ({self.rows.summary}): id {self.id},"
            f" columns {shown}."
        )

    def read(self, ids: pa.StringArray) -> Float32:
        """Return float32[n, F]: the features of each id. Of rows with the same id the first counts.

        Raises:
            DataError: a value is no finite number of float32, a list is longer or shorter than
                others, or an id has no row; the message names the row or the id.
        """
        found: Float32 | None = None
        has_row = np.zeros(len(ids), bool)
        for start, batch in self.rows.batches([self.id, *self.names]):
            own = columns.ids(batch[self.id], self.rows, start, self.id).fill_null("")
            position = positions(own, ids)
            _, first = np.unique(position, return_index=True)
            new = first[(position[first] >= 0) & ~has_row[position[first]]]
            parts = [columns.vectors(batch[name], self.rows, start, name) for name in self.names]
            values = np.concatenate(parts, axis=1)
            if found is None:
                _require_width(self.path, values.shape[1])
                found = np.zeros((len(ids), values.shape[1]), np.float32)
            if values.shape[1] != found.shape[1]:
                self.rows.refuse(
                    start,
                    f"{values.shape[1]} features, and {found.shape[1]} in the rows before it.",
                )
            found[position[new]] = values[new]
            has_row[position[new]] = True
        if found is None or not has_row.all():
            missing = ids[int(np.argmin(has_row))].as_py()
            raise DataError(
                f"{self.path} has no features of {int(np.sum(~has_row)):,} of {len(ids):,}"
                f" {self.what}s, for example of {missing[:40]!r}. Each needs a row."
            )
        return found


@dataclass(frozen=True)
class FeatureArray:
    """Features in the order of the items' file."""

    path: Path
    values: NDArray[np.generic]
    """[rows of the items' file, features]: mapped, not read."""

    def describe(self) -> str:
        """Return what was found."""
        rows, width = self.values.shape
        return (
            f"Features of items: {self.path.name} ({rows:,} x {width:,}), in the order of the"
            " items' file."
        )

    def read(self, rows: NDArray[np.int64], n_rows: int) -> Float32:
        """Return float32[n, F]: the features of the items in some rows of their file.

        Args:
            n_rows: number of rows of the items' file.

        Raises:
            DataError: another number of rows, or a number that is not finite; the message names the
                row.
        """
        if len(self.values) != n_rows:
            raise DataError(
                f"{self.path} has {len(self.values):,} rows, and --items {n_rows:,}: row i of"
                " one must belong to row i of the other. A table with ids may have any order."
            )
        with np.errstate(over="ignore"):
            found = np.ascontiguousarray(self.values[rows], np.float32)
        bad = first_not_finite(found)
        if bad is not None:
            raise DataError(
                f"{self.path}, row {rows[bad] + 1}: a value is not a finite number, or too large"
                " for float32 (3.4e38). Correct it, or scale its column down."
            )
        return found


@dataclass(frozen=True)
class Features:
    """Where the dense features of users and of items are; None where there are none."""

    users: FeatureTable | None
    items: FeatureTable | FeatureArray | None

    @classmethod
    def choose(cls, options: Options, chosen: Columns) -> Features:
        """Look at the files, and choose their columns.

        Raises:
            DataError: a file cannot be read, or holds no table of numbers.
            UsageError: a column is missing, or an array is to describe users.
        """
        return cls(_choose_user_features(options, chosen), _choose_item_features(options, chosen))

    def describe(self) -> list[str]:
        """Return what was chosen, a line for each file."""
        return [each.describe() for each in (self.users, self.items) if each is not None]

    def read(
        self,
        user_ids: pa.StringArray,
        item_ids: pa.StringArray,
        *,
        has_links: NDArray[np.bool_],
        is_trained: NDArray[np.bool_],
        rows: NDArray[np.int64],
        n_rows: int,
        say: Callable[[str], None],
    ) -> tuple[Float32 | None, Float32 | None]:
        """Return the standardised features of users and of items.

        Args:
            has_links: bool[users], which users have training links.
            is_trained: bool[items], which items are no held-out ones.
            rows: of the items in their file.
            n_rows: number of rows of that file.

        Raises:
            DataError: a value is no finite number, or is so far from those of training that it
                cannot be standardised, or an id has no row.
        """
        users = self.users.read(user_ids) if self.users else None
        items = None
        if isinstance(self.items, FeatureArray):
            items = self.items.read(rows, n_rows)
        elif self.items:
            items = self.items.read(item_ids)
        for what, file, found, fitted, ids in (
            ("user", self.users, users, has_links, user_ids),
            ("item", self.items, items, is_trained, item_ids),
        ):
            if file is None or found is None:
                continue
            constant = standardise(found, fitted)
            if (bad := first_not_finite(found)) is not None:
                raise DataError(
                    f"{file.path}: {what} {ids[bad].as_py()[:40]!r} has a feature that is too far"
                    f" from those of the training {what}s to be standardised in float32. Correct"
                    " its value."
                )
            if constant:
                say(
                    f"Warning: {constant:,} of {found.shape[1]:,} features of the {what}s are the"
                    " same for all in training, and are set to 0."
                )
        return users, items


def _choose_item_features(options: Options, chosen: Columns) -> FeatureTable | FeatureArray | None:
    """Return where the items' features are; None where none were asked for.

    Raises:
        DataError: the file cannot be read, or holds no table of numbers.
        UsageError: a column is missing.
    """
    if options.feature_columns:
        names = tuple(
            named(name, chosen.items, "--feature-columns") for name in options.feature_columns
        )
        return FeatureTable(chosen.items, "item", chosen.id, names)
    path = options.item_features
    if path is None:
        return None
    if path.suffix == ".npy":
        return _array(path)
    return _table(options, path, "item", chosen.id)


def _choose_user_features(options: Options, chosen: Columns) -> FeatureTable | None:
    """Return where the users' features are; None where none were asked for.

    Raises:
        DataError: the file cannot be read, or holds no table of numbers.
        UsageError: it is an array, whose rows nothing assigns to users.
    """
    path = options.user_features
    if path is None:
        return None
    if path.suffix == ".npy":
        raise UsageError(
            f"--user-features {path}: an array does not say which user a row belongs to. Give a"
            f" table with a column {chosen.user}, such as Parquet with a list in each row."
        )
    return _table(options, path, "user", chosen.user)


def _table(options: Options, path: Path, what: str, usual: str) -> FeatureTable:
    look = partial(
        open_rows, quotes=options.quotes, encoding=options.encoding, delimiter=options.delimiter
    )
    rows = look(path)
    id_ = choose_id(what, usual, rows)
    names = tuple(name for name in rows.columns if name != id_)
    if not names:
        raise DataError(f"{path} has no column beside {id_}: it holds no features.")
    return FeatureTable(rows, what, id_, names)


def _array(path: Path) -> FeatureArray:
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"Cannot read {path}: {reason(error)}.") from error
    if values.ndim != 2 or values.dtype.kind not in "fiub":
        shape = " x ".join(map(str, values.shape))
        raise DataError(
            f"{path} is an array of {values.dtype} of shape {shape}: features are numbers, a row"
            " for each item."
        )
    _require_width(path, values.shape[1])
    return FeatureArray(path, values)


def _require_width(path: Path, width: int) -> None:
    if not 1 <= width <= MAX_FEATURES:
        raise DataError(f"{path}: {width:,} features; 1 to {MAX_FEATURES:,} are supported.")
