"""Pretrained word vectors: read from a file, matched with a data set's words, kept beside them."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from ncfbench.catalog import find_encoder
from ncfbench.config import RunConfig
from ncfbench.data.assets.architecture import DIGITS
from ncfbench.data.assets.kept import WORD_VECTORS
from ncfbench.data.content_files import VOCABULARY
from ncfbench.data.features import Float32
from ncfbench.data.files import read_lines, sha256
from ncfbench.data.store import Dataset
from ncfbench.errors import DataError, UsageError
from ncfbench.storage import tables


def keep_word_vectors(file: Path, dataset: Dataset, say: Callable[[str], None]) -> str:
    """Read word vectors, keep those of a data set's words beside it, and return their digest.

    Args:
        file: word2vec's or GloVe's text format, a word and its numbers on a line; or a ``.npy``
            file of float32[W, E] with rows in the order of ``vocabulary.parquet``.
    """
    digest = sha256(file)[:DIGITS]
    path = WORD_VECTORS.path(dataset.folder, digest)
    vocabulary = tables.read_table(path.with_name("vocabulary.parquet"), VOCABULARY)
    words, counts = vocabulary["word"].to_pylist(), vocabulary["count"].to_numpy()
    table = _from_array(file, len(words)) if file.suffix == ".npy" else _from_text(file, words)
    _require_whole_rows(file, table)
    is_known = ~np.isnan(table[:, 0])
    if not is_known.any():
        raise DataError(
            f"{file} has a vector for none of the {len(words):,} words of the data set."
        )
    # Row 0 is padding.
    table = np.concatenate([np.full((1, table.shape[1]), np.nan, np.float32), table])
    if not _is_kept(path, table):
        tables.write_array(path, table)
    share = counts[is_known].sum() / max(counts.sum(), 1)
    say(
        f"Word vectors {digest}: {is_known.sum():,} of {len(words):,} words,"
        f" {100 * share:.0f} % of tokens."
    )
    return digest


def initial_words(config: RunConfig, dataset: Dataset) -> Float32 | None:
    """Return the vectors with which the encoder's words begin, float32[W + 1, E], NaN where a word
    has none; None where all begin at random.

    Raises:
        DataError: the kept file is damaged.
        UsageError: they were not kept for this data set, or have not ``word_dimension`` numbers.
    """
    digest = config.word_vectors
    if not digest or not find_encoder(config.encoder).reads("word_vectors"):
        return None
    with WORD_VECTORS.opened(dataset, digest) as path:
        table: Float32 = tables.read_array(path, np.float32, 2)
        if len(table) != dataset.n_words + 1:
            raise DataError(f"{path} is damaged: it must have {dataset.n_words + 1:,} rows.")
        if table.shape[1] == config.word_dimension:
            _require_whole_rows(path, table[1:])
            return table
    raise UsageError(
        f"The word vectors {digest} have {table.shape[1]} numbers each, and word_dimension ="
        f" {config.word_dimension}. Use --word-dimension {table.shape[1]}."
    )


def _is_kept(path: Path, table: Float32) -> bool:
    with suppress(DataError):
        return np.array_equal(tables.read_array(path, np.float32, 2), table, equal_nan=True)
    return False


def _require_whole_rows(file: Path, table: Float32) -> None:
    """Refuse a row that is neither finite nor NaN alone, which stands for a word without one."""
    if not table.shape[1]:
        raise DataError(f"{file} has no vectors: a row must hold a word's numbers.")
    is_wrong = ~np.isfinite(table).all(axis=1) & ~np.isnan(table).all(axis=1)
    if is_wrong.any():
        raise DataError(
            f"{file}, row {np.argmax(is_wrong) + 1}: a word's numbers must be finite, or all NaN"
            " where it has no vector."
        )


def _from_array(file: Path, n_words: int) -> Float32:
    table = tables.read_array(file, np.float32, 2)
    if len(table) != n_words:
        raise DataError(
            f"{file} has {len(table):,} rows, and the data set has {n_words:,} words: there must be"
            " one row for each, in the order of vocabulary.parquet."
        )
    return table


def _from_text(file: Path, words: list[str]) -> Float32:
    """Return float32[W, E]; of a word that the file has twice the first vector counts."""
    rows = {word: row for row, word in enumerate(words)}
    table = np.zeros((0, 0), np.float32)
    for number, line in enumerate(read_lines(file, on_invalid=lambda number: None), 1):
        word, *numbers = line.rstrip().split(" ")
        is_header = number == 1 and len(numbers) == 1 and (word + numbers[0]).isdigit()
        if not word or is_header:
            continue
        if not len(table):
            table = np.full((len(words), len(numbers)), np.nan, np.float32)
        row = rows.pop(unicodedata.normalize("NFC", word), None)
        if row is None:
            continue
        try:
            table[row] = np.array(numbers, np.float32).reshape(table.shape[1])
        except ValueError:
            table[row] = np.nan
        if not np.isfinite(table[row]).all():
            raise DataError(
                f"{file}, line {number}: {word!r} must have {table.shape[1]} finite numbers, like"
                " the first word."
            )
    return table
