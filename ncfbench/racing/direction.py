"""Whether less or more of a metric is better, by its name and by its values. Pure."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from itertools import combinations

LESS = re.compile(
    r"(?:loss(es)?|err(ors?)?|perplexity|ppl|nll|negloglik|nelbo|r?mse|r?msle|s?mape|mae|costs?|"
    r"(cross)?entropy|xent|bce|logloss|[wctm]er|eer|ece|fid|brier|deviance|regret|divergence|kld?|"
    r"bp[bcd]|residual|latency|f[pn]r)\d*|.*(?:loss|error|perplexity|entropy).*"
)
MORE = re.compile(
    r"(?:rec(all)?|n?dcg|g?auc|auroc|roc|auprc|acc(uracy)?|prec(ision)?|m?ap|mrr|hits?|hr|hitrate|"
    r"reciprocal|f1?|fscore|fbeta|r2|rsquared|bleu|rouge|meteor|chrf|m?iou|dice|psnr|ssim|elbo|"
    r"likelihood|loglik|logprob|lik|corr(elation)?|pearson|spearman|kendall|kappa|mcc|rewards?|"
    r"returns?|gain|lift|ctr|coverage|sensitivity|specificity|t[pn]r|success|win|em|throughput)\d*|"
    r".*(?:recall|accuracy|precision|ndcg|likelihood).*"
)
"""Words that say of a metric that less is better, and that more is."""
WEAK = frozenset({"score", "scores"})
"""Words for what is better if more of it is, unless another word says what it is."""
LIKELIHOODS = frozenset({"likelihood", "loglik", "lik", "logprob", "elbo"})
NEGATIVES = frozenset({"neg", "negative", "minus", "negated"})
AREAS = frozenset({"auc", "auroc", "gauc", "rocauc", "aucroc"})
CHANCE = 0.5
"""Area under the ROC curve of a model that knows nothing."""
MOST_VALUES = 60
"""Values of an arm, evenly spaced, that show its trend."""
CLEAR = 2.0
"""Standard deviations of Kendall's count under no trend, from which on a trend is clear."""


def words_of(name: str) -> list[str]:
    """Return the words of a metric's name, without numbers: ``val/Recall@50`` is val and recall."""
    words: list[str] = []
    for part in re.findall(r"[A-Za-z][A-Za-z0-9]*", name):
        is_one = _sense(part.lower()) is not None
        split = [part] if is_one else re.findall(r"[A-Z]*[a-z0-9]+|[A-Z]+[0-9]*", part)
        words += [each.lower() for each in split]
    return words


@functools.cache
def is_less_better(name: str) -> bool | None:
    """Return whether less of a metric is better by its name; None where the name does not say.

    The last word that says it decides: ``recall_loss`` is a loss. A negative likelihood is one
    too; a negative of anything else is not known.
    """
    words = words_of(name)
    known = [index for index, word in enumerate(words) if _sense(word) is not None]
    if not known:
        return False if WEAK & {*words} else None
    is_less = _sense(words[known[-1]])
    if re.match(r"\W*1\s*-", name) or NEGATIVES & {*words[: known[-1]]}:
        return True if LIKELIHOODS & {words[known[-1]]} else None
    return is_less


def chance_of(name: str) -> float | None:
    """Return the value of a metric that a model without knowledge has, where its name tells; None
    for metrics that begin at 0, and where it is not known.
    """
    words = {word.rstrip("0123456789") for word in words_of(name)}
    return CHANCE if AREAS & words and not {"pr", "prc"} & words else None


def trend(values: Sequence[float], *, is_last: bool = False) -> int:
    """Return 1 of values that rise, -1 of those that fall, and 0 where neither is clear.

    By Kendall's count of pairs that rise less those that fall. Under no trend its variance is
    n (n - 1) (2 n + 5) / 18 (Mann 1945).

    Args:
        is_last: no more values come: two or three that all rise, or all fall, are a trend.
    """
    step = math.ceil(len(values) / MOST_VALUES)
    few = [*values[:: step or 1]]
    n = len(few)
    count = sum((after > before) - (after < before) for before, after in combinations(few, 2))
    is_clear = count**2 > CLEAR**2 * n * (n - 1) * (2 * n + 5) / 18
    if is_last and 1 < n < 4:
        is_clear = 2 * abs(count) == n * (n - 1)
    return (count > 0) - (count < 0) if is_clear else 0


def _sense(word: str) -> bool | None:
    """Return whether a word says that less is better; None where it says nothing."""
    return True if LESS.fullmatch(word) else False if MORE.fullmatch(word) else None
