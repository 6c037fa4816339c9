"""The lint of losses in PyTorch."""

import pytest

torch = pytest.importorskip("torch")


from ncfbench.linting.lint import lint_loss  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's, of its own coming changes


def test_losses_of_pytorch_are_right():
    for loss in (torch.nn.BCEWithLogitsLoss, torch.nn.CrossEntropyLoss, torch.nn.TripletMarginLoss):
        assert lint_loss(loss).errors == []


def test_losses_of_sentence_transformers():
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    result = lint_loss(losses.MultipleNegativesRankingLoss)
    assert result.facts is not None
    assert result.facts.scale is not None
    assert result.facts.scale.value == pytest.approx(20)
    assert {error.code for error in result.errors} == {"missing-logq", "duplicates"}
