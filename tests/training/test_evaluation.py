"""Ranks against brute force: ties, scores that are no numbers, and any size of blocks."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.training import Trial

from ncfbench.runs.ranks import rank_links
from ncfbench.training import evaluation
from ncfbench.training.evaluation import scores_of


def rank_by_hand(scores, own, is_known):
    """How many other items are above one, and how many are tied with it."""
    others = [score for item, score in enumerate(scores) if item != own and not is_known[item]]
    above = sum(not score <= scores[own] for score in others)
    return above, sum(score == scores[own] for score in others)


SIZES = [(1, 1, 1), (7, 13, 3), (24, 13, 4), (24, 13, 1), (40, 1, 2), (40, 13, 5), (7, 60, 4)]
"""Items, links, and users of a block."""


@given(st.integers(0, 2**32 - 1), st.sampled_from(SIZES), st.booleans())
@settings(max_examples=70, deadline=None)
def test_blocks_change_no_rank(seed, sizes, leaves_out):
    """Few different scores, so that most are equal to others; some are no numbers. Items that a
    user knows are left out, where there are any.
    """
    rng, (n_items, n_links, size) = np.random.default_rng(seed), sizes
    f = rng.integers(-1, 2, (5, 2)).astype(np.float32)
    g = rng.integers(-1, 2, (n_items, 2)).astype(np.float32)
    odd = rng.random(g.shape) < 0.1
    g[odd] = rng.choice([np.nan, np.inf, -np.inf], int(odd.sum()))
    users, places = rng.integers(0, 5, n_links), rng.integers(0, n_items, n_links)
    is_known = leaves_out & (rng.random((5, n_items)) < 0.4)
    is_known[users, places] = False
    known = [np.flatnonzero(row) for row in is_known]
    ranks = rank_links(
        scores_of(f, g, size), users, places, size, known.__getitem__ if leaves_out else None
    )
    assert ranks.above.dtype == ranks.equal.dtype == np.int64
    with np.errstate(invalid="ignore"):
        scores = (f[:, None, :] * g[None, :, :]).sum(axis=2)
    assert [*zip(ranks.above.tolist(), ranks.equal.tolist(), strict=True)] == [
        rank_by_hand(scores[u].tolist(), v, is_known[u].tolist())
        for u, v in zip(users, places, strict=True)
    ]


@pytest.mark.parametrize("size", [1, 3, 20])
def test_equal_items_tie_to_the_last_bit(size):
    """Vectors that do not multiply exactly, each four times, far apart."""
    rng = np.random.default_rng(0)
    f = rng.normal(size=(20, 50)).astype(np.float32)
    g = np.tile(rng.normal(size=(125, 50)).astype(np.float32), (4, 1))
    users, places = (
        np.repeat(np.arange(20, dtype=np.int32), 25),
        rng.integers(0, 500, 500).astype(np.int32),
    )
    ranks = rank_links(scores_of(f, g, size), users, places, size)
    best = np.argsort(
        np.argsort(-(f.astype(np.float64) @ g[:125].T.astype(np.float64)), axis=1), axis=1
    )
    assert ranks.above.tolist() == (4 * best[users, places % 125]).tolist()
    assert (ranks.equal == 3).all()


def test_the_evaluator_ranks_alike_in_blocks(tiny, monkeypatch):
    trial = Trial(tiny, {"dimension": 6})
    whole = trial.ranks("test")
    monkeypatch.setattr(evaluation, "BLOCK_USERS", 17)
    np.testing.assert_array_equal(trial.ranks("test"), whole)


MILLION = """
import json, resource
import jax, jax.numpy as jnp, numpy as np
from ncfbench.runs.ranks import rank_links
from ncfbench.training.evaluation import scores_of
n, links = 10**6, 300
def peak(): return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
zeros = np.zeros(links, np.int32)
rank_links(scores_of(jnp.ones((2, 4)), jnp.ones((9000, 4)), 2), zeros, zeros, 2)
# The item's score is its id modulo 1000 for user 0, and the same negated for user 1.
id = jnp.arange(n) % 1000
g = jnp.stack([id, id, 0 * id, 0 * id], axis=1).astype(jnp.float32)
f = jnp.array([[1, 0, 0, 0], [0, -1, 0, 0]], jnp.float32)
places = np.random.default_rng(0).integers(0, n, links).astype(np.int32)
users = np.arange(links, dtype=np.int32) % 2
jax.block_until_ready((f, g))
before = peak()
ranks = rank_links(scores_of(f, g, 2), users, places, 2)
lists = [each.tolist() for each in (*ranks, users, places)]
print(json.dumps([*lists, peak() - before]))
"""


@pytest.mark.long
def test_a_million_items_in_bounded_memory():
    """1,000 items of each score; 300 million scores would take 1.2 GB, and are never there at
    once.
    """
    done = subprocess.run(
        [sys.executable, "-c", MILLION], capture_output=True, text=True, check=True, timeout=60
    )
    above, equal, users, places, extra = json.loads(done.stdout)
    for rank, user, place in zip(above, users, places, strict=True):
        better = 999 - place % 1000 if user == 0 else place % 1000
        assert rank == 1000 * better
    assert set(equal) == {999}
    assert extra < 150 * 2**20
