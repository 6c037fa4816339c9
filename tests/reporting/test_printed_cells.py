"""Figures that the paper printed, as they ship."""

import pytest

from ncfbench.catalog import find_encoder, find_loss, find_sampler
from ncfbench.paper import printed
from ncfbench.paper.printed import PrintedCell


def test_printed_figures_are_found_by_name():
    values = printed.values()
    for value, *names in (
        (29.12, "citeulike", "cnn", "strat-ns", "sg", "total_speedup"),
        (4.14, "news", "lstm", "ns", "sg", "iterations_speedup"),
        (0.4877, "citeulike", "lstm", "strat-ns", "mse", "test_recall_at_50"),
        (None, "citeulike", "cnn", "iid", "hinge", "test_recall_at_50"),
        (None, "citeulike", "cnn", "ns", "log", "total_speedup"),
    ):
        assert values.get(PrintedCell(*names)) == value
    assert len(values) == 2 * 2 * 4 * 3 + 2 * 2 * (2 * 5 + 2 * 3)


def test_printed_names_are_the_registrys():
    for cell in printed.values():
        assert find_encoder(cell.encoder).title
        assert find_loss(cell.loss).family in find_sampler(cell.sampler).families


def test_the_total_is_about_the_product_of_its_factors():
    """A slip in copying one of the three would show; the paper rounds each."""
    for row in printed.table("speedup"):
        product = float(row["per_iteration"]) * float(row["iterations"])
        assert float(row["total"]) == pytest.approx(product, rel=0.02)


def test_the_printed_cost_table_is_the_cost_models():
    for row in printed.table("cost"):
        negatives, users, items, interactions, kind = find_sampler(row["sampler"]).symbols
        ours = {"user_nodes": users, "item_nodes": items, "interactions": interactions}
        assert {name: row[name].replace("*", "").replace("bb", "b^2") for name in ours} == ours
        assert kind.startswith({"vector": "vec", "matrix": "mat"}[row["interaction_kind"]])
        if row["sampler"] != "strat-ns":  # where ours leaves out a link's own stratum
            assert row["negative_links"].replace("*", "") == negatives
