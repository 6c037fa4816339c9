import dataclasses
import os
import re
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.training import content_of, quiet, store_prepared

from ncfbench.data import prepare, store
from ncfbench.data.content import cautions
from ncfbench.data.hold_out import Links
from ncfbench.data.sources import Preparation, synthetic
from ncfbench.data.text import Texts
from ncfbench.errors import DataError, UsageError
from ncfbench.storage import free_space, tables


def test_a_data_set_comes_back_as_it_was(tmp_path, tiny_options):
    content = synthetic.make(tiny_options)
    manifest = prepare("synthetic", tiny_options, tmp_path, "x", say=quiet)
    dataset = store.load(tmp_path, "x")
    for name in ("users", "items", "split"):
        np.testing.assert_array_equal(getattr(dataset, name), getattr(content, name))
    for item, (row, length) in enumerate(zip(dataset.tokens_IxL, dataset.lengths, strict=True)):
        assert row[:length].tolist() == content.texts[item].tolist()
        assert not row[length:].any()
    assert dataset.tokens_IxL.shape[1] == max(dataset.lengths)
    assert dataset.tokens_IxL.dtype == dataset.users.dtype == np.int32
    assert dataset.fingerprint == manifest["fingerprint"] == content.digest(tiny_options.stored())


def test_statistics_by_hand():
    texts = Texts(np.array([1, 1, 1, 2, 1], np.int32), np.array([2, 0, 3], np.int32))
    more = {"texts": texts, "vocabulary": ("a", "b")}
    result = content_of([0, 0, 2], [0, 2, 2], [0, 1, 2], 3, **more).statistics()
    assert result == {
        "users": 3, "items": 3, "links": 3, "training_links": 1, "training_items": 1,
        "validation_items": 1, "test_items": 1, "users_with_test_items": 2,
        "vocabulary": 2, "words_max": 3, "words_min": 0, "words_mean": 1.67, "words_median": 2.0,
        "items_without_text": 1, "training_pairs_without_link": 0,
    }  # fmt: skip


def test_distinct_links_up_to_the_largest_id():
    last = 2**31 - 2
    ends = np.array([[last, 0, last], [last, last, last]], np.int32)
    links, repeated = Links(*ends).distinct()
    assert (links.users.tolist(), links.items.tolist(), repeated) == ([0, last], [last, last], 1)
    assert links.users.dtype == links.items.dtype == np.int32


def test_synthetic_links_without_room_are_not_made(tmp_path, monkeypatch):
    monkeypatch.setattr(free_space, "available_memory", lambda: 2**30)
    monkeypatch.setattr(synthetic, "make", lambda options: pytest.fail("made"))
    options = synthetic.Options(users=2**20, items=2**20, links=2**31 - 1)
    with pytest.raises(UsageError, match="2,147,483,647 links"):
        prepare("synthetic", options, tmp_path, "x", say=quiet)


@pytest.mark.parametrize(
    ("users", "items", "split", "expected"),
    [
        ([0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 2], ["no negative to train on", "Test items: 1, at"]),
        ([0, 1], [0, 0], [0], ["no negative to train on", "no test items"]),
        ([0, 0, 1], [0, 1, 0], [0, 0] + [2] * 50, ["Test items: 50, at"]),
        ([0, 0, 1], [0, 1, 0], [0, 0] + [2] * 51, []),
        ([0, 1, 0, 1], [0, 1, 2, 2], [0, 0] + [2] * 51, ["2 users have test items.* on 1 of"]),
    ],
)
def test_cautions(users, items, split, expected, monkeypatch):
    """Every pair linked, one item, too few test items to rank, and too many users."""
    monkeypatch.setattr("ncfbench.data.content.MOST_RANKED_USERS", 1)
    counts = content_of(users, items, split, 2).statistics()
    said = cautions({"statistics": counts, "options": {}})
    assert len(said) == len(expected)
    assert all(map(re.search, expected, said))


MANIFEST = "is damaged or of another version"
FINGERPRINT = "does not match its fingerprint"


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("links.npy", lambda content: content[:1000], "Cannot read .*links.npy"),
        ("lengths.npy", None, "Cannot read .*lengths.npy"),
        ("../manifest.json", lambda content: b'{"format_version": 0}', MANIFEST),
        # The item of the last link: another, or a negative one.
        ("links.npy", lambda content: content[:-4] + b"\1\0\0\0", FINGERPRINT),
        ("links.npy", lambda content: content[:-4] + b"\xff\xff\xff\xff", FINGERPRINT),
    ],
)
def test_damaged_data_sets_are_refused_and_prepared_again(
    tmp_path, tiny_options, name, damage, message
):
    manifest = prepare("synthetic", tiny_options, tmp_path, "x", say=quiet)
    path = tmp_path / "x" / manifest["fingerprint"][:12] / name
    content = path.read_bytes()
    path.unlink()
    if damage is not None:
        assert damage(content) != content
        path.write_bytes(damage(content))
    with pytest.raises(DataError, match=rf"{message}.* Prepare it .*: ncfbench prepare .*--name x"):
        store.load(tmp_path, "x")
    said = []
    assert prepare("synthetic", tiny_options, tmp_path, "x", say=said.append) == manifest
    assert ("is damaged; it is prepared again" in "".join(said)) == (message != MANIFEST)
    assert store.load(tmp_path, "x").fingerprint == manifest["fingerprint"]


