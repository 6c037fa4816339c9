"""MIND on made-up files in the published format, in folders and archives, on damaged ones, and on a
real sample.
"""

from __future__ import annotations

import hashlib
import random
import zipfile
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from folders import write_run
from typer.testing import CliRunner

from ncfbench.cli import app
from ncfbench.config import Locations, complete
from ncfbench.data import prepare as prepare_data
from ncfbench.data import store
from ncfbench.data.ids import natural_order
from ncfbench.data.sources import mind, prepare_command
from ncfbench.data.sources.mind import Options
from ncfbench.errors import DataError, UsageError
from ncfbench.reporting import manifests
from ncfbench.reporting.render import html
from ncfbench.reporting.results import collect
from ncfbench.reporting.verdicts import MISSING
from ncfbench.storage import tables
from ncfbench.training import run as training


def news(
    id_: str, title: str, abstract: str = "", category: str = "sports", subcategory: str = "golf"
) -> str:
    return f"{id_}\t{category}\t{subcategory}\t{title}\t{abstract}\thttps://example.com/{id_}\t[]\t[]\n"


def behavior(number: int, user: str, history: str, impressions: str) -> str:
    return f"{number}\t{user}\t11/12/2019 2:14:46 PM\t{history}\t{impressions}\n"


NEWS = [
    news("N10", 'The "Old" dog', "An old dog, at 10:30."),
    news("N2", "Red fish"),
    news("N9", 'A " quote', "fish", "news", "newsworld"),
    news("N1", "Never clicked", "dog"),
]
BEHAVIORS = [
    behavior(1, "U20", "N9 N77", "N10-1 N2-0 N1-0"),
    behavior(2, "U3", "", "N2-1 N10-1"),
    behavior(3, "U20", "N9 N77", "N10-1 N9-0"),
    behavior(4, "U100", "N2", "N1-0 N88-1"),
    behavior(5, "U4", "N10 N9", "N1-0"),
]


def write(
    folder: Path, news_lines: Sequence[str] = NEWS, behaviors: Sequence[str] = BEHAVIORS
) -> Path:
    folder.mkdir(parents=True)
    (folder / "news.tsv").write_text("".join(news_lines), encoding="utf-8")
    (folder / "behaviors.tsv").write_text("".join(behaviors), encoding="utf-8")
    return folder


def pack(folder: Path, archive: Path, around: str = "") -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(folder.iterdir()):
            out.write(path, around + path.name)
        out.writestr(f"__MACOSX/{around}news.tsv", "not this one")


def prepare(folder: Path, data_dir: Path, **options: Any) -> tuple[dict[str, Any], list[str]]:
    said: list[str] = []
    usual = {"test_fraction": 0.0, "validation_fraction": 0.0}
    chosen = Options(from_=folder, **(usual | options))
    return prepare_data("mind", chosen, data_dir, replace=True, say=said.append), said


def links_of(data_dir: Path) -> list[tuple[str, str]]:
    """Return the links by the ids of the source."""
    data = store.load(data_dir, "mind")
    assert data.user_ids is not None
    assert data.item_ids is not None
    users, items = data.user_ids.to_pylist(), data.item_ids.to_pylist()
    return sorted(
        (users[user], items[item])
        for user, item in zip(data.users.tolist(), data.items.tolist(), strict=True)
    )


def texts_of(data_dir: Path) -> dict[str, str]:
    data = store.load(data_dir, "mind")
    folder = data_dir / "mind" / data.fingerprint[:12]
    words = [
        row["word"]
        for row in store.tables.read_table(
            folder / "vocabulary.parquet", store.VOCABULARY
        ).to_pylist()
    ]
    assert data.item_ids is not None
    return {
        id_: " ".join(words[token - 1] for token in data.texts[item].tolist())
        for item, id_ in enumerate(data.item_ids.to_pylist())
    }


