"""MIND on made-up files in the published format, in folders and archives, on damaged ones, and on a
real sample.
"""

from __future__ import annotations

import hashlib
import random
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
from mind_files import BEHAVIORS, NEWS, behavior, news, prepare, write
from tables_of import ids_of, named_links, words_of

from ncfbench.data import store
from ncfbench.data.ids import natural_order
from ncfbench.errors import DataError, UsageError


def pack(folder: Path, archive: Path, around: str = "") -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(folder.iterdir()):
            out.write(path, around + path.name)
        out.writestr(f"__MACOSX/{around}news.tsv", "not this one")


def links_of(data_dir: Path) -> list[tuple[str, str]]:
    return named_links(store.load(data_dir, "mind"))


def words_in(data_dir: Path) -> dict[str, str]:
    return {id_: " ".join(words) for id_, words in words_of(store.load(data_dir, "mind")).items()}


def test_clicks_by_hand(tmp_path: Path) -> None:
    manifest, said = prepare(write(tmp_path / "source"), tmp_path / "d")
    data = store.load(tmp_path / "d", "mind")
    assert ids_of(data.user_ids) == ["U3", "U20"], "by number"
    assert ids_of(data.item_ids) == ["N2", "N10"]
    assert links_of(tmp_path / "d") == [("U20", "N10"), ("U3", "N10"), ("U3", "N2")]
    assert words_in(tmp_path / "d") == {"N2": "red fish", "N10": "the old dog an old dog at 10 30"}
    assert manifest["removed"] == {
        "duplicate_links": 1,
        "links_to_unknown_news": 1,
        "users_without_links": 2,
        "items_without_links": 2,
    }
    assert said == [
        "Warning: 1 links are dropped: they are to 1 news that news.tsv does not have.",
        "Left out: 2 of 4 news, to which none of the 2 users has a link.",
    ]


def test_history_by_hand(tmp_path: Path) -> None:
    manifest, _ = prepare(
        write(tmp_path / "source"), tmp_path / "d", history=True, text=("category", "title")
    )
    assert links_of(tmp_path / "d") == [
        ("U100", "N2"),
        ("U20", "N10"),
        ("U20", "N9"),
        ("U3", "N10"),
        ("U3", "N2"),
        ("U4", "N10"),
        ("U4", "N9"),
    ]
    assert words_in(tmp_path / "d") == {
        "N2": "sports red fish",
        "N9": "news a quote",
        "N10": "sports the old dog",
    }
    assert manifest["removed"] == {
        "duplicate_links": 3,
        "links_to_unknown_news": 2,
        "items_without_links": 1,
    }


def test_the_order_of_lines_changes_nothing(tmp_path: Path) -> None:
    before, _ = prepare(
        write(tmp_path / "a"), tmp_path / "d" / "a", history=True, users=3, test_fraction=0.34
    )
    for seed in range(5):
        shuffle = random.Random(seed).sample
        source = write(
            tmp_path / str(seed), shuffle(NEWS, len(NEWS)), shuffle(BEHAVIORS, len(BEHAVIORS))
        )
        after, _ = prepare(
            source, tmp_path / "d" / str(seed), history=True, users=3, test_fraction=0.34
        )
        assert after["fingerprint"] == before["fingerprint"]


def test_some_users_are_drawn(tmp_path: Path) -> None:
    behaviors = [behavior(user, f"U{user}", "", f"N{1 + user % 9}-1") for user in range(60)]
    lines = [news(f"N{item}", f"word{item}") for item in range(1, 12)]
    source = write(tmp_path / "source", lines, behaviors)
    manifest, _ = prepare(source, tmp_path / "d", users=6)
    links = links_of(tmp_path / "d")
    assert len({user for user, _ in links}) == manifest["options"]["users"] == 6
    assert manifest["removed"]["users_not_drawn"] == 54
    assert manifest["statistics"]["items"] == len({item for _, item in links})
    assert manifest["removed"]["items_without_links"] == 11 - manifest["statistics"]["items"]
    prepare(source, tmp_path / "again", users=6, split_seed=1)
    assert links_of(tmp_path / "again") != links
    with pytest.raises(UsageError, match="users = 61: only 60 users have a link"):
        prepare(source, tmp_path / "more", users=61)


