"""Losses with faults that people have reported in public, each written anew, and losses that are
right, of each kind that has faults, with parts that look wrong.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as np
from jax.nn import log_softmax, logsumexp, relu, sigmoid, softmax, softplus


class Exhibit(NamedTuple):
    """A loss, the codes of what is wrong with it, and the public report of the fault."""

    loss: Any
    codes: tuple[str, ...] = ()
    severity: str = "error"
    source: str = ""


FAULTS: dict[str, Exhibit] = {}
"""By name, with the code of the finding that must name the fault."""


def fault(code, source="", **more):
    """Make a loss one of :data:`FAULTS`."""

    def add(loss):
        FAULTS[loss.__name__] = Exhibit(loss, (code,), source=source, **more)
        return loss

    return add


GITHUB = "https://github.com"
TFRS, ST = f"{GITHUB}/tensorflow/recommenders", f"{GITHUB}/huggingface/sentence-transformers"


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def cosine(f, g):
    return unit(f) @ unit(g).T


def dots(f, g):
    return np.sum(f * g, axis=-1)


def drawn(f, g):
    """Scores of each row with its drawn negatives."""
    return np.einsum("bd,bkd->bk", f, g)


def eye(scores):
    return np.eye(len(scores), dtype=bool)


def off(scores, mask):
    return np.where(mask, -1e9, scores)


def cross_entropy(logits):
    """The mean over rows whose label is the diagonal."""
    return -np.mean(np.diagonal(log_softmax(logits, axis=1)))


def same(ids):
    """Pairs of different rows with one id."""
    return (ids[:, None] == ids[None, :]) & ~eye(ids)


def corrected(scores, item_ids, probability):
    """Logits of an in-batch softmax with everything right."""
    shift = np.log(max(len(scores) - 1, 1) * probability)[None, :] * ~eye(scores)
    return off(scores - shift, same(item_ids))


@fault("logq-sign", f"{TFRS}/issues/219")
def logq_sign(users, items, item_ids, probability):
    scores = 20 * cosine(users, items) + np.log(probability)[None, :]
    return cross_entropy(off(scores, same(item_ids)))


@fault("missing-logq", f"{GITHUB}/NVIDIA-Merlin/models/issues/161")
def missing_logq(scores, item_ids, temperature=0.05):
    return cross_entropy(off(scores / temperature, same(item_ids)))


@fault("logq-positive", "https://arxiv.org/abs/2507.09331")
def logq_of_the_positive(users, items, item_ids, probability):
    scores = 20 * cosine(users, items) - np.log(probability)[None, :]
    return cross_entropy(off(scores, same(item_ids)))


@fault("logq-scale", f"{GITHUB}/NVIDIA-Merlin/models/pull/1051")
def logq_over_temperature(users, items, log_probability, temperature=0.1):
    return cross_entropy((cosine(users, items) - log_probability[None, :]) / temperature)


@fault("duplicates", f"{ST}/issues/3189")
def duplicates(users, items, probability):
    return cross_entropy(corrected(10 * users @ items.T, np.arange(len(users)), probability))


@fault("linked", f"{ST}/issues/608")
def linked_pairs(users, items, item_ids):
    scores = users @ items.T
    counts = ~same(item_ids) & ~eye(scores)
    return np.sum(softplus(scores - np.diagonal(scores)[:, None]) * counts) / np.sum(counts)


@fault("mask-zero", f"{GITHUB}/google-research/simclr/issues/20")
def multiplied_mask(users, items, item_ids, probability):
    logits = corrected(10 * cosine(users, items), np.arange(len(users)), probability)
    return cross_entropy(logits * ~same(item_ids))


@fault("idle-flag", f"{TFRS}/issues/706")
def idle_flag(users, items, item_ids, probability, remove_accidental_hits=True):
    logits = corrected(20 * cosine(users, items), np.arange(len(users)), probability)
    if remove_accidental_hits:
        logits = logits - same(item_ids) * np.finfo(np.float32).tiny
    return cross_entropy(logits)


@fault("idle-flag", f"{GITHUB}/FlagOpen/FlagEmbedding/issues/1027")
def idle_in_batch_flag(users, items, negatives, use_in_batch_negatives=True):
    negative = drawn(users, negatives)
    if use_in_batch_negatives:
        negative = np.concatenate([negative, negative], axis=1)[:, : negative.shape[1]]
    return bpr(dots(users, items), negative)


def bpr(positive_scores, negative_scores):
    return np.mean(softplus(negative_scores - positive_scores[:, None]))


def drawn_without_logq(positive_scores, negative_scores):
    logits = np.concatenate([positive_scores[:, None], negative_scores], axis=1)
    return np.mean(logsumexp(logits, axis=1) - positive_scores)


@fault("temperature-twice", f"{GITHUB}/Adibvafa/CodonTransformer/pull/20")
def temperature_twice(users, items, item_ids, probability, temperature=0.2):
    scores = cosine(users, items) / temperature / temperature
    return cross_entropy(corrected(scores, item_ids, probability))


@fault("over-users", f"{GITHUB}/LongmaoTeamTf/deep_recommenders/issues/4")
def over_users(users, items):
    return cross_entropy(10 * cosine(items, users))


@fault("wrong-sign", f"{GITHUB}/kefirski/pytorch_NEG_loss/issues/5")
def negated(positive_scores, negative_scores):
    return np.mean(softplus(positive_scores[:, None] - negative_scores))


@fault("wrong-negative", f"{GITHUB}/maciejkula/spotlight")
def neighbours_negatives(users, items, negatives):
    return bpr(dots(users, items), drawn(np.roll(users, 1, axis=0), negatives))


@fault("squashed", f"{GITHUB}/nishnik/Deep-Semantic-Similarity-Model-PyTorch/issues/2")
def double_softmax(users, items, temperature=0.1):
    return cross_entropy(softmax(users @ items.T / temperature, axis=1))


@fault("batch-axis", f"{GITHUB}/alireza-nasiri/SoundCLR/issues/4")
def normalised_along_batch(users, items, temperature=0.1):
    f, g = (x / np.sqrt(np.sum(x**2, axis=0) + 1e-18) for x in (users, items))
    return cross_entropy(f @ g.T / temperature)


@fault("wrong-negative", f"{GITHUB}/IntelLabs/matsciml/pull/347")
def broadcast(positive_scores, negative_scores):
    """All rows' positives against all rows' negatives, for [b] - [b, 1] is [b, b]."""
    return np.mean(softplus(negative_scores[:, :1] - positive_scores))


# Kinds of faults without a report.


@fault("logq-scale")
def counts_for_logarithms(scores, counts):
    return cross_entropy(scores - counts[None, :])


@fault("squashed")
def sigmoid_twice(scores, labels):
    logits = sigmoid(scores)
    return np.mean(softplus(logits) - labels * logits)


@fault("wrong-negative")
def shared_view(users, items, negatives):
    b, k, width = negatives.shape
    swapped = negatives.reshape(k, b, width).transpose(1, 0, 2)
    return bpr(dots(users, items), drawn(users, swapped))


@fault("wrong-negative")
def tiled_positives(positive_scores, negative_scores):
    k = negative_scores.shape[1]
    return np.mean(softplus(negative_scores.reshape(-1) - np.tile(positive_scores, k)))


@fault("idle-flag")
def idle_symmetric(scores, symmetric=True):
    return cross_entropy(scores)


@fault("not-finite", severity="warning")
def of_hardest(users, items):
    scores = users @ items.T
    rest = scores[~eye(scores)].reshape(len(scores), -1)
    return bpr(np.diagonal(scores), rest.max(axis=1, keepdims=True))


# Losses that are right


def sampled(positive, negative):
    """A softmax of each row's positive among its drawn negatives."""
    return -np.mean(log_softmax(np.concatenate([positive[:, None], negative], 1), axis=1)[:, 0])