def test_clicks_by_hand(tmp_path: Path) -> None:
    manifest, said = prepare(write(tmp_path / "source"), tmp_path / "d")
    data = store.load(tmp_path / "d", "mind")
    assert data.user_ids is not None
    assert data.item_ids is not None
    assert data.user_ids.to_pylist() == ["U3", "U20"], "by number"
    assert data.item_ids.to_pylist() == ["N2", "N10"]
    assert links_of(tmp_path / "d") == [("U20", "N10"), ("U3", "N10"), ("U3", "N2")]
    assert texts_of(tmp_path / "d") == {"N2": "red fish", "N10": "the old dog an old dog at 10 30"}
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
    assert texts_of(tmp_path / "d") == {
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


def test_line_ends_and_byte_order_marks_are_ignored(tmp_path: Path) -> None:
    before, _ = prepare(write(tmp_path / "a"), tmp_path / "d" / "a")
    source = write(tmp_path / "b")
    for path in source.iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    after, _ = prepare(source, tmp_path / "d" / "b")
    assert after["fingerprint"] == before["fingerprint"]


def test_a_smaller_draw_of_users_is_part_of_a_larger_one(tmp_path: Path) -> None:
    behaviors = [behavior(user, f"U{user}", "", f"N{1 + user % 9}-1") for user in range(60)]
    source = write(
        tmp_path / "source", [news(f"N{item}", f"word{item}") for item in range(1, 12)], behaviors
    )
    drawn = {}
    for size in (6, 20, 60):
        manifest, _ = prepare(source, tmp_path / str(size), users=size)
        drawn[size] = {user for user, _ in links_of(tmp_path / str(size))}
        assert len(drawn[size]) == size
        assert manifest["removed"].get("users_not_drawn", 0) == 60 - size
        assert manifest["statistics"]["items"] == len(
            {item for _, item in links_of(tmp_path / str(size))}
        )
        assert manifest["removed"]["items_without_links"] == 11 - manifest["statistics"]["items"]
    assert drawn[6] < drawn[20] < drawn[60]
    again, _ = prepare(source, tmp_path / "again", users=6, split_seed=1)
    assert {user for user, _ in links_of(tmp_path / "again")} != drawn[6]
    assert again["options"]["users"] == 6
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
    assert texts_of(tmp_path / "d")["N9"] == "a quote fish", "the first text is kept"
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
    assert texts_of(tmp_path / "d")["N2"] == "red fish"
    assert any("1 lines of news.tsv give another text" in text for text in said)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("news.tsv", b"", "news.tsv is empty"),
        (
            "news.tsv",
            NEWS[0].encode() + b"N3\tsports\tgolf\tTitle\n",
            "news.tsv, line 2: 4 fields, separated by tabs",
        ),
        ("news.tsv", NEWS[0].encode() + b"\n", "news.tsv, line 2: 1 fields"),
        ("news.tsv", b"\t\t\t\t\t\t\t\n", "news.tsv, line 1: '' is no news id"),
        ("news.tsv", news("N 1", "a").encode(), "news.tsv, line 1: 'N 1' is no news id"),
        (
            "news.tsv",
            news("N1", "a").encode() + news("N2", "caf\xe9").encode("latin-1"),
            "line 2: byte 0xe9 is not valid",
        ),
        ("news.tsv", "N1".encode("utf-16"), "news.tsv, line 1: this is UTF-16"),
        ("news.tsv", news("N5", "a").encode(), "No link is left"),
        ("behaviors.tsv", b"", "behaviors.tsv is empty"),
        ("behaviors.tsv", b"1\tU1\t\tN1-1\n", "behaviors.tsv, line 1: 4 fields"),
        (
            "behaviors.tsv",
            behavior(1, "U1", "", "N1-1 N2").encode(),
            "line 1: impression 'N2' does not end in -0 or -1",
        ),
        ("behaviors.tsv", behavior(1, "U1", "", "N1-2").encode(), "impression 'N1-2' does not end"),
        ("behaviors.tsv", behavior(1, "U1", "", "-1").encode(), "impression '-1' does not end"),
        (
            "behaviors.tsv",
            BEHAVIORS[0].encode() + behavior(1, "U1", "N1", "").encode(),
            "line 2: no impression",
        ),
        (
            "behaviors.tsv",
            behavior(1, "", "", "N1-1").encode(),
            "behaviors.tsv, line 1: '' is no user id",
        ),
        ("behaviors.tsv", behavior(1, "U1", "N2", "N2-0").encode(), "No link is left"),
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
    with pytest.raises(UsageError, match="has no parts to choose from"):
        prepare(source / "MINDsmall_train", tmp_path / "d", parts=("train",))
    (source / "news.tsv").write_text(NEWS[0])
    with pytest.raises(DataError, match=r"holds news\.tsv and also MINDsmall_train"):
        prepare(source, tmp_path / "d")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": ("titel",)}, "did you mean 'title'"),
        ({"text": ("title", "title")}, "at most once"),
        ({"parts": ("test",)}, "published without clicks"),
        ({"parts": ("valid",)}, "Unknown parts 'valid'"),
        ({"parts": ()}, "name each of train, dev"),
        ({"users": 0}, "users = 0"),
        ({"max_length": 0}, "max_length = 0"),
    ],
)
def test_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Options(**options)


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


