"""All users as negatives: weights by their definition, linked pairs, slots, refusals."""

from __future__ import annotations

import tracemalloc

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncfbench.config import complete
from ncfbench.data.graph import BipartiteGraph
from ncfbench.data.store import Dataset
from ncfbench.distributed.layout import Layout
from ncfbench.errors import UsageError
from ncfbench.reporting.contents import effective_negatives
from ncfbench.rng import Streams
from ncfbench.runs.arms import Variant
from ncfbench.sampling import make_sampler
from ncfbench.sampling.all_users import PAIR_MULTIPLE, NegativeSharingAllUsersSampler
from ncfbench.sampling.batch import EveryUser, MetUsers, negative_ids, negative_weights


@st.composite
def graphs(draw: st.DrawFn) -> BipartiteGraph:
    links = draw(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 6)), min_size=8, max_size=30))
    users, items = zip(*sorted(links), strict=True)
    return BipartiteGraph.from_links(np.array(users), np.array(items), 6, 7)


@given(
    graph=graphs(),
    sampler=st.sampled_from(["ns-all", "strat-all"]),
    strata=st.sampled_from(["item", "user"]),
    met=st.sampled_from([0, 3]),
    mask=st.booleans(),
    batch=st.integers(0, 3),
)
@settings(max_examples=40, deadline=None)
def test_weights_are_those_of_the_definition(
    graph: BipartiteGraph, sampler: str, strata: str, met: int, mask: bool, batch: int
) -> None:
    config = complete(
        {"sampler": sampler, "strata": strata, "batch_size": 8, "noise": "0.5", "mask": mask}
        | {"negative_users": met}
    )
    made = make_sampler(graph, config, Streams(1), weight_dtype=np.float64)
    (draw,) = made.draw(batch, 1)
    found = made.assemble(draw, 9)
    links = set(zip(graph.link_user.tolist(), graph.link_item.tolist(), strict=True))
    own = [(int(graph.link_user[link]), int(graph.link_item[link])) for link in draw.links]
    degree = np.array([sum(item == j for _, item in links) for j in range(7)])
    noise = np.sqrt(degree) / np.sqrt(degree).sum()
    expected: dict[tuple[int, int], float] = {}
    for user in draw.users.reshape(-1).tolist() if met else range(6):
        share = 1 / met if met else sum(u == user for u, _ in links) / len(links)
        for _, item in own:
            if not (mask and (user, item) in links):
                rho = noise[item] / (degree[item] / len(links))
                key = user, item
                expected[key] = expected.get(key, 0.0) + share * rho / 8
    users, items = negative_ids(found)
    weights: dict[tuple[int, int], float] = {}
    for key, weight in zip(
        zip(users.flat, items.flat, strict=True), negative_weights(found).flat, strict=True
    ):
        weights[key] = weights.get(key, 0.0) + weight
    weights = {key: weight for key, weight in weights.items() if weight}
    assert weights == pytest.approx({key: value for key, value in expected.items() if value})
    positives = zip(found.users[found.pos_user], found.items[found.pos_item], strict=True)
    assert list(positives) == own
    assert isinstance(found.negatives, MetUsers)
    assert isinstance(found.negatives, EveryUser) == (met == 0)


def test_effective_negatives_need_no_matrix(tiny: Dataset) -> None:
    config = complete({"sampler": "strat-all", "batch_size": 64})
    made = make_sampler(tiny.graph, config, Streams(0), weight_dtype=np.float64)
    batch = made.assemble(made.draw(0, 1)[0])
    # A user without training links has no weight, and counts as one who meets all items.
    alike = np.ones_like(batch.negatives.user_weight)
    weight = negative_weights(batch._replace(negatives=batch.negatives._replace(user_weight=alike)))
    expected = np.mean(weight.sum(axis=1) ** 2 / (weight**2).sum(axis=1))
    assert effective_negatives(batch) == pytest.approx(expected)


