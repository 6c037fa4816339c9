"""The lint of losses in PyTorch: gradients and memories."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402, N812

from ncfbench.linting.lint import lint_loss  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's, of its own coming changes


class Memory:
    """A softmax over the batch and the items of the batch before."""

    kept: Any = None

    def __call__(self, users: Any, items: Any) -> Any:
        both = items if self.kept is None else torch.cat([items, self.kept])
        self.kept = items.detach()
        return F.cross_entropy(10 * users @ both.T, torch.arange(len(users)))


def test_memory_is_seen() -> None:
    assert "memory" in [each.code for each in lint_loss(Memory).findings]


def test_losses_of_pytorch_are_right() -> None:
    for loss in (torch.nn.BCEWithLogitsLoss, torch.nn.CrossEntropyLoss, torch.nn.TripletMarginLoss):
        assert lint_loss(loss).errors == []


def test_losses_of_sentence_transformers() -> None:
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    found = lint_loss(losses.MultipleNegativesRankingLoss)
    assert found.facts is not None
    assert found.facts.scale is not None
    assert found.facts.scale.value == pytest.approx(20)
    assert {each.code for each in found.errors} == {"missing-logq", "duplicates"}
