"""The answer of a profile: sentences and numbers from rows written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from ncfbench.profiling.answer import answer


def row(sampler: str, **own: Any) -> dict[str, Any]:
    """A sampler whose predictions are right: 3 ms of fixed work and 5 us an item."""
    items, full = own.pop("item_slots"), own.pop("full")
    step = 3e-3 + 5e-6 * items
    values = {
        "sampler": sampler,
        "strata": "item",
        "baseline": "iid",
        "item_slots": items,
        "user_slots": 512,
        "predicted_users_seconds": 0.0,
        "predicted_items_seconds": 5e-6 * items,
        "predicted_interactions_seconds": 0.0,
        "predicted_fixed_seconds": 3e-3,
        "drift": 1.0,
        "responsible": "items",
    }
    for account, seconds in (("step", step), ("full", step + 1e-3)):
        values[f"predicted_{account}_iteration_seconds"] = seconds
        values[f"measured_{account}_iteration_seconds"] = seconds if account == "step" else full
    speedup = own.pop("speedup", 1.0)
    return values | {f"{way}_full_speedup": speedup for way in ("predicted", "measured")} | own


IID = row("iid", item_slots=4000, full=24e-3)
STRAT_NS = row("strat-ns", item_slots=200, full=5e-3, speedup=4.8)


def test_the_best_sampler_and_why() -> None:
    found = answer([IID, STRAT_NS], [])
    assert found.sentences == [
        "strat-ns takes 5 ms an iteration, 4.8 times less than iid (24 ms): it embeds 200"
        " items instead of 4,000, which saves 19 ms.",
        "An iteration of iid by its costs: items 83 %, interactions 0 %, users 0 %, the optimiser"
        " and other fixed work 12 %, sampling 4 %.",
        "An iteration of strat-ns by its costs: items 20 %, interactions 0 %, users 0 %, the"
        " optimiser and other fixed work 60 %, sampling 20 %.",
        "Predictions of steps, iterations and speedups are within 0 % of the measurement for every"
        " sampler.",
    ]
    assert (found.baseline, found.best, found.speedup) == ("iid", "strat-ns", 4.8)
    assert (found.saved_by, found.saved_seconds) == ("items", pytest.approx(19e-3))
    assert found.shares["strat-ns"]["items"] == pytest.approx(0.2)
    assert len(found.errors) == 2 + 3, "a baseline has no speedup"


def test_long_iterations_have_no_exponent() -> None:
    slow = row("iid", item_slots=4000, full=55.5356)
    first = answer([slow, row("strat-ns", item_slots=200, full=1.3256, speedup=41.9)], [])
    assert first.sentences[0].startswith(
        "strat-ns takes 1,326 ms an iteration, 41.9 times less than iid (55,536 ms): "
    )


def test_a_miss_is_named_with_its_cause() -> None:
    slow = STRAT_NS | {"measured_full_iteration_seconds": 8e-3, "responsible": "sampling"}
    (line,) = (each for each in answer([IID, slow], []).sentences if "off" in each)
    assert line == (
        "Predictions are off: full of strat-ns by -38 % (due to sampling). All others are"
        " within 0 % of the measurement."
    )


def test_nothing_beats_the_baseline() -> None:
    found = answer([IID], [])
    assert found.sentences[0] == (
        "iid takes 24 ms an iteration, and no other sampler here takes less."
    )
    assert found.saved_by is None


def test_other_reasons_and_a_noisy_machine() -> None:
    quick = row(
        "neg", item_slots=4000, full=20e-3, speedup=1.2, predicted_interactions_seconds=-4e-3
    )
    found = answer([IID, quick | {"drift": 1.5}], [{"part": "items", "spread": 0.8}])
    assert "iid (24 ms): interactions take less, by 4 ms." in found.sentences[0]
    assert found.sentences[-1] == (
        "The machine was noisy: neg's second half took 1.50 times its first, items spread by 80 %."
    )
