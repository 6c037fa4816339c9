# ruff: noqa: RUF001 - letters of many scripts
"""Words of every script, the markup that is removed where it is asked for, and vocabularies."""

import unicodedata
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ncfbench.data.markup import clean_latex
from ncfbench.data.options import TextOptions
from ncfbench.data.sources.citeulike import clean
from ncfbench.data.text import Corpus
from ncfbench.data.words import tokenize
from ncfbench.errors import DataError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rr_interval state-of-the-art", "rr interval state of the art"),
        ("ﬁrst Ⅳ Ñandú x² ＡＢＣ", "first iv ñandú x2 abc"),
        ("don't don’t CD4 3.14", "don t don t cd4 3 14"),
        ("आधुनिक हिन्दी कहानी", "आधुनिक हिन्दी कहानी"),
        ("కలుసుకున్నారు தமிழ் বাংলা", "కలుసుకున్నారు தமிழ் বাংলা"),
        ("قِصَّةُ حُبٍّ שָׁלוֹם", "قِصَّةُ حُبٍّ שָׁלוֹם"),
        ("Vie\u0302\u0323t Việt T\u0308u\u0308r", "việt việt ẗür"),
        ("爱情 电影院 猫。", "爱情 电影 影院 猫"),
        ("東京タワー2020 ｶﾞﾑ", "東京 京タ タワ ワー 2020 ガム"),
        ("น้ำตาล ๒๕๖๓", "น้ำ ำต ตา าล ๒๕๖๓"),
        ("ភាសា ကျွန်တော် ປະ", "ភាសា ကျွန် န်တော် ປະ"),
        ("İstanbul ISTANBUL I\u0307stanbul ıssız", "istanbul istanbul istanbul ıssız"),
        ("ΟΔΟΣ Straße", "οδος straße"),
        ("co\u00adop می\u200cخواهم क्\u200dष \ufeffx a\u200bb", "coop میخواهم क्ष x a b"),
        ("😀😀 ❤\ufe0fa 1\ufe0f\u20e3", "a 1"),
        (r"one\nline\r\ntwo\tthree", "one line two three"),
        (r"l\'amour a \"quoted\" word", "l amour a quoted word"),
        (r"C:\users\bob\notes", "c users bob notes"),
        (r"rock \& roll 50\% R\&B", "rock roll 50 r b"),
        (r"the $\nu$ and \theta", "the nu and theta"),
        ("x<y and y>z <under twelve> <b>", "x y and y z under twelve b"),
        ("{}\\ -- ! \u0301", ""),
    ],
)
def test_words(text, words):
    assert tokenize(text) == unicodedata.normalize("NFC", words).split()


@given(st.text())
def test_words_are_normalised_letters_and_marks(text):
    for word in tokenize(text):
        assert word == unicodedata.normalize("NFC", word) == word.lower()
        assert all(unicodedata.category(c)[0] in "LNM" for c in word)
        assert unicodedata.category(word[0])[0] != "M"


@given(st.text(alphabet="कखािीुे्ंঅআাি"))
def test_no_mark_of_a_word_is_lost(text):
    expected = unicodedata.normalize("NFC", text)
    while expected and unicodedata.category(expected[0])[0] == "M":
        expected = expected[1:]
    assert "".join(tokenize(text)) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("copy-number changes using c{DNA}", "copy number changes using cdna"),
        (r"Barab{\'a}si and Erd\H{o}s", "barabási and erdős"),
        (r"M{\"u}ller, Stra{\ss}e, na\"{\i}ve", "müller straße naïve"),
        (r"the $\lambda$-calculus", "the lambda calculus"),
        (r"\emph{very} \textbf{bold}", "very bold"),
        (
            r"{{\\textless}I{\\textgreater}Visual} {Explanations{\\textless}/I{\\textgreater},}",
            "visual explanations",
        ),
        ('<b>bold</b><BR/><a href="x y" id=z>plain</a> H<sub>2</sub>O', "bold plain h 2 o"),
    ],
)  # fmt: skip
def test_markup_is_removed(text, words):
    assert tokenize(clean_latex(text)) == words.split()
    assert tokenize(clean(f"{text} cient\u00c3\u00adfica")) == [*words.split(), "cientã", "fica"]


@given(st.text(alphabet=st.characters(exclude_characters="\\{}<>&")))
def test_text_without_markup_is_left_alone(text):
    assert clean_latex(text) == text


# --- vocabularies


def finished(texts, min_count, length):
    corpus = Corpus(TextOptions(min_count=min_count, max_length=length))
    for tokens in texts:
        corpus.add(tokens)
    return corpus.finish()


WORDS = st.lists(st.sampled_from("abcdefgh"), max_size=12)


@given(st.lists(WORDS, min_size=1, max_size=10), st.integers(1, 4), st.integers(1, 6))
@example([["b", "a", "a", "c"], ["c", "b", "d"], ["c"]], 2, 2)
def test_words_are_kept_by_count_then_alphabet_and_cut(texts, min_count, length):
    counts = Counter(token for tokens in texts for token in tokens)
    words = [word for word in counts if counts[word] >= min_count]
    words.sort(key=lambda word: (-counts[word], word))
    if not words:
        with pytest.raises(DataError, match=f"of {len(texts)} texts with min_count = {min_count}"):
            finished(texts, min_count, length)
        return
    result, vocabulary = finished(texts, min_count, length)
    assert list(vocabulary) == words
    assert [result[item].tolist() for item in range(len(texts))] == [
        [words.index(token) + 1 for token in tokens if token in words][:length] for tokens in texts
    ]


def test_too_many_different_words(monkeypatch):
    monkeypatch.setattr("ncfbench.data.text.MOST_WORDS", 3)
    with pytest.raises(DataError, match="More than 3 different words: is this text"):
        finished([["a", "b", "c", "d"]], 1, 9)
