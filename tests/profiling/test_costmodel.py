"""The cost model: unit costs from known laws, counts by the paper's symbols, errors that add up."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncfbench.config import complete
from ncfbench.data.store import Dataset
from ncfbench.profiling.cost_model import (
    PARTS,
    Costs,
    Counts,
    UnitCost,
    predict_full,
    residuals,
    responsible,
)
from ncfbench.registry import SAMPLERS, find_sampler
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.timing import statistics as analysis

SIZES = [64, 128, 256, 512, 1000]


def test_a_straight_line_is_found_again() -> None:
    cost = UnitCost.fit(SIZES, [1e-4 + 2e-6 * n for n in SIZES])
    assert cost.is_linear
    assert (cost.slope, cost.overhead) == (pytest.approx(2e-6), pytest.approx(1e-4))
    assert cost(3000) == pytest.approx(1e-4 + 6e-3)


def test_a_disturbed_measurement_changes_nothing() -> None:
    seconds = [[1e-4 + 2e-6 * n] * 2 + [1.0] for n in SIZES]
    cost = UnitCost.fit(
        [n for n in SIZES for _ in range(3)], [value for row in seconds for value in row]
    )
    assert cost.slope == pytest.approx(2e-6)


def test_a_curve_passes_what_was_measured() -> None:
    law = [1e-7 * n**1.5 for n in SIZES]
    cost = UnitCost.fit(SIZES, law)
    assert not cost.is_linear
    assert [cost(n) for n in SIZES] == pytest.approx(law)
    assert cost(192) == pytest.approx((law[1] + law[2]) / 2)
    assert cost(1488) == pytest.approx(law[-1] + (law[-1] - law[-2]))


def test_times_that_fall_give_no_negative_cost() -> None:
    cost = UnitCost.fit(SIZES, [5e-5, 4e-5, 3e-5, 2e-5, 1e-5])
    assert cost.slope >= 0
    assert cost.overhead >= 0
    assert cost(5000) >= 0


def value(symbol: str, b: int, k: int, s: int) -> float:
    """A formula of the cost table with numbers for its letters; k' is b."""
    text = symbol.replace("k'", "B").replace("^", "**")
    text = re.sub(r"(?<=[bks])(?=[bks(])", "*", text)
    return float(eval(text, {"b": b, "k": k, "s": s, "B": b}))


@pytest.mark.parametrize(
    ("sampler", "strata"),
    [*((name, "item") for name in SAMPLERS), ("strat", "user"), ("strat-ns", "user")],
)
def test_symbols_count_what_samplers_count(tiny: Dataset, sampler: str, strata: str) -> None:
    config = complete(
        {"sampler": sampler, "strata": strata, "batch_size": 64, "negatives": 5, "stratum_size": 4}
    )
    made = make_sampler(tiny.graph, config, Streams(0))
    negatives, users, items, interactions, kind = find_sampler(sampler).symbols_with(strata)
    nominal = made.nominal()
    assert nominal is not None
    assert [value(symbol, 64, 5, 4) for symbol in (users, items, negatives)] == list(nominal)
    counts = Counts.of(next(made.batches(0, 0)))
    assert counts.kind == kind
    if (sampler, strata) in (("iid", "item"), ("neg", "item")):
        assert counts.interactions == value(interactions, 64, 5, 4)


COSTS = Costs(
    users=UnitCost.fit(SIZES, [2e-5 + 1e-8 * n for n in SIZES]),
    items=UnitCost.fit(SIZES, [2e-5 + 4e-5 * n for n in SIZES]),
    vectors=UnitCost.fit(SIZES, [2e-5 + 1e-7 * n for n in SIZES]),
    matrix=UnitCost.fit(SIZES, [2e-5 + 4e-9 * n for n in SIZES]),
    optimiser=6e-4,
    dispatch=2e-5,
)


def test_parts_of_an_iteration_by_hand() -> None:
    parts = COSTS.parts(Counts(users=500, items=100, interactions=5000, kind="vectors"))
    assert tuple(parts) == PARTS
    expected = {
        "users": 5e-6,
        "items": 4e-3,
        "interactions": 5e-4,
        "collectives": 0,
        "optimiser": 5.8e-4,
        "dispatch": 2e-5,
    }
    assert parts == pytest.approx(expected)
    assert COSTS.parts(Counts(500, 100, 5000, "matrix"))["interactions"] == pytest.approx(2e-5)
    assert predict_full(2.0, 0.5, accelerator=False) == 2.5
    assert predict_full(2.0, 0.5, accelerator=True) == 2.0
    assert predict_full(2.0, 3.0, accelerator=True) == 3.0