def parts(home: Path) -> Path:
    write(home / "MINDsmall_train")
    dev_news = [NEWS[0], news("N30", "New cat"), news("N9", "Another text")]
    write(
        home / "MINDsmall_dev",
        dev_news,
        [behavior(1, "U3", "", "N10-1 N30-1"), behavior(2, "U7", "", "N9-1 N30-0")],
    )
    return home


def test_parts_are_merged(tmp_path: Path) -> None:
    manifest, said = prepare(parts(tmp_path / "source"), tmp_path / "d")
    assert links_of(tmp_path / "d") == [
        ("U20", "N10"),
        ("U3", "N10"),
        ("U3", "N2"),
        ("U3", "N30"),
        ("U7", "N9"),
    ]
    assert words_in(tmp_path / "d")["N9"] == "a quote fish", "the first text is kept"
    assert (
        "Warning: 1 lines of news.tsv give another text to a news that was there already; the first"
        " is kept." in said
    )
    assert manifest["removed"]["news_with_another_text"] == 1
    assert manifest["options"]["parts"] == ["train", "dev"]
    content = (tmp_path / "source/MINDsmall_dev/news.tsv").read_bytes()
    assert manifest["files"]["MINDsmall_dev/news.tsv"] == {
        "sha256": hashlib.sha256(content).hexdigest()
    }
    one, _ = prepare(tmp_path / "source", tmp_path / "e", parts=("dev",))
    assert links_of(tmp_path / "e") == [("U3", "N10"), ("U3", "N30"), ("U7", "N9")]
    assert set(one["files"]) == {"MINDsmall_dev/news.tsv", "MINDsmall_dev/behaviors.tsv"}


