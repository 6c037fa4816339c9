"""Pretrained word vectors: read from a file, matched with a data set's words, kept beside them.

What is kept has a row for each word of the data set.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ncfbench.catalog import find_encoder
from ncfbench.config import RunConfig
from ncfbench.data.assets.kept import WORD_VECTORS
from ncfbench.data.files import read_lines, sha256
from ncfbench.data.store import VOCABULARY, Dataset
from ncfbench.errors import DataError, UsageError, reason
from ncfbench.storage import tables


def initial_words(config: RunConfig, dataset: Dataset) -> NDArray[np.float32] | None:
    """Return the vectors with which the encoder's words begin; None where all begin at random.

    Raises:
        UsageError: see :func:`load_word_vectors`.
    """
    if not config.word_vectors or not find_encoder(config.encoder).reads("word_vectors"):
        return None
    return load_word_vectors(dataset, config.word_vectors, config.word_dimension)


def keep_word_vectors(file: Path, dataset: Dataset, say: Callable[[str], None]) -> str:
    """Read word vectors, keep those of a data set's words beside it, and return their digest.

    Args:
        file: word2vec's or GloVe's text format, a word and its numbers on a line; or a ``.npy``
            file of float32[W, E] with rows in the order of ``vocabulary.parquet``.
        say: receives how many words have a vector.

    Raises:
        DataError: the file is damaged or has none of the words, or the folder cannot be written.
    """
    home = WORD_VECTORS.path(dataset.folder, "").parent
    vocabulary = tables.read_table(home / "vocabulary.parquet", VOCABULARY)
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
    digest = WORD_VECTORS.keep(dataset, sha256(file), lambda path: tables.write_array(path, table))
    share = counts[is_known].sum() / max(counts.sum(), 1)
    say(
        f"Word vectors {digest}: {is_known.sum():,} of {len(words):,} words,"
        f" {100 * share:.0f} % of tokens."
    )
    return digest


def load_word_vectors(dataset: Dataset, digest: str, length: int) -> NDArray[np.float32]:
    """Return the vectors that were kept, float32[W + 1, E]; NaN for words without one.

    Args:
        length: E, as the encoder needs it.

    Raises:
        DataError: what was kept is damaged.
        UsageError: they were not kept for this data set, or have another length.
    """
    path = WORD_VECTORS.find(dataset, digest)
    with WORD_VECTORS.reading():
        table = tables.read_array(path, np.float32, 2)
        if len(table) != dataset.n_words + 1:
            raise DataError(f"{path} is damaged: it must have {dataset.n_words + 1:,} rows.")
        if table.shape[1] == length:
            _require_whole_rows(path, table[1:])
            return table
    raise UsageError(
        f"The word vectors {digest} have {table.shape[1]} numbers each, and word_dimension ="
        f" {length}. Use --word-dimension {table.shape[1]}."
    )


def _require_whole_rows(file: Path, table: NDArray[np.float32]) -> None:
    """Refuse a row that is neither finite nor NaN alone, which stands for a word without one."""
    if not table.shape[1]:
        raise DataError(f"{file} has no columns: a row must hold the numbers of a word.")
    is_wrong = ~np.isfinite(table).all(axis=1) & ~np.isnan(table).all(axis=1)
    if is_wrong.any():
        raise DataError(
            f"{file}, row {np.argmax(is_wrong) + 1}: a word's numbers must be finite, or all NaN"
            " where it has no vector."
        )


def _from_array(file: Path, n_words: int) -> NDArray[np.float32]:
    table = tables.read_array(file, np.float32, 2)
    if len(table) != n_words:
        raise DataError(
            f"{file} has {len(table):,} rows, and the data set has {n_words:,} words: there must be"
            " one row for each, in the order of vocabulary.parquet."
        )
    return np.asarray(table)


def _from_text(file: Path, words: list[str]) -> NDArray[np.float32]:
    """Return float32[W, E]; a word that stands in the file twice has its first vector.

    Accents may be composed or not.
    """
    rows = {word: row for row, word in enumerate(words)}
    table: NDArray[np.float32] | None = None
    for number, line in enumerate(read_lines(file, on_invalid=lambda number: None), 1):
        word, *numbers = line.rstrip().split(" ")
        is_header = number == 1 and len(numbers) == 1 and (word + numbers[0]).isdigit()
        if not word or is_header:
            continue
        if table is None:
            table = np.full((len(words), len(numbers)), np.nan, np.float32)
        row = rows.pop(unicodedata.normalize("NFC", word), None)
        if row is None:
            continue
        where = f"{file}, line {number}"
        try:
            vector = np.array(numbers, np.float32)
        except ValueError as error:
            raise DataError(f"{where}: {reason(error)}.") from error
        if len(vector) != table.shape[1] or not np.isfinite(vector).all():
            raise DataError(
                f"{where}: {word!r} must have {table.shape[1]} finite numbers, like the first word."
            )
        table[row] = vector
    if table is None or table.shape[1] == 0:
        raise DataError(f"{file} has no vectors: a line must hold a word and its numbers.")
    return table
