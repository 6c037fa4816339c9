"""Ranks against brute force: ties, scores that are no numbers, and any size of blocks."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trial import Trial

from ncfbench.data.graph import BipartiteGraph
from ncfbench.training import recall as recall_module
from ncfbench.training.recall import RecallEvaluator, link_ranks


def rank_by_hand(scores, own, is_known):
    """How many other items are above one, and how many are tied with it."""
    others = [score for item, score in enumerate(scores) if item != own and not is_known[item]]
    above = sum(not score <= scores[own] for score in others)
    return above, sum(score == scores[own] for score in others)


BLOCKS = [
    # items, links, scores of a block, most users of a block
    (1, 1, 1, 1),
    (7, 13, 21, 5),
    (24, 13, 100, 32),
    (24, 13, 1, 2),
    (40, 1, 2000, 2),
    (40, 13, 80, 5),
    (7, 60, 2000, 4),
]


@given(st.integers(0, 2**32 - 1), st.sampled_from(BLOCKS), st.booleans())
@settings(max_examples=70, deadline=None)
def test_blocks_change_no_rank(seed, sizes, leaves_out):
    """Few different scores, so that most are equal to others; some are no numbers. Items that a
    user knows are left out, where there are any.
    """
    rng, (n_items, n_links, block_scores, block_users) = np.random.default_rng(seed), sizes
    f = rng.integers(-1, 2, (5, 2)).astype(np.float32)
    g = rng.integers(-1, 2, (n_items, 2)).astype(np.float32)
    odd = rng.random(g.shape) < 0.1
    g[odd] = rng.choice([np.nan, np.inf, -np.inf], int(odd.sum()))
    users, places = (
        rng.integers(0, 5, n_links).astype(np.int32),
        rng.integers(0, n_items, n_links).astype(np.int32),
    )
    is_known = leaves_out & (rng.random((6, n_items)) < 0.4)
    is_known[users, places] = False
    is_known[5] = True  # of a user whom nothing is ranked for
    known = BipartiteGraph.from_links(*np.nonzero(is_known), 6, n_items) if leaves_out else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recall_module, "BLOCK_SCORES", block_scores)
        patch.setattr(recall_module, "BLOCK_USERS", block_users)
        found = link_ranks(f, g, users, places, known)
    assert found.above.dtype == found.equal.dtype == np.int64
    with np.errstate(invalid="ignore"):
        scores = (f[:, None, :] * g[None, :, :]).sum(axis=2)
    assert [*zip(found.above.tolist(), found.equal.tolist(), strict=True)] == [
        rank_by_hand(scores[u].tolist(), v, is_known[u].tolist())
        for u, v in zip(users, places, strict=True)
    ]


@pytest.mark.parametrize("users_a_block", [1, 3, 20])
def test_equal_items_tie_to_the_last_bit(monkeypatch, users_a_block):
    """Vectors that do not multiply exactly, each four times, far apart."""
    monkeypatch.setattr(recall_module, "BLOCK_USERS", users_a_block)
    rng = np.random.default_rng(0)
    f = rng.normal(size=(20, 50)).astype(np.float32)
    g = np.tile(rng.normal(size=(125, 50)).astype(np.float32), (4, 1))
    users, places = (
        np.repeat(np.arange(20, dtype=np.int32), 25),
        rng.integers(0, 500, 500).astype(np.int32),
    )
    found = link_ranks(f, g, users, places)
    best = np.argsort(
        np.argsort(-(f.astype(np.float64) @ g[:125].T.astype(np.float64)), axis=1), axis=1
    )
    assert found.above.tolist() == (4 * best[users, places % 125]).tolist()
    assert (found.equal == 3).all()


def test_the_evaluator_ranks_alike_in_blocks(tiny, monkeypatch):
    trial = Trial(tiny, {"dimension": 6})
    evaluator = RecallEvaluator(tiny, "test", trial.embedder)
    whole = evaluator.ranks(trial.parameters)
    monkeypatch.setattr(recall_module, "BLOCK_USERS", 17)
    assert evaluator.ranks(trial.parameters).expected.tolist() == whole.expected.tolist()


MILLION = """
import json, resource
import jax, jax.numpy as jnp, numpy as np
from ncfbench.training.recall import link_ranks
n, links = 10**6, 300
def peak(): return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
zeros = np.zeros(links, np.int32)
link_ranks(jnp.ones((2, 4)), jnp.ones((9000, 4)), zeros, zeros)
# The item's score is its id modulo 1000 for user 0, and the same negated for user 1.
id = jnp.arange(n) % 1000
g = jnp.stack([id, id, 0 * id, 0 * id], axis=1).astype(jnp.float32)
f = jnp.array([[1, 0, 0, 0], [0, -1, 0, 0]], jnp.float32)
places = np.random.default_rng(0).integers(0, n, links).astype(np.int32)
users = np.arange(links, dtype=np.int32) % 2
jax.block_until_ready((f, g))
before = peak()
found = link_ranks(f, g, users, places)
lists = [each.tolist() for each in (*found, users, places)]
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
