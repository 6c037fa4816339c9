from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncfbench.data import graph as graphs_module
from ncfbench.data.graph import BipartiteGraph, LookupTables, sort_stably
from ncfbench.data.lookup import IdIndex
from ncfbench.errors import DataError


@st.composite
def graphs(draw: st.DrawFn) -> tuple[BipartiteGraph, set[tuple[int, int]]]:
    n_users, n_items = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    pairs = st.tuples(st.integers(0, n_users - 1), st.integers(0, n_items - 1))
    links = draw(st.sets(pairs, min_size=1))
    order = draw(st.permutations(sorted(links)))
    users, items = np.array([u for u, _ in order]), np.array([v for _, v in order])
    return BipartiteGraph.from_links(users, items, n_users, n_items), links


@given(graphs())
def test_both_directions_hold_exactly_the_links(
    case: tuple[BipartiteGraph, set[tuple[int, int]]],
) -> None:
    graph, links = case
    assert list(zip(graph.link_user.tolist(), graph.link_item.tolist(), strict=True)) == sorted(
        links
    )
    for user in range(graph.n_users):
        row = graph.link_item[graph.user_offsets[user] : graph.user_offsets[user + 1]]
        assert row.tolist() == sorted(v for u, v in links if u == user)
    for item in range(graph.n_items):
        column = graph.item_users[graph.item_offsets[item] : graph.item_offsets[item + 1]]
        assert column.tolist() == sorted(u for u, v in links if v == item)
    assert graph.user_degrees.sum() == graph.item_degrees.sum() == graph.n_links == len(links)


@given(graphs(), st.data())
def test_linked_pairs_agree_with_the_set_of_links(
    case: tuple[BipartiteGraph, set[tuple[int, int]]], data: st.DataObject
) -> None:
    graph, links = case
    users = np.array(
        data.draw(st.lists(st.integers(0, graph.n_users - 1), min_size=1, max_size=8)), np.int32
    )
    items = np.array(
        sorted(data.draw(st.sets(st.integers(0, graph.n_items - 1), min_size=1))), np.int32
    )
    truth = np.array([[(u, v) in links for v in items.tolist()] for u in users.tolist()])
    assert np.array_equal(graph.linked(users[:, None], items[None, :]), truth)
    assert np.array_equal(
        graph.searched(*np.broadcast_arrays(users[:, None], items[None, :])), truth
    )
    with_bits, plain = LookupTables(graph), LookupTables(graph)
    plain.bits = None
    for tables in (None, with_bits, plain, with_bits, plain):
        row, column = graph.linked_block(users, items, tables)
        block = np.zeros_like(truth)
        block[row, column] = True
        assert len(row) == truth.sum()
        assert np.array_equal(block, truth)


def test_linked_block_scans_either_side() -> None:
    """A hub on one side, then on the other, and ids far apart, so that each is scanned in its
    turn.
    """
    rng = np.random.default_rng(0)
    hub_user = {(0, v) for v in range(0, 5000, 7)}
    links = (
        hub_user
        | {(int(u), int(v)) for u, v in rng.integers(0, 5000, (500, 2))}
        | {(u, 11) for u in range(5000)}
    )
    graph = BipartiteGraph.from_links(
        np.array([u for u, _ in links]), np.array([v for _, v in links]), 5000, 5000
    )
    kept = LookupTables(graph)
    kept.bits = None
    for users, items in (
        ([0, 0, 3], [2, 7, 4999]),
        ([1, 2, 3, 3], [11, 12]),
        ([4], [11]),
        ([0], [11, 14]),
    ):
        for tables in (None, kept):
            row, column = graph.linked_block(
                np.array(users, np.int32), np.array(items, np.int32), tables
            )
            found = sorted(zip(row.tolist(), column.tolist(), strict=True))
            assert found == [
                (i, j) for i, u in enumerate(users) for j, v in enumerate(items) if (u, v) in links
            ]


