"""Blends by plain arithmetic: scale, weight, and what is kept."""

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncfbench.blending.blend import Blend, scale
from ncfbench.blending.vectors import factorise
from ncfbench.floors.models import FLOORS
from ncfbench.floors.task import HeldOut, Task, contents_of


@pytest.fixture(scope="module")
def case(tiny):
    """The validation links of a small data set, and scores of profiles and of chance."""
    task = Task.of(tiny, contents_of(tiny)[0]["TF-IDF"])
    held_out = HeldOut.of(task, tiny)["validation"]
    profiles = FLOORS["profile"].fit(task, 0.0)(held_out.candidates)
    drawn = np.random.default_rng(0).normal(3, 9, (tiny.n_users, len(held_out.candidates)))
    return held_out, profiles, np.float32(drawn).__getitem__


@given(
    rows=st.lists(st.lists(st.integers(-9, 9), min_size=5, max_size=5), min_size=1, max_size=4),
    known=st.lists(st.integers(0, 4), max_size=3, unique=True),
)
def test_the_scale_of_a_user_is_that_of_his_candidates(rows, known):
    users = np.arange(len(rows))
    mean, deviation = scale(np.float32(rows), users, lambda user: np.array(known, int))
    for user, row in enumerate(rows):
        rest = [score for item, score in enumerate(row) if item not in known]
        assert mean[user, 0] == pytest.approx(statistics.fmean(rest), abs=1e-6)
        assert deviation[user, 0] == pytest.approx(statistics.pstdev(rest) or 1.0, rel=1e-5)


def recall_by_sort(scores, tiny, held_out, m):
    """Mean recall@m over users, by a sort of each user's scores."""
    users, items = tiny.links("validation")
    place = {item: at for at, item in enumerate(held_out.candidates.tolist())}
    recalls = []
    for user in np.unique(users[tiny.has_links[users]]):
        linked = [place[item] for item in items[users == user].tolist()]
        best = np.argsort(-scores(np.array([user]))[0], kind="stable")[:m]
        recalls.append(np.isin(linked, best).mean())
    return statistics.fmean(recalls)


def test_the_weight_is_the_best_of_eleven(tiny, case):
    held_out, profiles, drawn = case
    parts = [np.float64(scores(np.arange(tiny.n_users))) for scores in (profiles, drawn)]
    floor, run = ((part - part.mean(1)[:, None]) / part.std(1)[:, None] for part in parts)
    floor = np.nan_to_num(floor)
    chosen, heights, quality = Blend(profiles, drawn, held_out).choose("recall_at_10")
    assert [*heights] == pytest.approx([step / 10 for step in range(11)])
    for weight, height in heights.items():
        if weight:  # of profiles alone many scores are equal
            mixed = (1 - weight) * floor + weight * run
            expected = recall_by_sort(mixed.__getitem__, tiny, held_out, 10)
            assert height == pytest.approx(expected, abs=1e-3)
    most = max(heights.values())
    best = [weight for weight, height in heights.items() if height == most]
    assert chosen == min(best, key=lambda weight: abs(weight - 0.5))
    assert quality.figures["recall_at_10"] == most
    assert most >= max(heights[0.0], heights[1.0])


def test_both_ends_are_the_parts(case):
    held_out, profiles, drawn = case
    _, heights, _ = Blend(profiles, drawn, held_out).choose("recall_at_50")
    for weight, scores in ((0.0, profiles), (1.0, drawn)):
        alone = held_out.evaluate(scores).figures["recall_at_50"]
        assert heights[weight] == pytest.approx(alone, abs=1e-3)
    assert Blend(profiles, profiles, held_out).choose("recall_at_50")[0] == 0.5


@pytest.mark.parametrize("block", [7, 2**16])
def test_vectors_are_the_best_of_their_rank(monkeypatch, block):
    """Beside NumPy's decomposition of the whole matrix."""
    monkeypatch.setattr("ncfbench.blending.vectors.BLOCK_ROWS", block)
    rng = np.random.default_rng(0)
    falling = np.float32(2.0 ** -np.arange(40))
    scores = (rng.normal(size=(90, 40)) * falling @ rng.normal(size=(40, 70))).astype(np.float32)
    left, values, right = np.linalg.svd(scores, full_matrices=False)
    products = scores.__matmul__, scores.T.__matmul__
    users, items = factorise(*products, 90, 70, 8)
    assert (users.shape, items.shape) == ((90, 8), (70, 8))
    for rank in (2, 8):
        best = (left[:, :rank] * values[:rank]) @ right[:rank]
        np.testing.assert_allclose(users[:, :rank] @ items[:, :rank].T, best, atol=0.01)
    whole = factorise(*products, 90, 70, 500)
    np.testing.assert_allclose(whole[0] @ whole[1].T, scores, atol=1e-3)