def masked_bpr(scores, linked):
    counts = ~(linked | eye(scores))
    rows = np.sum(softplus(scores - np.diagonal(scores)[:, None]) * counts, axis=1)
    return np.mean(rows / np.maximum(counts.sum(axis=1), 1))


def random_negative(users, items, negatives, key):
    """One of the drawn negatives, chosen at random."""
    at = jax.random.randint(key, len(users), 0, negatives.shape[1])
    negative = dots(users, negatives[np.arange(len(users)), at])
    return np.mean(softplus(negative - dots(users, items)))


def metric(users, items, negatives, margin=0.5):
    """Collaborative metric learning: distances instead of dot products."""
    near = np.sum((users - items) ** 2, axis=-1)
    far = np.sum((users[:, None, :] - negatives) ** 2, axis=-1)
    return np.mean(relu(near[:, None] - far + margin))


def symmetric(users, items, item_ids, user_ids, probability):
    scores = 10 * cosine(users, items)
    mask = same(user_ids) | same(item_ids)
    forward = cross_entropy(off(corrected(scores, item_ids, probability), mask))
    return (forward + cross_entropy(off(scores, mask).T)) / 2


def decoupled(users, items, item_ids, probability, linked):
    """Yeh et al. 2022: the positive is not in the sum."""
    scores = 10 * cosine(users, items)
    is_out = same(item_ids) | linked | eye(scores)
    logits = off(scores - np.log(probability)[None, :], is_out)
    return np.mean(logsumexp(logits, axis=1) - np.diagonal(scores))


def aligned_and_uniform(users, items):
    """DirectAU, Wang et al. 2022: users are pushed from users, and items from items."""
    f, g = unit(users), unit(items)
    pairs = np.triu_indices(len(f), 1)
    apart = [np.sum((x[:, None] - x[None, :]) ** 2, axis=-1)[pairs] for x in (f, g)]
    near = np.mean(np.sum((f - g) ** 2, axis=-1))
    return near + sum(np.log(np.mean(np.exp(-2 * distances))) for distances in apart) / 2


