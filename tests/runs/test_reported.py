"""The reported epoch, from curves and evaluations that are written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ncfbench.runs.quality import Evaluation
from ncfbench.runs.reported import BY_VALIDATION, NO_VALIDATION, UNSUPPORTED, choose_epoch


def row(epoch: float, validation: float | None, test: float | None = 0.1) -> dict[str, Any]:
    return {
        "iteration": int(100 * epoch),
        "epoch": epoch,
        "validation_recall_at_50": validation,
        "test_recall_at_50": test,
    }


def curve_of(*validation: float) -> list[dict[str, Any]]:
    return [row(epoch, value) for epoch, value in enumerate(validation, 1)]


def evaluations_of(
    curve: list[dict[str, Any]], users: int, noise: float = 0.2
) -> dict[int, Evaluation]:
    """Users, and as many items, that scatter about each epoch's recall."""
    rng = np.random.default_rng(0)
    found = {}
    for one in curve:
        if one["validation_recall_at_50"] is not None:
            apart = rng.normal(0, noise, users)
            values = one["validation_recall_at_50"] + apart - apart.mean()
            shares = values / users
            found[one["iteration"]] = Evaluation(
                {}, values.astype(np.float32), shares.astype(np.float32)
            )
    return found


def choose(curve: list[dict[str, Any]], patience: int, users: int) -> tuple[Any, str]:
    row, by = choose_epoch(curve, patience, evaluations_of(curve, users))
    return row and row["epoch"], by


@pytest.mark.parametrize(
    ("recalls", "patience", "users", "reported"),
    [
        pytest.param((0.1, 0.3, 0.2, 0.25, 0.2), 10, 4000, (2, BY_VALIDATION), id="many users"),
        # The difference of 0.1 has a standard error of about 0.28 x sqrt(2 / 30) = 0.07.
        pytest.param((0.1, 0.3, 0.2, 0.25, 0.2), 10, 30, (5, UNSUPPORTED), id="few users"),
        ((0.1, 0.3, 0.2, 0.25, 0.9, 0.1), 2, 4000, (2, BY_VALIDATION)),
        ((0.1, 0.3, 0.2, 0.25, 0.9, 0.1), 3, 4000, (5, BY_VALIDATION)),
        pytest.param((0.3, 0.1, 0.3, 0.1), 10, 4000, (3, BY_VALIDATION), id="the later of equals"),
        ((1.0, 1.0, 1.0), 10, 4000, (3, BY_VALIDATION)),
        pytest.param((0.1, 0.2, 0.3), 10, 4, (3, BY_VALIDATION), id="the last is the best"),
    ],
)
def test_the_best_supported_epoch_is_reported(
    recalls: tuple[float, ...], patience: int, users: int, reported: tuple[int, str]
) -> None:
    assert choose(curve_of(*recalls), patience, users) == reported


def test_few_items_do_not_either() -> None:
    """However many the users are, if all of the difference comes of two of the items."""
    curve = curve_of(0.3, 0.2)
    found = evaluations_of(curve, 4000, noise=0.01)
    for place, one in enumerate(found.values()):
        one.item_shares[:] = 0
        one.item_shares[:2] = (0.15, 0.15) if place == 0 else (0.1, 0.1)
    assert choose_epoch(curve, 10, found)[1] == UNSUPPORTED


def test_without_validation_the_last_epoch_counts() -> None:
    curve = [row(0, None, None), row(1, None, 0.3), row(1.5, None, None)]
    assert choose(curve, 10, 1) == (1, NO_VALIDATION)
    assert choose_epoch([row(0, None, None)], 10, {})[0] is None
    curve = curve_of(0.9, 0.1)
    assert choose_epoch(curve, 10, {})[1] == UNSUPPORTED, "an older version kept no evaluations"


@pytest.mark.parametrize("epochs", [5, 30])
def test_noise_alone_seldom_chooses_an_epoch(epochs: int) -> None:
    """All epochs are equally good: what validation saw is noise of its users."""
    rng = np.random.default_rng(epochs)
    chosen = 0
    for _ in range(200):
        values = 0.3 + rng.normal(0, 0.2, (epochs, 50))
        curve = curve_of(*values.mean(axis=1))
        found = {
            one["iteration"]: Evaluation({}, own.astype(np.float32), (own / 50).astype(np.float32))
            for one, own in zip(curve, values, strict=True)
        }
        reported, by = choose_epoch(curve, 30, found)
        chosen += by == BY_VALIDATION and reported is not curve[-1]
    assert chosen / 200 < 0.03
