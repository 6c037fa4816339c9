"""Graphs of links, in both directions, and look-ups in them, against sets of pairs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncfbench.data import graph as graphs_module
from ncfbench.data.graph import BipartiteGraph, IdIndex, LookupTables, grouped
from ncfbench.errors import DataError

CELLS_PER_LINK = (10**6, 0)
"""Cells per link up to which bits are used: by bits, and by scanning."""


def graph_of(links, n_users, n_items):
    return BipartiteGraph.from_links(*zip(*links, strict=True), n_users, n_items)


@st.composite
def graphs(draw):
    n_users, n_items = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    pairs = st.tuples(st.integers(0, n_users - 1), st.integers(0, n_items - 1))
    links = draw(st.sets(pairs, min_size=1))
    return graph_of(draw(st.permutations(sorted(links))), n_users, n_items), links


def check_block(graph, links, users, items, cells_per_link):
    """Look a block up twice with the same tables, and once with new ones."""
    expected = [(i, j) for i, u in enumerate(users) for j, v in enumerate(items) if (u, v) in links]
    kept = LookupTables(graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs_module, "CELLS_PER_LINK", cells_per_link)
        for tables in (None, kept, kept):
            row, column = graph.linked_block(
                np.array(users, np.int32), np.array(items, np.int32), tables
            )
            assert sorted(zip(row.tolist(), column.tolist(), strict=True)) == expected


@given(graphs())
def test_both_directions_hold_exactly_the_links(case):
    graph, links = case
    pairs = zip(graph.link_user.tolist(), graph.link_item.tolist(), strict=True)
    assert list(pairs) == sorted(links)
    for user in range(graph.n_users):
        row = graph.link_item[graph.user_offsets[user] : graph.user_offsets[user + 1]]
        assert row.tolist() == sorted(v for u, v in links if u == user)
    for item in range(graph.n_items):
        column = slice(*graph.item_offsets[item : item + 2])
        assert graph.item_users[column].tolist() == sorted(u for u, v in links if v == item)
        assert (graph.link_item[graph.links_by_item[column]] == item).all()
    assert graph.user_degrees.sum() == graph.item_degrees.sum() == graph.n_links == len(links)
    assert graph.item_users.tolist() == graph.link_user[graph.links_by_item].tolist()


@given(graphs(), st.data())
def test_linked_pairs_agree_with_the_set_of_links(case, data):
    graph, links = case
    users = data.draw(st.lists(st.integers(0, graph.n_users - 1), min_size=1, max_size=8))
    items = sorted(data.draw(st.sets(st.integers(0, graph.n_items - 1), min_size=1)))
    truth = [[(u, v) in links for v in items] for u in users]
    pairs = np.array(users, np.int32)[:, None], np.array(items, np.int32)
    without_bits = graph_of(links, graph.n_users, graph.n_items)
    vars(without_bits)["_bits"] = None
    assert graph.linked(*pairs).tolist() == without_bits.linked(*pairs).tolist() == truth
    for cells_per_link in CELLS_PER_LINK:
        check_block(graph, links, users, items, cells_per_link)
    for links_per_cell in (0, 10**6):  # the filter, and scanning links
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(graphs_module, "LINKS_PER_CELL", links_per_cell)
            check_block(without_bits, links, users, items, 0)


def test_linked_block_scans_either_side():
    """A hub on one side, then on the other, and ids far apart, so that each is scanned in its
    turn.
    """
    rng = np.random.default_rng(0)
    links = {(int(u), int(v)) for u, v in rng.integers(0, 5000, (500, 2))}
    links |= {(0, v) for v in range(0, 5000, 7)} | {(u, 11) for u in range(5000)}
    graph = graph_of(links, 5000, 5000)
    blocks = ([0, 0, 3], [2, 7, 4999]), ([1, 2, 3, 3], [11, 12]), ([4], [11]), ([0], [11, 14])
    for users, items in blocks:
        check_block(graph, links, users, items, 0)


@pytest.mark.parametrize(("n_users", "n_items"), [(1, 1), (8, 3), (9, 200), (100, 17)])
def test_a_block_with_repeated_users(n_users, n_items):
    rng = np.random.default_rng(n_users)
    users, items = rng.integers(0, n_users, 400).tolist(), rng.integers(0, n_items, 400).tolist()
    links = set(zip(users, items, strict=True))
    graph = graph_of(links, n_users, n_items)
    assert graph._bits is not None
    block = rng.integers(0, n_users, 50).tolist(), sorted(set(rng.integers(0, n_items, 30)))
    for cells_per_link in CELLS_PER_LINK:
        check_block(graph, links, *block, cells_per_link)


@given(st.lists(st.integers(0, 5), max_size=40))
def test_grouping_keeps_the_order_of_equal_keys(keys):
    values = np.random.default_rng(len(keys)).permutation(len(keys)).astype(np.int32)
    result, offsets = grouped(values, np.array(keys, np.int32), 7)
    assert (result.dtype, offsets.dtype) == (np.int32, np.int64)
    for key in range(7):
        expected = [value for value, of in zip(values.tolist(), keys, strict=True) if of == key]
        assert result[slice(*offsets[key : key + 2])].tolist() == expected


@given(st.lists(st.integers(0, 199), min_size=1), st.sets(st.integers(0, 199), min_size=1))
def test_an_id_index_finds_what_a_search_finds(values, ids):
    index = IdIndex(200)
    for _ in range(2):
        distinct, position = index.distinct(np.array(values, np.int32))
        assert distinct.dtype == position.dtype == np.int32
        assert distinct.tolist() == sorted(set(values))
        assert [distinct[at] for at in position] == values
        among = sorted(ids)
        hit, position = index.hits(*(np.array(one, np.int32) for one in (values, among)))
        assert hit.tolist() == [at for at, value in enumerate(values) if value in ids]
        assert [among[at] for at in position] == [value for value in values if value in ids]


@pytest.mark.parametrize(
    ("users", "items", "message"),
    [
        ([], [], "no training links"),
        ([0, 0], [1, 1], r"Link \(user 0, item 1\) is given twice"),
        ([1, 0, 1], [2, 1, 2], r"Link \(user 1, item 2\) is given twice"),
        ([0, 2], [0, 0], "user 2, outside 0..1"),
        ([0, 1], [0, -1], "item -1, outside 0..2"),
        ([0, 1], [0], r"users of shape \(2,\) and items of shape \(1,\)"),
        ([0, 1], [0.5, 1.0], "items are of type float64, and ids are whole numbers"),
        (["a", "b"], [0, 1], "For names: names, ids = numpy.unique"),
    ],
)
def test_impossible_links_are_refused(users, items, message):
    """Lists, as a user may give them."""
    with pytest.raises(DataError, match=message):
        BipartiteGraph.from_links(users, items, 2, 3)


def test_a_graph_beyond_int32_is_refused():
    for n_links, *sizes in ((2**31, 1, 1), (1, 2**31, 1), (1, 1, 2**31)):
        ends = np.broadcast_to(np.int32(0), (n_links,))
        with pytest.raises(DataError, match="2,147,483,648 .*: more than 2,147,483,647 are not"):
            BipartiteGraph.from_links(ends, ends, *sizes)
