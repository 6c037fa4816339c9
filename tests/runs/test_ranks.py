"""Ranks by counting and by sorting are those of plain comparisons."""

import math
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ncfbench.runs import ranks

SCORES = st.sampled_from([math.nan, -math.inf, -1.0, 0.0, 0.5, 2.0, math.inf])


@settings(max_examples=100, deadline=None)
@given(st.lists(SCORES, min_size=2, max_size=12), st.data())
def test_counting_and_sorting_agree(scores, data):
    """Whatever is left out, and of however few scores."""
    row, place = np.array(scores, np.float32), st.integers(0, len(scores) - 1)
    chosen = data.draw(st.lists(place, min_size=1, max_size=ranks.FEW, unique=True))
    others = [at for at in range(len(scores)) if at not in chosen]
    left_out = [at for at in others if data.draw(st.booleans())]
    ranked = [at for at in range(len(scores)) if at not in left_out]
    expected = []
    for at in chosen:
        if math.isnan(scores[at]):
            expected.append((len(ranked) - 1, 0))
            continue
        rivals = [scores[other] for other in ranked if other != at]
        above = sum(math.isnan(rival) or rival > scores[at] for rival in rivals)
        expected.append((above, sum(rival == scores[at] for rival in rivals)))
    own = row[chosen]
    row[left_out] = -np.inf
    for few in (0, ranks.FEW):
        with patch.object(ranks, "FEW", few):
            found = ranks.ranks_among(row, own, len(left_out))
        assert [*zip(*(counts.tolist() for counts in found), strict=True)] == expected
