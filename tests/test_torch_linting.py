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
    found = lint_loss(losses.MultipleNegativesRankingLoss)
    assert found.facts is not None
    assert found.facts.scale is not None
    assert found.facts.scale.value == pytest.approx(20)
    assert {each.code for each in found.errors} == {"missing-logq", "duplicates"}