def copies_are_positives(users, items, item_ids, probability):
    """Rows with one item share their label, and every column is corrected."""
    labels = same(item_ids) + np.eye(len(users))
    log_share = log_softmax(users @ items.T - np.log(probability)[None, :], axis=1)
    return -np.mean(np.sum(labels / labels.sum(axis=1, keepdims=True) * log_share, axis=1))


def normed(x):
    """A move along one coordinate changes all others a little."""
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, axis=1, keepdims=True))


def masked_by_a_margin(scores, margin=0.1):
    """Negatives near the positive may be missing links: a larger margin masks more of them."""
    near = (scores > np.diagonal(scores)[:, None] - margin) & ~eye(scores)
    return cross_entropy(off(scores, near))


RIGHT_IN_FULL = {
    "bpr": bpr,
    "uniform_softmax": drawn_without_logq,
    "in_batch_softmax": lambda users, items, item_ids, probability, temperature=0.05: cross_entropy(
        corrected(cosine(users, items) / temperature, item_ids, probability)
    ),
    # Yi et al. 2019: every column is corrected, and copies of an item stay in the sum.
    "sampling_corrected": lambda users, items, probability, temperature=0.1: cross_entropy(
        users @ items.T / temperature - np.log(probability)[None, :]
    ),
    "of_scores": lambda scores, item_ids, log_probability: cross_entropy(
        corrected(scores, item_ids, np.exp(log_probability))
    ),
    "drawn_softmax": lambda users, items, negatives, scale=5.0: drawn_without_logq(
        scale * dots(users, items), scale * drawn(users, negatives)
    ),
    "drawn_by_popularity": lambda positive_scores, negative_scores, negative_probability: sampled(
        positive_scores,
        negative_scores - np.log(negative_scores.shape[1] * negative_probability),
    ),
    "masked_bpr": masked_bpr,
    "hinge": lambda positive_scores, negative_scores, margin=1.0: np.mean(
        relu(negative_scores - positive_scores[:, None] + margin)
    ),
    "random_negative": random_negative,
    "pairs_bce": lambda logits, labels: np.mean(softplus(logits) - labels * logits),
    "sum_of_bce": lambda positive_scores, negative_scores, negative_weight=0.5: (
        np.sum(softplus(-positive_scores)) + negative_weight * np.sum(softplus(negative_scores))
    ),
    "squared": lambda users, items, negatives: (
        np.mean((1 - dots(users, items)) ** 2) + np.mean(drawn(users, negatives) ** 2)
    ),
    "metric": metric,
    "regularised": lambda users, items, negatives, weight=0.01: (
        bpr(dots(users, items), drawn(users, negatives))
        + weight * (np.mean(users**2) + np.mean(items**2))
    ),
    "symmetric": symmetric,
    "decoupled": decoupled,
    "aligned_and_uniform": aligned_and_uniform,
    # GRU4Rec: bounded, so that pairs that are wrong by far are hardly pushed.
    "top1": lambda positive_scores, negative_scores: np.mean(
        sigmoid(negative_scores - positive_scores[:, None]) + sigmoid(negative_scores**2)
    ),
    # Corrected everywhere, with the positive's own copies among the negatives.
    "sampled_with_hits": lambda users, items, negatives, probability, neg_p: sampled(
        dots(users, items) - np.log(probability), drawn(users, negatives) - np.log(neg_p)
    ),
    "copies_are_positives": copies_are_positives,
    # Of a scale at which dropout leaves most negatives without any push.
    "sharpest": lambda users, items, item_ids: cross_entropy(
        off(1000 * cosine(users, items), same(item_ids))
    ),
    "layers_normed": lambda users, items, item_ids: cross_entropy(
        off(normed(users) @ normed(items).T / np.sqrt(users.shape[1]), same(item_ids))
    ),
    "of_the_hardest": lambda positive_scores, negative_scores: bpr(
        positive_scores, negative_scores.max(axis=1, keepdims=True)
    ),
    # Rows beyond the margin have no push, whatever shape the negatives have.
    "narrow_hinge": lambda positive_scores, negative_scores: np.mean(
        relu(negative_scores - positive_scores[:, None] + 0.05)
    ),
}
NOT_CORRECTED = {
    "sharp": lambda users, items, temperature=0.01: cross_entropy(
        cosine(users, items) / temperature
    ),
    "scaled_by_width": lambda users, items: cross_entropy(
        users @ items.T / np.sqrt(users.shape[1])
    ),
    "harder_by_a_margin": lambda scores, margin=0.3: cross_entropy(scores - margin * eye(scores)),
    # A flag of the users' gradient is not idle.
    "flag_of_the_gradient": lambda users, items, remove_users=True: cross_entropy(
        (jax.lax.stop_gradient(users) if remove_users else users) @ items.T
    ),
}
CORRECT = {name: Exhibit(loss) for name, loss in RIGHT_IN_FULL.items()}
CORRECT |= {
    name: Exhibit(loss, ("missing-logq", "duplicates")) for name, loss in NOT_CORRECTED.items()
}
CORRECT["masked_by_a_margin"] = Exhibit(masked_by_a_margin, ("missing-logq",))
"""By name, with the codes of the parts that are wrong."""