def test_the_command_says_what_it_stands_in_for(tmp_path: Path) -> None:
    words = ["--data-dir", str(tmp_path / "d")]
    without = CliRunner().invoke(app, ["prepare", "mind", *words])
    assert without.exit_code == UsageError.exit_code
    for word in ("licence", "https://msnews.github.io", "--from FOLDER"):
        assert word in without.stderr
    source = write(tmp_path / "source")
    result = CliRunner().invoke(
        app, ["prepare", "mind", "--from", str(source), "--test-fraction", "0", *words]
    )
    assert result.exit_code == 0, result.output
    for word in (f"{mind.LABEL}.", "paper (Yahoo! News)", "58,579", "515,503", "41,537"):
        assert word in result.stdout
    assert mind.LABEL in CliRunner().invoke(app, ["list", *words], env={"COLUMNS": "200"}).stdout


@pytest.mark.long
def test_reports_name_the_stand_in_and_its_command(tmp_path: Path) -> None:
    manifest, _ = prepare(
        write(tmp_path / "source"), tmp_path / "d", history=True, text=("title", "category")
    )
    runs = tmp_path / "r"
    for sampler in ("iid", "ns"):
        write_run(runs, sampler, [9, 5, 3], 200, fingerprint=manifest["fingerprint"])
    tables.write_json(runs / manifests.FILE, {manifest["fingerprint"]: manifest})
    results = collect(runs, tmp_path / "d", allow_mixed=False, locations={})
    text = unescape(html.page(results, results.tables, {}))
    label = mind.LABEL
    assert text.count(f"citeulike: {label}.") >= 3, "the page's head, and below each table"
    assert f'<td class="left wrap">{label}</td>' in text, "among the facts of the data set"
    command = (
        "ncfbench prepare mind --name citeulike --text title,category --history --max-length 200"
        " --split-seed 0 --min-count 1 --test-fraction 0.0 --validation-fraction 0.0 --from FOLDER"
    )
    assert prepare_command("citeulike", manifest) == command
    assert command in text
    words = [
        "report",
        "--data-dir",
        str(tmp_path / "d"),
        "--runs-dir",
        str(runs),
        "--figures",
        str(tmp_path / "f"),
    ]
    assert f"citeulike: {mind.LABEL}." in CliRunner().invoke(app, words).stdout
    drawn = list((tmp_path / "f").glob("*.svg"))
    assert drawn
    assert all(f"<!-- {mind.LABEL} -->" in path.read_text() for path in drawn), "in the title"
    assert not any(
        one.dataset == "citeulike" for one in results.verdicts if one.verdict != MISSING
    ), "it is not judged"


def test_the_real_sample(shared_data: Path, tmp_path: Path) -> None:
    said: list[str] = []
    options = Options(from_=shared_data / "mind-sample", history=True)
    manifest = prepare_data("mind", options, tmp_path, say=said.append)
    statistics = manifest["statistics"]
    # Counted from the two files with a dozen lines of plain Python.
    assert [statistics[name] for name in ("users", "items", "links")] == [2455, 638, 5446]
    assert any("139,009 links are dropped" in text for text in said)
    options = Options(from_=shared_data / "mind-sample")
    clicks = prepare_data("mind", options, tmp_path, "clicks", say=said.append)["statistics"]
    assert [clicks[name] for name in ("users", "items", "links")] == [166, 59, 175]


@pytest.mark.real
def test_the_real_sample_can_be_trained_on(shared_data: Path, tmp_path: Path) -> None:
    sample = shared_data / "mind-sample"
    options = Options(from_=sample, history=True, min_count=3, max_length=20)
    prepare_data("mind", options, tmp_path / "d", say=print)
    for sampler in ("iid", "ns"):
        small = {
            "dataset": "mind",
            "sampler": sampler,
            "epochs": 1,
            "batch_size": 256,
            "negatives": 2,
        }
        summary = training.run(complete(small), Locations(tmp_path / "d", tmp_path / "r")).summary
        assert summary["status"] == "finished"
        assert 0 < summary["test_recall_at_50"] <= 1
    words = ["report", "--data-dir", str(tmp_path / "d"), "--runs-dir", str(tmp_path / "r")]
    assert f"mind: {mind.LABEL}." in CliRunner().invoke(app, words).stdout