@pytest.mark.parametrize(("n_users", "n_items"), [(1, 1), (8, 3), (9, 200), (100, 17)])
def test_bits_are_the_links(n_users: int, n_items: int) -> None:
    """Every cell of blocks with repeated users, beside the set of links."""
    rng = np.random.default_rng(n_users)
    links = {
        (int(u), int(v))
        for u, v in zip(rng.integers(0, n_users, 400), rng.integers(0, n_items, 400), strict=True)
    }
    graph = BipartiteGraph.from_links(
        np.array([u for u, _ in links]), np.array([v for _, v in links]), n_users, n_items
    )
    assert graph.link_bits is not None
    users = rng.integers(0, n_users, 50).astype(np.int32)
    items = np.unique(rng.integers(0, n_items, 30)).astype(np.int32)
    row, column = graph.link_bits.block(users, items)
    assert sorted(zip(row.tolist(), column.tolist(), strict=True)) == [
        (i, j)
        for i, u in enumerate(users.tolist())
        for j, v in enumerate(items.tolist())
        if (u, v) in links
    ]


def test_bits_are_left_out_where_they_would_be_many() -> None:
    """Two links among 256 users: 32 bytes for each item, and 16 for each link."""
    ends = np.array([0, 255])
    for n_items, is_small in ((1, True), (256, False)):
        graph = BipartiteGraph.from_links(ends, ends % n_items, 256, n_items)
        assert (LookupTables(graph).bits is not None) == is_small


def test_the_link_filter_passes_few_unlinked_pairs() -> None:
    """All links pass, of other pairs at most one in eight (and what chance adds); nothing is found
    that is no link.
    """
    rng = np.random.default_rng(0)
    keys = np.unique(rng.integers(0, 700 * 900, 30_000))
    graph = BipartiteGraph.from_links(keys // 900, keys % 900, 700, 900)
    assert graph.linked(graph.link_user, graph.link_item).all()
    assert graph._link_filter.nbytes <= 2 * graph.n_links
    users, items = (
        rng.integers(0, 700, 20_000).astype(np.int32),
        rng.integers(0, 900, 20_000).astype(np.int32),
    )
    linked = np.isin(users * 900 + items, keys)
    assert np.array_equal(graph.linked(users, items), linked)
    byte, bit = graph._hashed(users, items)
    passed = (graph._link_filter[byte] >> bit) & 1
    assert passed[linked].all()
    assert passed[~linked].mean() < 1 / 8 + 0.02


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(1, 7))
def test_sorting_keeps_the_order_of_equal_keys(keys: list[int], chunk: int) -> None:
    values = np.random.default_rng(len(keys)).permutation(len(keys)).astype(np.int32)
    expected = [
        value
        for _, value in sorted(zip(keys, values.tolist(), strict=True), key=lambda pair: pair[0])
    ]
    given_keys = np.array(keys, np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs_module, "CHUNK", chunk)
        sort_stably(values, lambda part: given_keys[part])
    assert values.dtype == np.int32
    assert values.tolist() == expected


@given(
    st.lists(st.integers(0, 199), min_size=1, max_size=30),
    st.sampled_from([200, 2000]),
    st.sets(st.integers(0, 199), min_size=1),
)
def test_an_id_index_finds_what_a_search_finds(values: list[int], size: int, ids: set[int]) -> None:
    """Both ways of finding distinct ids: few enough values for sorting, and for the table."""
    index = IdIndex(size)
    for _ in range(2):
        distinct, position = index.distinct(np.array(values, np.int32))
        assert distinct.dtype == position.dtype == np.int32
        assert distinct.tolist() == sorted(set(values))
        assert [distinct[at] for at in position] == values
        among = sorted(ids)
        hit, position = index.hits(np.array(values, np.int32), np.array(among, np.int32))
        assert hit.tolist() == [at for at, value in enumerate(values) if value in ids]
        assert [among[at] for at in position] == [value for value in values if value in ids]


@pytest.mark.parametrize(
    ("users", "items", "message"),
    [
        ([], [], "no training links"),
        ([0, 0], [1, 1], "twice"),
        ([0, 2], [0, 0], "user 2, outside 0..1"),
        ([0, 1], [0, -1], "item -1, outside 0..2"),
        ([0, 1], [0], r"users of shape \(2,\) and items of shape \(1,\)"),
        ([0, 1], [0.5, 1.0], "items are of type float64, and ids are whole numbers"),
        (["a", "b"], [0, 1], "For names: names, ids = numpy.unique"),
    ],
)
def test_impossible_links_are_refused(users: list[Any], items: list[Any], message: str) -> None:
    """Lists, as a user may give them."""
    with pytest.raises(DataError, match=message):
        BipartiteGraph.from_links(users, items, 2, 3)
