"""Every sampler's expected batch loss is L: all draws of a graph of five nodes, through
``assemble``, in plain arithmetic.

For a listwise loss, which is no sum over links, what is proven is that the weights of each row sum
every function of a positive and a negative link to its sum over all items: the sampled normaliser
of the softmax is unbiased.
"""

import numpy as np
import pytest
from support.enumeration import LOSS_OF_FAMILY, all_draws, batch_objective, exact_objective

from ncfbench.catalog import SAMPLERS, find_sampler
from ncfbench.config import complete
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler

SIZES = {
    "iid": (2, 1, 1),
    "neg": (2, 1, 2),
    "strat": (4, 2, 1),
    "ns": (3, 1, 1),
    "strat-ns": (4, 2, 1),
    "mixed-ns": (3, 1, 1),
}


def configure(sampler, family="pointwise", **more):
    b, s, k = SIZES[sampler]
    sizes = {"batch_size": b, "stratum_size": s, "negatives": k, "uniform_items": 2}
    return complete({"sampler": sampler, "loss": LOSS_OF_FAMILY[family]} | sizes | more)


def expected_loss(graph, config, family="pointwise", build=make_sampler):
    """The mean over all draws of a batch's loss."""
    instance = build(graph, config, Streams(0), weight_dtype=np.float64)
    chances, losses = zip(
        *(
            (chance, batch_objective(instance.assemble(draw, 8), family))
            for chance, draw in all_draws(config, graph)
        ),
        strict=True,
    )
    assert sum(chances) == pytest.approx(1, abs=1e-12)
    return float(np.dot(chances, losses))


CASES = [
    (sampler, strata, family, noise, mask)
    for sampler in SAMPLERS
    for strata in (("item", "user") if find_sampler(sampler).reads("stratum_size") else ("item",))
    for family in find_sampler(sampler).with_strata(strata).families
    for noise in ("unigram", "uniform", "0.5")
    for mask in (True, False)
]


# The weights of a pairwise loss are those of a pointwise one.
@pytest.mark.long_cases(r".*-(pairwise-.*|uniform-.*|unigram-False)$")
@pytest.mark.parametrize(("sampler", "strata", "family", "noise", "mask"), CASES)
def test_expected_loss_of_all_draws_is_the_objective(
    five_nodes, sampler, strata, family, noise, mask
):
    settings = {"noise": noise, "strata": strata, "mask": mask}
    if (sampler, strata) == ("strat", "user"):
        # Listed strata do not meet: of users, whose items are drawn, one is enough.
        settings |= {"batch_size": 2, "stratum_size": 2, "negatives": 2}
    config = configure(sampler, family, **settings)
    exact = exact_objective(five_nodes, config.noise_exponent, mask, family)
    assert expected_loss(five_nodes, config, family) == pytest.approx(exact, rel=1e-9)


def test_shuffled_links_are_never_the_same(five_nodes):
    """The other link of a pair is any of three; of four where each is drawn by itself."""
    sampler = make_sampler(five_nodes, configure("ns", "pointwise"), Streams(0))
    assert sampler.claims().shuffled_bias == pytest.approx((1 / 3) / (1 / 4) - 1)


@pytest.mark.parametrize("fault", ["DistinctOnce", "UnmaskedPairs", "DiagonalKept"])
def test_the_enumeration_finds_a_wrong_estimator(five_nodes, fault):
    """A proof that passed them would prove nothing."""
    mask, wrong = fault != "DiagonalKept", find_sampler(f"planted:{fault}").load()
    config = configure("strat-ns", mask=mask, batch_size=6)
    value = expected_loss(five_nodes, config, build=wrong)
    assert abs(value - exact_objective(five_nodes, 1.0, mask, "pointwise")) > 1e-3
