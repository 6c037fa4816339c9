"""MIND on made-up files in the published format, on damaged ones, and on a real sample."""

import random

import pytest
from mind_files import BEHAVIORS, NEWS, behavior, news, prepare, write
from tables_of import ids_of, named_links, words_of

from ncfbench.data import store
from ncfbench.errors import DataError


def test_clicks_by_hand(tmp_path):
    manifest, said = prepare(write(tmp_path / "source"), tmp_path / "d")
    data = store.load(tmp_path / "d", "mind")
    texts = {id_: " ".join(words) for id_, words in words_of(data).items()}
    assert ids_of(data.user_ids) == ["U3", "U20"], "by number"
    assert ids_of(data.item_ids) == ["N2", "N10"]
    assert named_links(data) == [("U20", "N10"), ("U3", "N10"), ("U3", "N2")]
    assert texts == {"N2": "red fish", "N10": "the old dog an old dog at 10 30"}
    assert manifest["removed"] == {
        "duplicate_links": 1,
        "links_to_unknown_news": 1,
    }
    assert said == [
        "Warning: dropped 1 clicks on news that news.tsv does not have.",
        "Left out: 2 of 4 news, which nobody clicked.",
        "No features by LSA, which are made by default: --lsa 300: texts of 2 training items with"
        " 9 different words have at most 1 such features.",
    ]


def test_the_order_of_lines_changes_nothing(tmp_path):
    before, _ = prepare(write(tmp_path / "a"), tmp_path / "d" / "a")
    for seed in range(5):
        shuffle = random.Random(seed).sample
        source = write(
            tmp_path / str(seed), shuffle(NEWS, len(NEWS)), shuffle(BEHAVIORS, len(BEHAVIORS))
        )
        after, _ = prepare(source, tmp_path / "d" / str(seed))
        assert after["fingerprint"] == before["fingerprint"]


def click(impressions, user="U1"):
    return behavior(1, user, "N2", impressions).encode()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("news.tsv", b"", "news.tsv is empty"),
        (
            "news.tsv",
            NEWS[0].encode() + b"N3\tsports\tgolf\tTitle\n",
            "line 2: 4 fields, separated",
        ),
        ("news.tsv", NEWS[0].encode() + b"\n", "news.tsv, line 2: 1 fields"),
        ("news.tsv", b"\t\t\t\t\t\t\t\n", "news.tsv, line 1: '' is no id"),
        ("news.tsv", news("N 1", "a").encode(), "news.tsv, line 1: 'N 1' is no id"),
        ("news.tsv", news("N2", "caf\xe9").encode("latin-1"), "line 1: byte 0xe9 is not valid"),
        ("news.tsv", "N1".encode("utf-16"), "news.tsv, line 1: byte 0xff is not valid UTF-8"),
        ("news.tsv", news("N5", "a").encode(), "No link is left"),
        ("behaviors.tsv", b"", "behaviors.tsv is empty"),
        ("behaviors.tsv", b"1\tU1\t\tN1-1\n", "behaviors.tsv, line 1: 4 fields"),
        ("behaviors.tsv", click("N1-1 N2"), "line 1: impression 'N2' lacks a -0 or -1"),
        ("behaviors.tsv", click("N1-2"), "impression 'N1-2' lacks a"),
        ("behaviors.tsv", click("-1"), "impression '-1' lacks a"),
        ("news.tsv", (NEWS[1] + news("N2", "Blue fish")).encode(), "line 2: news N2 has another"),
        (
            "behaviors.tsv",
            click("N2-1").replace(b"11/12", b"13/12"),
            "behaviors.tsv, line 1: '13/12/2019 2:14:46 PM' is no time",
        ),
        ("behaviors.tsv", click("N1-1", user=""), "behaviors.tsv, line 1: '' is no id"),
        ("behaviors.tsv", click("N2-0"), "No link is left"),
    ],
)
def test_damaged_files_are_named_with_the_line(tmp_path, name, content, message):
    source = write(tmp_path / "source")
    good, _ = prepare(source, tmp_path / "d")
    (source / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        prepare(source, tmp_path / "d")
    assert message in str(caught.value)
    assert store.load(tmp_path / "d", "mind").fingerprint == good["fingerprint"], (
        "the previous data set is lost"
    )


def test_a_missing_file_is_named(tmp_path):
    source = write(tmp_path / "source")
    (source / "behaviors.tsv").unlink()
    with pytest.raises(DataError, match=r"source/behaviors\.tsv: No such file"):
        prepare(source, tmp_path / "d")
    with pytest.raises(DataError, match=r"none/news\.tsv: No such file"):
        prepare(tmp_path / "none", tmp_path / "d")
