"""Ids and sizes at the end of int32, and sizes for which there is no room: nothing here takes more
than a few megabytes.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from prepared import quiet

from ncfbench.data import prepare
from ncfbench.data.content import Content, distinct_links
from ncfbench.data.graph import BipartiteGraph
from ncfbench.data.sources import synthetic
from ncfbench.data.text import Texts, Vocabulary
from ncfbench.errors import DataError, UsageError
from ncfbench.storage import free_space

MOST = 2**31 - 1
LAST = MOST - 1
"""The last id of as many as there may be."""


def many(size: int) -> NDArray[np.int32]:
    """An array of any length in no memory."""
    return np.broadcast_to(np.int32(0), (size,))


# --- graphs


@pytest.mark.parametrize(
    ("links", "users", "items", "message"),
    [
        (MOST + 1, 1, 1, "2,147,483,648 links"),
        (1, MOST + 1, 1, "2,147,483,648 users"),
        (1, 1, MOST + 1, "2,147,483,648 items"),
    ],
)
def test_a_graph_beyond_int32_is_refused(links: int, users: int, items: int, message: str) -> None:
    with pytest.raises(DataError, match=f"{message}: more than 2,147,483,647 are not supported"):
        BipartiteGraph.from_links(many(links), many(links), users, items)


def test_links_in_order_are_not_copied() -> None:
    users, items = np.array([0, 1, 1], np.int32), np.array([1, 0, 1], np.int32)
    graph = BipartiteGraph.from_links(users, items, 2, 2)
    assert graph.link_user is users
    assert graph.link_item is items


class Offsets:
    """As ``user_offsets`` of 2^31 - 1 users: 0 up to the last user, who has two links."""

    def __getitem__(self, users: Any) -> NDArray[np.int64]:
        assert np.min(users) >= 0, "an id has wrapped around"
        return np.where(np.asarray(users) > LAST, 2, 0).astype(np.int64)


def test_pairs_with_the_largest_ids_are_looked_up() -> None:
    graph = BipartiteGraph(
        n_users=MOST,
        n_items=MOST,
        link_user=np.array([LAST, LAST], np.int32),
        link_item=np.array([0, LAST], np.int32),
        user_offsets=Offsets(),  # type: ignore[arg-type]
        item_users=np.zeros(0, np.int32),
        item_offsets=np.zeros(0, np.int64),
    )
    users, items = (
        np.array([[LAST], [LAST - 1], [0]], np.int32),
        np.array([[0, 1, LAST - 1, LAST]], np.int32),
    )
    expected = [[True, False, False, True], [False] * 4, [False] * 4]
    assert graph.linked(users, items).tolist() == expected


# --- data sets


def test_distinct_links_up_to_the_largest_id() -> None:
    users, items, repeated = distinct_links(np.array([LAST, 0, LAST]), np.array([LAST, LAST, LAST]))
    assert (users.tolist(), items.tolist(), repeated) == ([0, LAST], [LAST, LAST], 1)
    assert users.dtype == items.dtype == np.int32


def test_the_digest_of_names_covers_their_counts() -> None:
    names = ["ü0", "ü1"]
    none, texts = np.zeros(0, np.int32), Texts(np.zeros(0, np.int32), np.zeros(2, np.int32))
    content = Content(
        n_users=2,
        users=none,
        items=none,
        texts=texts,
        vocabulary=Vocabulary((), ()),
        split=np.zeros(2, np.uint8),
        user_ids=pa.array(names, pa.string()),
        item_ids=pa.array(["a", "b"]),
    )
    whole = (
        json.dumps([1, 2, {}]).encode() + bytes(8 + 2) + "\nusers 2\nü0\nü1\nitems 2\na\nb".encode()
    )
    assert content.digest({}) == hashlib.sha256(whole).hexdigest()


@pytest.mark.parametrize("name", ["users", "items", "links"])
def test_synthetic_sizes_at_the_end_of_int32(name: str, tmp_path: Path) -> None:
    """The largest are sizes like any other, for which this machine has no room; larger ones are
    none.
    """
    sizes = {"users": MOST, "items": MOST, "links": MOST}
    options = synthetic.Options(**sizes)
    with pytest.raises(UsageError, match=f"{name} = 2147483648: .* at most 2147483647"):
        synthetic.Options(**(sizes | {name: MOST + 1}))
    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(UsageError, match="2,147,483,647 links"),
    ):
        patch.setattr(free_space, "available_memory", lambda: 24 * 2**30)
        patch.setattr(synthetic, "make", lambda options: pytest.fail("made"))
        prepare("synthetic", options, tmp_path, "x", say=quiet)
    assert not (tmp_path / "x").exists()


@pytest.mark.long
def test_the_estimate_of_memory_covers_what_is_taken(tmp_path: Path) -> None:
    """The peak of a process that makes many links, or long texts, is a bit below the estimate."""
    script = (
        "import re, sys; from ncfbench.data.sources import synthetic;"
        "status = lambda: open('/proc/self/status').read();"
        "peak = lambda: 1024 * int(re.search(r'VmHWM:\\s*(\\d+)', status())[1]);"
        "synthetic.make(synthetic.Options()); before = peak();"
        "options = synthetic.Options(**eval(sys.argv[1])); synthetic.make(options);"
        "print(peak() - before, options.memory_bytes)"
    )
    for sizes in (
        {"users": 200_000, "items": 20_000, "links": 1_000_000},
        {"users": 2_000, "items": 20_000, "links": 20_000, "min_words": 90, "max_length": 300},
    ):
        done = subprocess.run(
            [sys.executable, "-c", script, repr(sizes)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        taken, estimated = map(int, done.stdout.split())
        assert taken < estimated < 3 * taken + 2**27, (sizes, taken, estimated)
