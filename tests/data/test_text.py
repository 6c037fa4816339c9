from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ncfbench.data.options import TextOptions
from ncfbench.data.text import Corpus, Texts
from ncfbench.errors import DataError


def finished(texts, min_count, length):
    options = TextOptions(min_count=min_count, max_length=length)
    corpus = Corpus(options)
    for tokens in texts:
        corpus.add(tokens)
    return corpus.finish()


def plain(texts, min_count, length):
    """The same in plain Python."""
    counts = Counter(token for tokens in texts for token in tokens)
    words = sorted(
        (word for word in counts if counts[word] >= min_count),
        key=lambda word: (-counts[word], word),
    )
    return [
        [words.index(token) + 1 for token in tokens if token in words][:length] for tokens in texts
    ], words


def test_vocabulary_by_count_then_alphabet():
    texts = [["b", "a", "a", "c"], ["c", "b", "d"], ["c"]]
    found, vocabulary = finished(texts, 2, 2)
    assert vocabulary == ("c", "a", "b")
    assert [found[item].tolist() for item in range(3)] == [[3, 2], [1, 3], [1]]
    with pytest.raises(DataError, match="No word is left of 3 texts with min_count = 9"):
        finished(texts, 9, 9)


@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12), min_size=1, max_size=10).filter(
        any
    ),
    st.integers(1, 4),
    st.integers(1, 6),
)
def test_words_are_kept_by_count_and_cut(texts, min_count, length):
    expected, words = plain(texts, min_count, length)
    assume(words)
    found, vocabulary = finished(texts, min_count, length)
    assert [found[item].tolist() for item in range(len(texts))] == expected
    assert list(vocabulary) == words


def test_too_many_different_words(monkeypatch):
    monkeypatch.setattr("ncfbench.data.text.MOST_WORDS", 3)
    with pytest.raises(DataError, match="More than 3 different words: is this text"):
        finished([["a", "b", "c", "d"]], 1, 9)


def test_padding():
    texts = Texts(np.array([4, 5, 6, 7, 8], np.int32), np.array([2, 0, 3], np.int32))
    assert texts.padded().tolist() == [[4, 5, 0], [0, 0, 0], [6, 7, 8]]
    assert texts.padded().dtype == np.int32
    assert [texts[item].tolist() for item in range(len(texts))] == [[4, 5], [], [6, 7, 8]]
