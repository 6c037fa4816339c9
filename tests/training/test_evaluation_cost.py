"""Vectors by length, and how long they take."""

import numpy as np
from support.processes import SMALL
from support.training import Trial

from ncfbench.models import blocks
from ncfbench.training.inference import Embedder


def test_items_by_length_have_the_same_vectors(tiny, monkeypatch):
    """In any order, some twice; in blocks of at most 30 word slots, with little padding."""
    monkeypatch.setattr(blocks, "SORTED_WORDS", 30)
    trial = Trial(tiny, SMALL | {"encoder": "bow", "sampler": "ns"})
    ids = np.array([7, 300, 7, 41, 200, 3, 11, 12, 13, 14], np.int32)
    expected = trial.embedder.items(trial.parameters, ids)
    embedder = Embedder(trial.trainer.towers, trial.content, by_length=True)
    seen, shapes = [], []
    embedder.watch = lambda done, total: seen.append((done, total))
    compute = embedder._items

    def noted(parameters, block, content):
        shapes.append((len(block), content.tokens.shape[1]))
        return compute(parameters, block, content)

    monkeypatch.setattr(embedder, "_items", noted)
    found = embedder.items(trial.parameters, ids)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    assert seen[-1] == (10, 10)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    longest = int(tiny.tokens_IxL.shape[1])
    assert all(items * length <= max(30, longest) for items, length in shapes)
    assert {length for _, length in shapes} <= {-(-q * longest // 4) for q in (1, 2, 3, 4)}
    assert [length for _, length in shapes] == sorted((each for _, each in shapes), reverse=True)
    shapes.clear()
    seconds = embedder.forecast(trial.parameters, ids)
    assert len(shapes) == 2, "a block is compiled, and timed"
    assert embedder.forecast(trial.parameters, np.tile(ids, 2)) > seconds > 0
    assert len(shapes) == 2
