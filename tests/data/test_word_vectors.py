"""Pretrained word vectors: files, coverage, the run's first parameters and identity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest
from flax import nnx
from invoked import invoke

from ncfbench.config import RunConfig, complete, digest
from ncfbench.data.assets import name_files
from ncfbench.data.assets.kept import WORD_VECTORS
from ncfbench.data.assets.word_vectors import _from_text, initial_words, keep_word_vectors
from ncfbench.data.store import load
from ncfbench.errors import DataError, UsageError
from ncfbench.models.towers import make_towers

LENGTH = 3


@pytest.fixture
def vocabulary(data_dir: Path) -> Any:
    (path,) = data_dir.glob("tiny/*/vocabulary.parquet")
    return pq.read_table(path).to_pydict()


@pytest.mark.parametrize("header", ["", "4 3\n"])
def test_text_files(data_dir: Path, tmp_path: Path, vocabulary: Any, header: str) -> None:
    """GloVe's, and word2vec's with its first line; unknown words are left out."""
    words, file = vocabulary["word"], tmp_path / "vectors.txt"
    lines = [f"{words[4]} 1 2 -3.5", "zebra 7 7 7", f"{words[0]} 1e-2 5 6", f"{words[4]} 9 9 9"]
    file.write_text(header + "\n".join(lines) + "\n")
    said: list[str] = []
    dataset = load(data_dir, "tiny")
    kept = keep_word_vectors(file, dataset, said.append)
    expected = np.full((len(words) + 1, LENGTH), np.nan)
    expected[5], expected[1] = [1, 2, -3.5], [0.01, 5, 6]
    np.testing.assert_allclose(initial_words(given(kept), dataset), expected)
    share = (vocabulary["count"][4] + vocabulary["count"][0]) / sum(vocabulary["count"])
    coverage = f"2 of {len(words)} words, {100 * share:.0f} % of tokens"
    assert said == [f"Word vectors {kept}: {coverage}."]


def test_accents_may_be_composed_or_not(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("caf\u0065\u0301 1 2\n", encoding="utf-8")
    table = _from_text(tmp_path / "vectors.txt", ["caf\u00e9"])
    assert table.tolist() == [[1, 2]]


def given(digest: str) -> RunConfig:
    return complete({"encoder": "bow", "word_dimension": LENGTH, "word_vectors": digest})


def array_file(folder: Path, vocabulary: Any) -> Path:
    table = np.random.default_rng(0).normal(size=(len(vocabulary["word"]), LENGTH))
    table[7] = np.nan
    np.save(folder / "vectors.npy", table.astype(np.float32))
    return folder / "vectors.npy"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{word} 1 2\n{other} 1\n", "line 2: '{other}' must have 2 finite numbers"),
        ("{word} 1 nan\n", "line 1: '{word}' must have 2 finite numbers"),
        ("{word} 1 x\n", "line 1: '{word}' must have 2 finite numbers"),
        ("zebra 1 2\n", "a vector for none of the"),
        ("zebra\n", "has no vectors"),
        *(
            ((3, *where, value), "npy, row 4: a word's numbers must be finite, or all NaN")
            for *where, value in ((0, np.nan), (2, np.nan), (1, np.inf), (-np.inf,))
        ),
    ],
)
def test_damaged_files_are_refused(
    data_dir: Path, tmp_path: Path, vocabulary: Any, content: Any, message: str
) -> None:
    """A text is that of a file; an index and a value change an array."""
    names = {"word": vocabulary["word"][0], "other": vocabulary["word"][1]}
    file = tmp_path / "vectors.txt"
    if isinstance(content, str):
        file.write_text(content.format(**names))
    else:
        file = array_file(tmp_path, vocabulary)
        table = np.load(file)
        table[content[:-1]] = content[-1]
        np.save(file, table)
    with pytest.raises(DataError) as caught:
        keep_word_vectors(file, load(data_dir, "tiny"), print)
    assert message.format(**names) in str(caught.value)


def test_a_damaged_copy_is_repaired(data_dir: Path, tmp_path: Path, vocabulary: Any) -> None:
    dataset = load(data_dir, "tiny")
    file = array_file(tmp_path, vocabulary)
    digest = keep_word_vectors(file, dataset, print)
    copy = WORD_VECTORS.path(dataset.folder, digest)
    whole = copy.read_bytes()
    fewer, wrong = np.load(copy)[1:], np.load(copy)
    wrong[1, 1] = np.nan
    for damage, words in (
        (lambda: copy.write_bytes(whole[:-4]), "Cannot read"),
        (lambda: np.save(copy, fewer), "it must have"),
        (lambda: np.save(copy, wrong), "row 1: a word's numbers must be finite"),
    ):
        damage()
        with pytest.raises(DataError, match=rf"{words}.*\. Give their file again, with --word-vec"):
            initial_words(given(digest), dataset)
        assert keep_word_vectors(file, dataset, print) == digest
        assert copy.read_bytes() == whole
    np.save(file, np.zeros((len(vocabulary["word"]), 0), np.float32))
    with pytest.raises(DataError, match="has no vectors"):
        keep_word_vectors(file, dataset, print)


def test_words_begin_with_them(data_dir: Path, tmp_path: Path, vocabulary: Any) -> None:
    """All other parameters, and words without a vector, are those of the seed. The file is needed
    once.
    """
    file = array_file(tmp_path, vocabulary)
    said: list[str] = []
    small = {"dataset": "tiny", "encoder": "bow", "word_dimension": LENGTH}
    given = name_files(small | {"word_vectors": str(file)}, data_dir, said.append)
    assert f"{len(vocabulary['word']) - 1} of {len(vocabulary['word'])} words" in said[0]
    expected = np.load(file)
    file.unlink()
    assert name_files(given, data_dir, said.append) == given
    towers = [make_towers(complete(each), load(data_dir, "tiny")) for each in (given, small)]
    begun, random = (nnx.to_pure_dict(nnx.state(each)) for each in towers)
    words, others = (
        np.asarray(each["encoder"]["words"].pop("embedding")) for each in (begun, random)
    )
    np.testing.assert_array_equal(np.delete(words, [0, 8], axis=0), np.delete(expected, 7, axis=0))
    np.testing.assert_array_equal(words[[0, 8]], others[[0, 8]])
    jax.tree.map(np.testing.assert_array_equal, begun, random)
    assert digest(complete(given)) != digest(complete(small))
    for encoder in ("mf", "transformer"):
        unused, plain = (complete(each | {"encoder": encoder}) for each in (given, small))
        assert digest(unused) == digest(plain)
    np.save(file, expected[1:])
    with pytest.raises(DataError, match="one row for each"):
        keep_word_vectors(file, load(data_dir, "tiny"), print)


def test_a_run_from_the_command_line(data_dir: Path, tmp_path: Path, vocabulary: Any) -> None:
    """It prints the coverage; another length is refused before a folder is made."""
    file = array_file(tmp_path, vocabulary)
    words = ["run", "--dataset", "tiny", "--encoder", "bow", "--epochs", "1", "--batch-size", "512"]
    words += ["--data-dir", str(data_dir), "--runs-dir", str(tmp_path / "runs")]
    done = invoke(*words, "--word-vectors", str(file))
    assert done.exit_code == 2
    assert "have 3 numbers each, and word_dimension = 50" in " ".join(done.output.split())
    done = invoke(*words, "--word-vectors", "none")
    assert done.exit_code != 0
    assert "none" in done.output
    assert not (tmp_path / "runs").exists()
    done = invoke(*words, "--word-vectors", str(file), "--word-dimension", "3")
    assert done.exit_code == 0, done.output
    assert "% of tokens" in done.output
    with pytest.raises(UsageError, match="is not the digest of word vectors"):
        complete({"word_vectors": "vectors.txt"})
