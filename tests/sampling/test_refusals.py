"""Refused settings: what a message tells the user to do must work."""

import re
import shlex

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncfbench.catalog import LOSSES, SAMPLERS
from ncfbench.config import complete
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import DataError, UsageError
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler, plan_capacity

SMALL = {"batch_size": 8, "stratum_size": 2, "negatives": 2, "uniform_items": 4}


def graph_of(n_users, n_items, n_links):
    pairs = np.random.default_rng(1).choice(n_users * n_items, n_links, replace=False)
    return BipartiteGraph.from_links(pairs // n_items, pairs % n_items, n_users, n_items)


GRAPH = graph_of(12, 15, 60)


def refusal(given, graph=GRAPH):
    """Return the message that refuses some settings; empty where they work."""
    try:
        config = complete(given)
        instance = make_sampler(graph, config, Streams(0))
    except UsageError as error:
        return str(error)
    instance.assemble(instance.draw(0, 1)[0], plan_capacity(graph, config))
    return ""


def hints(message):
    """Return the settings of each way out that a message offers."""
    advice = re.search(r"(?:Use|Add)(?: for example)? (--.*)\.$", message)
    assert advice, f"no way out: {message}"
    text = re.sub(r" or (?:less|more)\b", "", advice[1]).replace("(or ", ", or ").replace(")", "")
    ways_out = []
    for choice in re.split(r",? or (?=--)", text):
        # "--sampler neg, ns or strat" names three.
        ways = [{}]
        words = shlex.split(re.sub(r"(?:,| or) (?!--)", ",", choice))
        for flag, values in zip(words[::2], words[1::2], strict=True):
            name, values = values.split("=") if flag == "--set" else (flag, values)
            name = name.removeprefix("--").replace("-", "_")
            ways = [way | {name: value} for way in ways for value in values.strip(",").split(",")]
        ways_out += ways
    return ways_out


@given(
    st.fixed_dictionaries(
        {
            "sampler": st.sampled_from(tuple(SAMPLERS)),
            "loss": st.sampled_from(tuple(LOSSES)),
            "strata": st.sampled_from(["item", "user"]),
            "batch_size": st.integers(1, 70),
            "stratum_size": st.integers(1, 9),
            "devices": st.integers(1, 5),
            "uniform_items": st.integers(1, 9),
            "coupling": st.sampled_from(["direct", "regularised"]),
            "encoder": st.sampled_from(["bow", "mf"]),
        }
    ),
    st.sampled_from([GRAPH, graph_of(2, 2, 2), graph_of(3, 4, 7), graph_of(20, 3, 30)]),
)
@settings(max_examples=200, deadline=None)
def test_ways_out_lead_out(given, graph):
    """Each way out mends its fault; faults are mended one after the other, none of them twice."""
    seen = set()
    while message := refusal(given, graph):
        assert message not in seen, f"in a circle: {sorted(seen)}"
        seen.add(message)
        ways = [given | hint for hint in hints(message)]
        assert message not in [refusal(way, graph) for way in ways]
        given = ways[0]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize(("n_users", "n_items"), [(6, 1), (1, 6), (3, 4)])
def test_links_without_a_negative_are_refused(sampler, mask, n_users, n_items):
    graph = graph_of(n_users, n_items, n_users * n_items)
    config = complete({"sampler": sampler, "mask": mask} | SMALL)
    with pytest.raises(DataError, match=f"each of {n_users} users with each of {n_items} items"):
        make_sampler(graph, config, Streams(0))