@pytest.mark.parametrize("around", ["", "MINDsmall_train/"])
def test_archives_are_read_as_folders_are(tmp_path: Path, around: str) -> None:
    unpacked, _ = prepare(parts(tmp_path / "source"), tmp_path / "a")
    home = tmp_path / "archives"
    home.mkdir()
    for part in ("MINDsmall_train", "MINDsmall_dev"):
        pack(tmp_path / "source" / part, home / f"{part}.zip", around)
    packed, _ = prepare(home, tmp_path / "b")
    assert (packed["fingerprint"], packed["files"]) == (unpacked["fingerprint"], unpacked["files"])
    (home / "MINDlarge_test.zip").write_bytes(b"not looked into")
    with pytest.raises(
        DataError,
        match="several data sets: MINDlarge_test.zip, MINDsmall_dev.zip, MINDsmall_train.zip",
    ):
        prepare(home, tmp_path / "b")
    (home / "MINDlarge_test.zip").rename(home / "MINDsmall_test.zip")
    _, said = prepare(home, tmp_path / "b")
    assert said[0] == "Left out: MINDsmall_test.zip is published without clicks."
    assert "Already prepared" in said[-1]
    alone, _ = prepare(home / "MINDsmall_train.zip", tmp_path / "c")
    direct, _ = prepare(tmp_path / "source" / "MINDsmall_train", tmp_path / "d")
    assert alone == direct
    (home / "MINDsmall_train.zip").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(DataError, match=r"MINDsmall_train\.zip: .*Is it a whole zip archive"):
        prepare(home, tmp_path / "b")


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    lines = [news(f"N{item}", hashlib.sha256(b"%d" % item).hexdigest()) for item in range(200)]
    pack(write(tmp_path / "source", [*NEWS, *lines]), tmp_path / "MINDsmall_train.zip")
    content = bytearray((tmp_path / "MINDsmall_train.zip").read_bytes())
    content[len(content) // 2] ^= 0xFF
    (tmp_path / "MINDsmall_train.zip").write_bytes(content)
    with pytest.raises(DataError, match=r"MINDsmall_train\.zip/news\.tsv"):
        prepare(tmp_path / "MINDsmall_train.zip", tmp_path / "d")


def test_news_that_come_again_in_a_file_are_counted(tmp_path: Path) -> None:
    lines = [*NEWS, NEWS[1], news("N2", "Blue fish"), NEWS[1]]
    manifest, said = prepare(write(tmp_path / "source", lines), tmp_path / "d")
    assert (
        manifest["removed"]["repeated_news"],
        manifest["removed"]["news_with_another_text"],
    ) == (2, 1)
    assert words_in(tmp_path / "d")["N2"] == "red fish"
    assert any("1 lines of news.tsv give another text" in text for text in said)


def click(impressions: str, user: str = "U1") -> bytes:
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
        ("news.tsv", b"\t\t\t\t\t\t\t\n", "news.tsv, line 1: '' is no news id"),
        ("news.tsv", news("N 1", "a").encode(), "news.tsv, line 1: 'N 1' is no news id"),
        ("news.tsv", news("N2", "caf\xe9").encode("latin-1"), "line 1: byte 0xe9 is not valid"),
        ("news.tsv", "N1".encode("utf-16"), "news.tsv, line 1: this is UTF-16"),
        ("news.tsv", news("N5", "a").encode(), "No link is left"),
        ("behaviors.tsv", b"", "behaviors.tsv is empty"),
        ("behaviors.tsv", b"1\tU1\t\tN1-1\n", "behaviors.tsv, line 1: 4 fields"),
        ("behaviors.tsv", click("N1-1 N2"), "line 1: impression 'N2' does not end in -0 or -1"),
        ("behaviors.tsv", click("N1-2"), "impression 'N1-2' does not end"),
        ("behaviors.tsv", click("-1"), "impression '-1' does not end"),
        ("behaviors.tsv", BEHAVIORS[0].encode() + click(""), "line 2: no impression"),
        ("behaviors.tsv", click("N1-1", user=""), "behaviors.tsv, line 1: '' is no user id"),
        ("behaviors.tsv", click("N2-0"), "No link is left"),
    ],
)
def test_damaged_files_are_named_with_the_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    source = write(tmp_path / "source")
    good, _ = prepare(source, tmp_path / "d")
    (source / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        prepare(source, tmp_path / "d")
    assert message in str(caught.value)
    assert store.load(tmp_path / "d", "mind").fingerprint == good["fingerprint"], (
        "the previous data set is lost"
    )


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"does not exist\. MIND is not downloaded"):
        prepare(tmp_path / "none", tmp_path / "d")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"holds neither news\.tsv.*https://msnews\.github\.io"):
        prepare(tmp_path / "empty", tmp_path / "d")
    source = parts(tmp_path / "source")
    (source / "MINDsmall_dev" / "behaviors.tsv").unlink()
    with pytest.raises(DataError, match=r"behaviors\.tsv is missing in .*MINDsmall_dev"):
        prepare(source, tmp_path / "d")
    (source / "MINDsmall_dev").rename(source / "other")
    with pytest.raises(DataError, match="has no part 'dev'; it has MINDsmall_train"):
        prepare(source, tmp_path / "d", parts=("train", "dev"))
    with pytest.raises(DataError, match=r"has no part 'train'; it has news\.tsv"):
        prepare(source / "MINDsmall_train", tmp_path / "d", parts=("train",))
    (source / "news.tsv").write_text(NEWS[0])
    with pytest.raises(DataError, match=r"holds several data sets: MINDsmall_train, news\.tsv"):
        prepare(source, tmp_path / "d")


def test_ids_are_in_natural_order() -> None:
    ids = ["N10", "N9", "M100", "N010", "x", "N", "N10b", "10", "9"]
    order = natural_order(pa.array(ids))
    assert [ids[index] for index in order] == [
        "9",
        "10",
        "M100",
        "N",
        "N9",
        "N010",
        "N10",
        "N10b",
        "x",
    ]
