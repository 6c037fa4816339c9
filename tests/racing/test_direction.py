"""Whether less or more is better, by a metric's name and by its values."""

import random

import pytest

from ncfbench.racing.direction import chance_of, is_less_better, trend

LESS = (
    "loss error err perplexity ppl nll mse rmse mae cost log_loss cross_entropy wer cer val_loss"
    " eval/loss test-error valLoss trainloss probe_loss CrossEntropyLoss BCELoss recall_loss MAE@1"
    " val_loss/dataloader_idx_0 train.loss RMSE error_rate negative_log_likelihood kl_divergence"
)
MORE = (
    "recall ndcg auc accuracy f1 map mrr hit precision r2 bleu score recall@50 Recall50 NDCG@10"
    " nDCG@10 mAP@50 mIoU hit_rate HR@10 top5_acc acc1 f1-score eval/recall validation_recall_at_50"
    " rocAuc log_likelihood mean_average_precision elbo"
)


@pytest.mark.parametrize("name", LESS.split())
def test_losses_are_minimised(name):
    assert is_less_better(name) is True


@pytest.mark.parametrize("name", MORE.split())
def test_qualities_are_maximised(name):
    assert is_less_better(name) is False


OTHERS = "v x value metric objective neg_log_loss neg_recall 1-ap"


@pytest.mark.parametrize("name", OTHERS.split())
def test_other_names_say_nothing(name):
    """Nor do negatives, but for a likelihood's."""
    assert is_less_better(name) is None


def test_chance_is_known_of_areas():
    assert [chance_of(name) for name in ("val_auc", "AUC@10", "roc-auc")] == [0.5] * 3
    assert [chance_of(name) for name in ("pr_auc", "recall", "accuracy", "v")] == [None] * 4


@pytest.mark.parametrize("sign", [1, -1])
def test_trends_are_seen_through_noise(sign):
    """A fall of two standard deviations over 1,000 lines; the same lines shuffled have none."""
    draw = random.Random(0)
    values = [sign * (n / 500 + draw.gauss(0, 1)) for n in range(1000)]
    assert trend(values) == sign
    assert trend(draw.sample(values, len(values))) == 0


@pytest.mark.parametrize(
    ("values", "now", "at_last"),
    [
        ([], 0, 0),
        ([1], 0, 0),
        ([2, 1], 0, -1),
        ([1, 2, 3], 0, 1),
        ([1, 2, 2], 0, 0),
        ([4, 3, 2, 1], -1, -1),
        ([3, 3, 3, 3, 3, 3], 0, 0),
    ],
)
def test_few_values_are_a_trend_at_last(values, now, at_last):
    assert (trend(values), trend(values, is_last=True)) == (now, at_last)


def test_no_trend_is_seldom_one():
    """Of noise, about one in twenty."""
    draw = random.Random(1)
    found = [trend([draw.random() for _ in range(20)]) for _ in range(1000)]
    assert 20 <= 1000 - found.count(0) <= 80
