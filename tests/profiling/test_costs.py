"""The cost model: unit costs from known laws, counts by the paper's symbols, errors that add up."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncfbench.catalog import find_sampler
from ncfbench.config import complete
from ncfbench.profiling.costs import AXES, PARTS, Costs, Counts, predict_full
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler

BASE = Counts(users=512, items=184, interactions=5632, kind="vectors")
STEPS = [BASE, *(replace(BASE, users=size) for size in (1698, 5632))]
STEPS += [replace(BASE, items=size) for size in (92, 512, 1479, 4272)]
STEPS += [replace(BASE, interactions=size) for size in (1536, 10752)]
STEPS += [Counts(512, size, 512 * (size + 1), "matrix") for size in (92, 184, 512)]
IID = Counts(users=5632, items=4272, interactions=5632, kind="vectors")
SHARED = Counts(users=512, items=300, interactions=512 * 301, kind="matrix")


def law(counts):
    of_links = 2e-7 if counts.kind == "vectors" else 4e-9
    return 3e-3 + 1e-7 * counts.users + 6e-6 * counts.items + of_links * counts.interactions


def test_straight_lines_are_fitted():
    costs = Costs.fit(STEPS, [*map(law, STEPS)])
    assert costs.fixed == pytest.approx(3e-3)
    assert costs.units == pytest.approx(dict(zip(AXES, (1e-7, 6e-6, 2e-7, 4e-9), strict=True)))
    parts = costs.parts(IID)
    assert tuple(parts) == PARTS
    expected = {"users": 5632e-7, "items": 6e-6 * 4272, "interactions": 2e-7 * 5632, "fixed": 3e-3}
    assert parts == pytest.approx(expected)
    assert costs.parts(SHARED)["interactions"] == pytest.approx(4e-9 * 512 * 301)


@given(st.lists(st.floats(1e-3, 1), min_size=len(STEPS), max_size=len(STEPS)))
def test_no_cost_is_negative(seconds):
    costs = Costs.fit(STEPS, seconds)
    assert min(costs.parts(IID).values()) >= 0
    assert min(costs.parts(SHARED).values()) >= 0
    assert min([costs.fixed, *costs.units.values()]) >= 0


def test_noise_of_steps_cancels():
    rng = np.random.default_rng(0)
    noisy = [law(each) * rng.uniform(0.97, 1.03) for each in STEPS]
    total = sum(Costs.fit(STEPS, noisy).parts(IID).values())
    assert total == pytest.approx(law(IID), rel=0.05)


@pytest.mark.parametrize(
    ("sampler", "strata", "users", "items", "negatives"),
    [
        ("iid", "item", 384, 384, 320),
        ("neg", "item", 64, 384, 320),
        ("strat", "item", 384, 16, 320),
        ("strat", "user", 16, 384, 320),
        ("ns", "item", 64, 64, 64 * 63),
        ("strat-ns", "item", 64, 16, 64 * 15),
        ("strat-ns", "user", 16, 64, 64 * 60),
        ("mixed-ns", "item", 64, 128, 64 * 127),
    ],
)
def test_formulas_count_what_batches_hold(tiny, sampler, strata, users, items, negatives):
    """For b = 64 (and k' = 64), k = 5, s = 4."""
    shared = {"batch_size": 64, "negatives": 5, "stratum_size": 4}
    config = complete({"sampler": sampler, "strata": strata} | shared)
    made = make_sampler(tiny.graph, config, Streams(0))
    assert made.claims().nominal == (users, items, negatives)
    counts = Counts.of(next(made.batches(0, 0)))
    assert counts.kind == find_sampler(sampler).symbols[-1]
    if sampler in ("iid", "neg"):
        assert counts.interactions == 64 * 6


def test_full_iterations_by_hand():
    assert predict_full(2.0, 0.5, accelerator=False) == 2.5
    assert predict_full(2.0, 0.5, accelerator=True) == 2.0
    assert predict_full(2.0, 3.0, accelerator=True) == 3.0
