"""Every sampler's expected batch loss is L: all draws of a graph of five nodes, through
``assemble``, in plain arithmetic.

For a listwise loss, which is no sum over links, what is proven is that the weights of each row sum
every function of a positive and a negative link to its sum over all items: the sampled normaliser
of the softmax is unbiased.
"""

from __future__ import annotations

import numpy as np
import pytest
from enumeration import all_draws, batch_objective, exact_objective

from ncfbench.auditing.variance import meeting_all_users
from ncfbench.catalog import SAMPLERS, find_sampler
from ncfbench.config import complete
from ncfbench.data.graph import BipartiteGraph
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.sampling.local import LocalSampler

SIZES = {
    "iid": (2, 1, 1),
    "neg": (2, 1, 2),
    "strat": (4, 2, 1),
    "ns": (3, 1, 1),
    "strat-ns": (4, 2, 1),
    "mixed-ns": (3, 1, 1),
    "xbm": (2, 1, 1),
    "ns-all": (3, 1, 1),
    "strat-all": (4, 2, 1),
}
LOSS_OF_FAMILY = {"pointwise": "sg", "pairwise": "log", "listwise": "softmax"}
CASES = [
    (sampler, strata, family, noise, mask, unique)
    for sampler in SAMPLERS
    if sampler != "ns-distinct"  # is biased, and says so
    for strata in (("item", "user") if find_sampler(sampler).reads("stratum_size") else ("item",))
    for family in find_sampler(sampler).with_strata(strata).families
    for noise in ("unigram", "uniform", "0.5")
    for mask in (True, False)
    for unique in (True, False)
    if unique or find_sampler(sampler).with_strata(strata).reads("unique_items")
]


@pytest.mark.long_cases(r".*-(unigram|uniform)-(True|False)-False$")
@pytest.mark.parametrize(("sampler", "strata", "family", "noise", "mask", "unique"), CASES)
def test_expected_loss_of_all_draws_is_the_objective(
    five_nodes: BipartiteGraph,
    sampler: str,
    strata: str,
    family: str,
    noise: str,
    mask: bool,
    unique: bool,
) -> None:
    # Listed strata do not meet: of users, whose items are drawn, one is enough.
    b, s, k = (2, 2, 2) if (sampler, strata) == ("strat", "user") else SIZES[sampler]
    settings = {
        "sampler": sampler,
        "loss": LOSS_OF_FAMILY[family],
        "batch_size": b,
        "stratum_size": s,
        "negatives": k,
        "noise": noise,
        "strata": strata,
        "uniform_items": 2,
        "memory": 2,
        "mask": mask,
        "unique_items": unique,
    }
    config = complete(settings)
    made = make_sampler(five_nodes, config, Streams(0), weight_dtype=np.float64)
    expected = chances = 0.0
    for chance, draw in all_draws(config, five_nodes):
        chances += chance
        expected += chance * batch_objective(made.assemble(draw), family)
    assert chances == pytest.approx(1, abs=1e-12)
    assert expected == pytest.approx(
        exact_objective(five_nodes, config.noise_exponent, mask, family), rel=1e-9
    )


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("sampler", ["ns-all", "strat-all"])
def test_one_drawn_user_is_unbiased(five_nodes: BipartiteGraph, sampler: str, mask: bool) -> None:
    b, s, _ = SIZES[sampler]
    config = complete(
        {"sampler": sampler, "batch_size": b, "stratum_size": s, "noise": "0.5", "mask": mask}
        | {"negative_users": 1}
    )
    made = make_sampler(five_nodes, config, Streams(0), weight_dtype=np.float64)
    expected = sum(
        chance * batch_objective(made.assemble(draw), "pointwise")
        for chance, draw in all_draws(config, five_nodes)
    )
    assert expected == pytest.approx(exact_objective(five_nodes, 0.5, mask, "pointwise"), rel=1e-9)


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("sampler", [name for name in SIZES if name not in ("mixed-ns", "xbm")])
def test_items_may_meet_all_users(five_nodes: BipartiteGraph, sampler: str, mask: bool) -> None:
    """Any sampler's items meet all users with the weights of their own links: the same mean."""
    b, s, k = SIZES[sampler]
    config = complete(
        {"sampler": sampler, "batch_size": b, "stratum_size": s, "negatives": k, "noise": "0.5"}
        | {"mask": False}
    )
    made = make_sampler(five_nodes, config, Streams(0), weight_dtype=np.float64)
    expected = 0.0
    for chance, draw in all_draws(config, five_nodes):
        meeting = meeting_all_users(five_nodes, made.assemble(draw, 8), mask=mask)
        expected += chance * batch_objective(meeting, "pointwise")
    exact = exact_objective(five_nodes, 0.5, mask, "pointwise")
    assert expected == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(("own", "other"), [("ns-all", "ns"), ("strat-all", "strat-ns")])
