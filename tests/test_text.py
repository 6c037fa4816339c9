from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncfbench.datasets.text import Vocabulary, clean_latex, pad, tokenize


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The {C}hicago Manual of Style", ["the", "chicago", "manual", "of", "style"]),
        ("copy-number changes using c{DNA}", ["copy", "number", "changes", "using", "cdna"]),
        (r"Barab{\'a}si and Erd\H{o}s", ["barabási", "and", "erdős"]),
        (r"Barab\{\'a\}si", ["barabási"]),
        (r"M{\"u}ller, Stra{\ss}e, na\"{\i}ve", ["müller", "straße", "naïve"]),
        (r"the $\lambda$-calculus", ["the", "lambda", "calculus"]),
        (r"\emph{very} \textbf{bold}", ["very", "bold"]),
        (r"{{\\textless}I{\\textgreater}Visual} {Explanations{\\textless}/I{\\textgreater},}", ["visual", "explanations"]),
        ("rr_interval ucsc-browser", ["rr", "interval", "ucsc", "browser"]),
        ("ﬁrst Ⅳ 漢字 Ñandú", ["first", "iv", "漢字", "ñandú"]),
        ("a < b and b > a", ["a", "b", "and", "b", "a"]),
        ("", []),
        ("{}\\ -- !", []),
    ],
)
def test_tokens(text: str, tokens: list[str]) -> None:
    assert tokenize(text) == tokens


@given(st.text())
def test_tokens_are_lower_case_letters_and_digits(text: str) -> None:
    for token in tokenize(text):
        assert token
        assert "_" not in token
        assert token == token.lower()
        assert not any(character.isspace() for character in token)


@given(st.text(alphabet=st.characters(exclude_characters="\\{}<>")))
def test_text_without_latex_is_left_alone(text: str) -> None:
    assert clean_latex(text) == text


def test_vocabulary_by_count_then_alphabet() -> None:
    texts = [["b", "a", "a", "c"], ["c", "b", "d"], ["c"]]
    vocabulary = Vocabulary.build(texts, min_count=2)
    assert vocabulary.words == ("c", "a", "b")
    assert vocabulary.counts == (3, 2, 2)
    assert Vocabulary.build(texts, min_count=1, size=2).words == ("c", "a")
    assert [row.tolist() for row in vocabulary.encode(texts, 2)] == [[3, 2], [1, 3], [1]]
    assert vocabulary.encode([["zzz"]], 5)[0].tolist() == []


def test_unknown_words_are_left_out_before_the_cut() -> None:
    vocabulary = Vocabulary.build([["a", "a", "b", "b"]], 1)
    assert vocabulary.encode([["x", "a", "y", "b", "a"]], 2)[0].tolist() == [1, 2]


def test_padding() -> None:
    tokens, lengths = pad([np.array([4, 5], np.int32), np.zeros(0, np.int32), np.array([6, 7, 8], np.int32)])
    assert tokens.tolist() == [[4, 5, 0], [0, 0, 0], [6, 7, 8]]
    assert lengths.tolist() == [2, 0, 3]
    assert tokens.dtype == lengths.dtype == np.int32