seconds = st.floats(1e-6, 1)
parts = st.fixed_dictionaries(dict.fromkeys(PARTS, seconds))


@given(predicted=parts, measured=parts, predicted_full=seconds, step=seconds, full=seconds)
def test_misses_add_up(
    predicted: dict[str, float],
    measured: dict[str, float],
    predicted_full: float,
    step: float,
    full: float,
) -> None:
    found = residuals(predicted, measured, predicted_full, step, full)
    assert math.fsum(found.values()) == pytest.approx(
        (full - predicted_full) / full, rel=1e-9, abs=1e-6
    )


def test_the_part_that_is_wrong_is_named() -> None:
    right = COSTS.parts(Counts(500, 100, 5000, "vectors"))
    step = sum(right.values())
    none = residuals(right, right, step + 1e-3, step, step + 1e-3)
    assert max(map(abs, none.values())) < 1e-9
    assert (
        responsible(residuals(right, right | {"items": 9e-3}, step, step + 5e-3, step + 5e-3), none)
        == "items"
    )
    assert responsible(residuals(right, right, step, 2 * step, 2 * step), none) == "composition"
    late = residuals(right, right, step, step, 2 * step)
    assert responsible(late, none) == "sampling"
    assert responsible(none, late) == "sampling", "the baseline's"


def test_errors_that_both_arms_share_cancel() -> None:
    zero = dict.fromkeys((*PARTS, "composition", "sampling"), 0.0)
    assert responsible(zero | {"items": 0.1, "sampling": 0.2}, zero | {"items": 0.9}) == "items"
    assert responsible(zero | {"items": 0.3, "sampling": 0.2}, zero | {"items": 0.3}) == "items", (
        "of the iteration itself"
    )
    assert (
        responsible(zero | {"items": -0.25, "composition": 0.24, "interactions": 0.2}, zero)
        == "composition"
    )


@pytest.mark.parametrize(
    ("n", "left_out"), [(2, 0), (5, 0), (6, 0), (7, 2), (8, 3), (10, 8), (11, 10), (12, 13)]
)
def test_intervals_follow_tables_of_signed_ranks(n: int, left_out: int) -> None:
    logs = np.random.default_rng(n).normal(size=n)
    walsh = sorted((logs[i] + logs[j]) / 2 for i in range(n) for j in range(i, n))
    centre, lower, upper = analysis.centre(np.exp(logs))
    assert np.log([centre, lower, upper]) == pytest.approx(
        [np.median(walsh), walsh[left_out], walsh[-1 - left_out]]
    )


@pytest.mark.parametrize("disturbed", [0.0, 0.3])
def test_intervals_hold_19_times_in_20(disturbed: float) -> None:
    """Also where some blocks are slower than the others by a third, as on a shared machine."""
    rng = np.random.default_rng(0)

    def blocks(count: int) -> np.ndarray:
        slower = rng.exponential(0.3, count) * (rng.random(count) < disturbed)
        return np.exp(rng.normal(size=count) * 0.05 + slower)

    found = [analysis.ratio_of_medians(20 * blocks(11), blocks(11)) for _ in range(1000)]
    assert np.mean([lower <= 20 <= upper for _, lower, upper in found]) == pytest.approx(
        0.95, abs=0.03
    )


def test_some_wild_rounds_hardly_move_a_ratio() -> None:
    baseline = [2.0, 2.1, 1.9, 2.0, 2.05, 1.95, 2.0, 2.02, 1.98, 2.0, 2.0]
    candidate = [1.0, 1.01, 0.99, 1.0, 1.0, 1.02, 0.98, 1.0, 9.0, 9.0, 9.0]
    middle, lower, upper = analysis.ratio_of_medians(baseline, candidate)
    assert middle == pytest.approx(2)
    assert upper < 2.1
    assert analysis.ratio_of_medians([2.0] * 11, [1.0] * 11) == (2, 2, 2)
    assert lower <= middle <= upper


def test_drift() -> None:
    assert analysis.drift([1.0, 1.0, 1.0, 1.0]) == 1
    assert analysis.drift([1.0, 1.0, 7.0, 2.0, 2.0]) == 2
    assert analysis.drift([1.0]) == 1
