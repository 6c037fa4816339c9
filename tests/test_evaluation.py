from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncfbench.config import complete
from ncfbench.datasets.store import Dataset
from ncfbench.embedding import Embedder
from ncfbench.evaluation import RecallEvaluator, link_ranks, recall
from ncfbench.model import Content
from ncfbench.schemas import CUTOFFS
from ncfbench.step import Trainer


def brute_force(scores: np.ndarray, links: set[tuple[int, int]], m: int) -> float:
    """Sort every user's items, the smaller id first among equals, and count."""
    shares = []
    for user in range(scores.shape[0]):
        own = {v for u, v in links if u == user}
        if own:
            ranking = sorted(range(scores.shape[1]), key=lambda item: (-scores[user, item], item))
            shares.append(len(own & set(ranking[:m])) / len(own))
    return float(np.mean(shares))


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 12))
@settings(max_examples=12, deadline=None)
def test_recall_with_many_ties_against_brute_force(seed: int, n_users: int, n_items: int) -> None:
    rng = np.random.default_rng(seed)
    f, g = rng.integers(-1, 2, (n_users, 2)).astype(np.float32), rng.integers(-1, 2, (n_items, 2)).astype(np.float32)
    links = {(int(u), int(v)) for u, v in zip(rng.integers(0, n_users, 9), rng.integers(0, n_items, 9), strict=True)}
    users, items = (np.array(column, np.int32) for column in zip(*sorted(links), strict=True))
    ranks = np.asarray(link_ranks(jnp.asarray(f), jnp.asarray(g), users, items))
    for m, value in recall(users, ranks, (1, 2, 5)).items():
        assert value == pytest.approx(brute_force(f @ g.T, links, m))


def test_evaluator_on_a_data_set_against_brute_force(tiny: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks smaller than the data, so that the last one is partly padding."""
    monkeypatch.setattr("ncfbench.evaluation.BLOCK_SCORES", 7 * len(tiny.items_of("test")))
    trainer, state = Trainer.create(complete({"dimension": 6}), tiny)
    embedder = Embedder(trainer.towers, Content.of(tiny))
    embedder.block = 32
    f = np.asarray(embedder.users(state.parameters))
    for split in ("validation", "test"):
        evaluator = RecallEvaluator(tiny, split, embedder)
        assert evaluator.block == (7 if split == "test" else evaluator.block)
        items = tiny.items_of(split)
        g = np.asarray(embedder.items(state.parameters, items))
        users, linked = tiny.links(split)
        links = {(int(u), int(np.flatnonzero(items == v)[0])) for u, v in zip(users, linked, strict=True)}
        found = evaluator(state.parameters)
        assert set(found) == set(CUTOFFS)
        for m in CUTOFFS:
            assert found[m] == pytest.approx(brute_force((f @ g.T).astype(np.float32), links, m), abs=2e-3)


def test_scores_that_are_not_numbers_never_look_good() -> None:
    f = jnp.array([[jnp.nan], [1.0]])
    g = jnp.array([[1.0], [2.0], [jnp.nan]])
    ranks = np.asarray(link_ranks(f, g, np.array([0, 1, 1], np.int32), np.array([0, 1, 2], np.int32)))
    assert ranks[0] == 3
    assert ranks[1] == 1
    assert ranks[2] == 3