def test_every_user_is_moved_to_the_device_once(
    tiny: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    config = complete({"sampler": "ns-all", "batch_size": 32})
    layout = Layout(config)
    made, other = (make_sampler(tiny.graph, config, Streams(seed)) for seed in (0, 1))
    first, second = (layout.put(made.assemble(draw)) for draw in made.draw(0, 2))
    assert all(isinstance(array, jax.Array) for array in jax.tree.leaves(first))
    assert first.users is second.users
    assert first.negatives.user_weight is second.negatives.user_weight
    assert (np.asarray(first.pos_user) != np.asarray(second.pos_user)).any()
    moved = layout.put(other.assemble(other.draw(0, 1)[0]))
    np.testing.assert_array_equal(moved.negatives.user_weight, first.negatives.user_weight)


def test_drawn_users_follow_their_links(tiny: Dataset) -> None:
    config = complete({"sampler": "ns-all", "batch_size": 32, "negative_users": 50})
    draws = make_sampler(tiny.graph, config, Streams(0)).draw(0, 400)
    drawn = np.concatenate([draw.users.reshape(-1) for draw in draws])
    assert len(drawn) == 400 * 50
    share = tiny.graph.user_degrees / tiny.graph.n_links
    error = np.sqrt(share * (1 - share) / len(drawn))
    assert np.all(
        np.abs(np.bincount(drawn, minlength=len(share)) / len(drawn) - share) <= 5 * error
    )
    again = make_sampler(tiny.graph, config, Streams(0)).draw(7, 1)[0]
    assert np.array_equal(again.users, draws[7].users)


def test_all_or_fewer_users(tiny: Dataset) -> None:
    assert complete({"sampler": "ns-all", "negative_users": "all"}).negative_users == 0
    some = complete({"sampler": "ns-all", "negative_users": "20"})
    assert some.negative_users == 20
    assert Variant.of(some).note("cnn") == "M=20"
    assert some.settings["negative_users"].arguments(0) == ["--negative-users", "all"]
    n = tiny.graph.n_users
    config = complete({"sampler": "ns-all", "negative_users": n, "batch_size": 32})
    with pytest.raises(UsageError, match=f"--negative-users {n} is not below the {n} users"):
        make_sampler(tiny.graph, config, Streams(0))
    with pytest.raises(UsageError, match="not a whole number or all"):
        complete({"sampler": "ns-all", "negative_users": "most"})
    for loss in ("hinge", "softmax"):
        with pytest.raises(UsageError, match="--sampler ns-all cannot train"):
            complete({"sampler": "ns-all", "loss": loss})


def test_more_linked_pairs_get_more_slots(tiny: Dataset) -> None:
    config = complete({"sampler": "ns-all", "batch_size": 64})
    made = make_sampler(tiny.graph, config, Streams(0))
    assert isinstance(made, NegativeSharingAllUsersSampler)
    (draw,) = made.draw(0, 1)
    usual = made.assemble(draw).negatives
    assert len(usual.linked_user) == made.pair_slots
    assert made.pair_slots % PAIR_MULTIPLE == 0
    made.pair_slots = 0  # a plan that was too small
    grown = made.assemble(draw).negatives
    pairs = int((usual.linked_user < tiny.graph.n_users).sum())
    assert pairs <= len(grown.linked_user) < pairs + PAIR_MULTIPLE
    assert np.array_equal(grown.linked_user[:pairs], usual.linked_user[:pairs])


def test_no_matrix_is_made_on_the_host() -> None:
    rng = np.random.default_rng(0)
    links = np.unique(rng.integers(20_000 * 3_000, size=60_000))
    graph = BipartiteGraph.from_links(*np.divmod(links, 3_000), 20_000, 3_000)
    made = make_sampler(graph, complete({"sampler": "ns-all", "batch_size": 512}), Streams(0))
    draws = made.draw(0, 2)
    made.assemble(draws[0])
    tracemalloc.start()
    batch = made.assemble(draws[1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000 * int(batch.n_items) / 4