def test_another_origin_replaces_the_manifest_only(tmp_path, tiny_options, monkeypatch):
    """Content that is there stays: a process that is killed meanwhile leaves the old or the new."""
    preparation = Preparation({}, {}, lambda: synthetic.make(tiny_options))
    files = []
    for source in "ab":
        assert store_prepared(preparation, tmp_path, "x", source)["source"] == source
        folder = store.load(tmp_path, "x").folder
        files.append({path: path.stat().st_ino for path in folder.iterdir()})
    assert files[0] == files[1]


def test_other_content_is_replaced_only_on_demand(tmp_path, tiny_options):
    """Other options are refused before anything is read; other files once they are."""
    first = prepare("synthetic", tiny_options, tmp_path, "x", say=quiet)
    other = dataclasses.replace(tiny_options, seed=1)
    with pytest.raises(UsageError, match=r"with seed = 0 \(now 1\), and runs may depend on it"):
        prepare("synthetic", other, tmp_path, "x", say=quiet)
    content, options = synthetic.make(other), tiny_options.stored()
    preparation = Preparation({"files": {"a": {"sha256": "b"}}}, options, lambda: content)
    with pytest.raises(UsageError, match=r"has other content, .* --name .* --force"):
        store_prepared(preparation, tmp_path, "x")
    assert store.load(tmp_path, "x").fingerprint == first["fingerprint"]
    assert not list((tmp_path / "x").glob(".new*"))
    second = prepare("synthetic", other, tmp_path, "x", replace=True, say=quiet)
    assert store.load(tmp_path, "x").fingerprint == second["fingerprint"] != first["fingerprint"]
    folders = [path.name for path in (tmp_path / "x").iterdir() if path.is_dir()]
    assert folders == [second["fingerprint"][:12]]


class Killed(BaseException):
    """Ends a process that cleans up nothing."""


@pytest.mark.parametrize("error", [Killed(), OSError(28, "No space left on device")])
def test_a_prepare_that_is_cut_leaves_the_old_or_the_new(tmp_path, tiny_options, error):
    """At each of its writes in turn, by a kill or a full disk."""
    other = dataclasses.replace(tiny_options, seed=1)
    again = {"replace": True, "say": quiet}

    def cut(folder, moment):
        """Return the fingerprint of the data that are left, which do not hinder the next one."""
        prepare("synthetic", tiny_options, folder, "x", say=quiet)
        writes, unlink = 0, Path.unlink

        def write(real, *words):
            nonlocal writes
            writes += 1
            if writes == moment:
                raise error
            real(*words)

        def clean(real, *words, **more):
            if writes < moment or not isinstance(error, Killed):
                real(*words, **more)

        with pytest.MonkeyPatch.context() as patch:
            for module, name in ((tables, "sync"), (os, "replace"), (os, "rename")):
                patch.setattr(module, name, partial(write, getattr(module, name)))
            patch.setattr(Path, "unlink", lambda path, **more: clean(unlink, path, **more))
            patch.setattr(shutil, "rmtree", partial(clean, shutil.rmtree))
            with suppress(Killed, DataError):
                prepare("synthetic", other, folder, "x", **again)
        assert isinstance(error, Killed) or not list((folder / "x").rglob("*.tmp"))
        left = store.load(folder, "x").fingerprint
        prepare("synthetic", other, folder, "x", **again)
        return left

    left = [cut(tmp_path / str(moment), moment) for moment in range(1, 30)]
    before, after = (synthetic.make(kind).digest(kind.stored()) for kind in (tiny_options, other))
    switch = left.index(after)
    assert switch > 3 * 5, "a sync, a rename and a sync of each file"
    assert left == [before] * switch + [after] * (29 - switch)


# --- synthetic data


def test_synthetic_is_the_same_for_a_seed_and_exact_in_size(tiny_options):
    one, two = synthetic.make(tiny_options), synthetic.make(tiny_options)
    assert one.digest({}) == two.digest({})
    assert synthetic.make(dataclasses.replace(tiny_options, seed=1)).digest({}) != one.digest({})
    pairs = set(zip(one.users.tolist(), one.items.tolist(), strict=True))
    assert len(one.users) == len(pairs) == tiny_options.links
    assert one.texts.lengths.min() >= tiny_options.min_words
    assert one.texts.lengths.max() <= tiny_options.max_length


def test_synthetic_degrees_are_heavy_tailed():
    content = synthetic.make(synthetic.Options())
    for ids, size in ((content.users, 800), (content.items, 3200)):
        degrees = np.sort(np.bincount(ids, minlength=size))[::-1]
        assert degrees[: size // 10].sum() > 0.25 * degrees.sum()
        assert degrees[0] > 5 * np.median(degrees)