def test_all_users_have_no_larger_variance(
    five_nodes: BipartiteGraph, own: str, other: str
) -> None:
    """Over all draws, with the same positive links in both."""

    def variance(sampler: str) -> float:
        b, s, _ = SIZES[sampler]
        config = complete({"sampler": sampler, "batch_size": b, "stratum_size": s})
        made = make_sampler(five_nodes, config, Streams(0), weight_dtype=np.float64)
        draws = [
            (chance, batch_objective(made.assemble(draw), "pointwise"))
            for chance, draw in all_draws(config, five_nodes)
        ]
        mean = sum(chance * value for chance, value in draws)
        return sum(chance * (value - mean) ** 2 for chance, value in draws)

    assert variance(own) < variance(other)


@pytest.mark.parametrize("fault", ["distinct once", "unmasked pairs", "diagonal kept"])
def test_the_enumeration_finds_a_wrong_estimator(five_nodes: BipartiteGraph, fault: str) -> None:
    """Three plausible mistakes in the shared weights; a proof that passed them would prove
    nothing.
    """
    mask = fault != "diagonal kept"
    config = complete({"sampler": "strat-ns", "batch_size": 4, "stratum_size": 2, "mask": mask})
    made = make_sampler(five_nodes, config, Streams(0), weight_dtype=np.float64)
    expected = 0.0
    for chance, draw in all_draws(config, five_nodes):
        batch = made.assemble(draw)
        weight = batch.negatives.weight
        if fault == "distinct once":
            wrong = (weight > 0) / 8
        elif fault == "unmasked pairs":
            wrong = weight / max(weight.sum(), 1e-30)
        else:
            wrong = np.broadcast_to(
                np.bincount(batch.pos_item, minlength=weight.shape[1]) / 16, weight.shape
            )
        expected += chance * batch_objective(
            batch._replace(negatives=batch.negatives._replace(weight=wrong)), "pointwise"
        )
    assert abs(expected - exact_objective(five_nodes, 1.0, mask, "pointwise")) > 1e-3


LOCAL_SIZES = {"ns": (4, 1), "strat-ns": (8, 2), "mixed-ns": (4, 1)}


@pytest.mark.long_cases(r".*-pairwise-")  # its weights are those of a pointwise loss
@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("family", ["pointwise", "pairwise", "listwise"])
@pytest.mark.parametrize("sampler", LOCAL_SIZES)
def test_local_sharing_is_unbiased(
    five_nodes: BipartiteGraph, sampler: str, family: str, mask: bool
) -> None:
    """Two shards, each with its own normaliser; all draws of the whole batch."""
    b, s = LOCAL_SIZES[sampler]
    settings = {
        "sampler": sampler,
        "loss": LOSS_OF_FAMILY[family],
        "batch_size": b,
        "stratum_size": s,
        "noise": "0.5",
    }
    config = complete(settings | {"uniform_items": 2, "mask": mask, "share": "local", "devices": 2})
    made = LocalSampler(five_nodes, config, Streams(0), weight_dtype=np.float64)
    expected = sum(
        chance * batch_objective(made.assemble(draw), family)
        for chance, draw in all_draws(config, five_nodes)
    )
    assert expected == pytest.approx(exact_objective(five_nodes, 0.5, mask, family), rel=1e-9)
