"""Ranks by sorting rows of scores are those of plain comparisons."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ncfbench.runs import ranks

SCORES = st.sampled_from([math.nan, -math.inf, -1.0, -0.0, 0.0, 0.5, 2.0, math.inf])


def rank_by_hand(scores, at, ranked):
    """Compare a score with each other one that is ranked."""
    if math.isnan(scores[at]):
        return len(ranked) - 1, 0
    rivals = [scores[other] for other in ranked if other != at]
    above = sum(math.isnan(rival) or rival > scores[at] for rival in rivals)
    return above, sum(rival == scores[at] for rival in rivals)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 12), st.integers(1, 4), st.data())
def test_ranks_are_those_of_comparisons(size, n_rows, data):
    """Rows have as many links as there are scores, or none, and anything may be left out."""
    rows, linked, row_of, n_left_out, expected = [], [], [], [], []
    for number in range(n_rows):
        scores = data.draw(st.lists(SCORES, min_size=size, max_size=size))
        chosen = data.draw(st.lists(st.integers(0, size - 1), max_size=size, unique=True))
        others = [at for at in range(size) if at not in chosen]
        left_out = [at for at in others if data.draw(st.booleans())]
        ranked = [at for at in range(size) if at not in left_out]
        expected += [rank_by_hand(scores, at, ranked) for at in chosen]
        linked += [scores[at] for at in chosen]
        row_of += [number] * len(chosen)
        n_left_out.append(len(left_out))
        rows.append([-math.inf if at in left_out else scores[at] for at in range(size)])
    arrays = np.array(rows, np.float32), np.array(linked, np.float32)
    found = ranks.ranks_among(*arrays, np.array(row_of, np.int64), np.array(n_left_out))
    assert [*zip(*(counts.tolist() for counts in found), strict=True)] == expected
