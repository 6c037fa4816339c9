"""Losses that do what a right loss must, and others that fail in one of these duties.

Positives are pulled, as hard as others are pushed, on one scale, between vectors of one length, and
padding counts for nothing.
"""

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jax.nn import logsumexp, relu, sigmoid, softmax, softplus
from jax.numpy import diagonal as diag
from linting.museum import FAULTS, Exhibit, cosine, drawn, eye, off, unit
from linting.museum import cross_entropy as ce
from linting.museum import drawn_without_logq as nce


def rows(scores):
    return logsumexp(scores, axis=1) - diag(scores)


def nce_rows(pos, neg):
    return logsumexp(jnp.concatenate([pos[:, None], neg], axis=1), axis=1) - pos


def apart(pos, neg):
    return neg - pos[:, None]


def bpr_rows(pos, neg):
    return jnp.mean(softplus(apart(pos, neg)), axis=1)


def bce(pos, neg):
    return jnp.mean(softplus(-pos)) + jnp.mean(softplus(neg))


def rest(scores):
    """The scores without those of positives."""
    return off(scores, eye(scores))


def near(users, items):
    """Cosines of positives."""
    return jnp.sum(unit(users) * unit(items), axis=1)


def far(users, negatives):
    """Cosines of drawn negatives."""
    return drawn(unit(users), unit(negatives))


def views(f, g):
    """Scores of a batch's vectors of both sides with all of them, float[2b, 2b]."""
    both = jnp.concatenate([unit(f), unit(g)])
    return both @ both.T


def simclr(scores):
    n = len(scores)
    positive = scores[jnp.arange(n), (jnp.arange(n) + n // 2) % n]
    return jnp.mean(logsumexp(scores, axis=1) - positive)


def real(scores, mask):
    """Scores without the columns of padding, but for the rows' own items."""
    return off(scores, ~(mask[None, :] > 0) & ~eye(scores))


def hardest(scores, k):
    return jax.lax.top_k(scores, min(k, scores.shape[1]))[0]


def angular(scores, margin):
    return ce(8 * jnp.where(eye(scores), jnp.cos(jnp.arccos(0.999 * scores) + margin), scores))


def circle(scores, margin, gamma):
    push = logsumexp(rest(gamma * relu(scores + margin) * (scores - margin)), axis=1)
    pull = gamma * (1 + margin - diag(scores)) * (diag(scores) - 1 + margin)
    return jnp.mean(softplus(push - pull))


def same(ids):
    return ids[:, None] == ids[None, :]


WRONG = {
    "temperature": {
        "negatives_divided": lambda users, items, negatives, temperature=0.1: nce(
            near(users, items), far(users, negatives) / temperature
        ),
        "positives_divided": lambda scores, tau=0.2: ce(
            jnp.where(eye(scores), scores / tau, scores)
        ),
        "divided_by_a_constant": lambda pos_scores, neg_scores: jnp.mean(
            bpr_rows(pos_scores, neg_scores / 0.2)
        ),
        "hinge_divided": lambda pos_scores, neg_scores, temperature=0.5: jnp.mean(
            relu(1 + apart(pos_scores, neg_scores / temperature))
        ),
        "decoupled_divided": lambda scores, temperature=0.1: jnp.mean(
            logsumexp(rest(scores), axis=1) - diag(scores) / temperature
        ),
        "terms_divided": lambda pos_scores, neg_scores, temperature=0.2: bce(
            pos_scores, neg_scores / temperature
        ),
        "hard_not_divided": lambda users, items, negatives: nce(
            5 * jnp.sum(users * items, 1),
            jnp.concatenate([rest(5 * users @ items.T), drawn(users, negatives)], axis=1),
        ),
        "one_direction_divided": lambda scores, tau=0.2: ce(scores / tau) + ce(scores.T),
        "views_divided": lambda users, items: simclr(
            rest(
                jnp.where(
                    jnp.roll(jnp.eye(2 * len(users)), len(users), axis=0) > 0,
                    views(users, items),
                    5 * views(users, items),
                )
            )
        ),
        "multiplied": lambda scores, temperature=0.2: ce(scores * temperature),
    },
    "no-pull": {
        "diagonal_masked": lambda scores: ce(jnp.where(eye(scores), -10000.0, scores)),
        "own_ids_masked": lambda scores, item_ids: ce(off(scores, same(item_ids))),
        "positive_detached": lambda pos_scores, neg_scores: nce(
            stop_gradient(pos_scores), neg_scores
        ),
        "negatives_alone": lambda pos_scores, neg_scores: jnp.mean(softplus(neg_scores)),
        "first_rows_pulled": lambda scores: jnp.mean(rows(scores) * (jnp.arange(len(scores)) < 3)),
    },
    "no-gradient": {"constant": lambda users, items: 0.0 * jnp.sum(users) + 0.0 * jnp.sum(items)},
    "wrong-sign": {
        "negatives_attracted": lambda scores, labels: jnp.mean((scores - 1 + labels) ** 2),
    },
    "squashed": {
        "no_logarithm": lambda scores: -jnp.mean(diag(softmax(5 * scores, axis=1))),
        "sigmoid_of_pairs": lambda scores, labels: -jnp.mean(sigmoid((2 * labels - 1) * scores)),
        "sigmoid_of_differences": lambda pos_scores, neg_scores: jnp.mean(
            sigmoid(apart(pos_scores, neg_scores))
        ),
        "sigmoids_compared": lambda pos_scores, neg_scores: jnp.mean(
            bpr_rows(sigmoid(pos_scores), sigmoid(neg_scores))
        ),
    },
    "mask-zero": {
        "likeness_to_itself": lambda users, items: simclr(5 * views(users, items)),
        "diagonal_times_zero": lambda scores: nce(diag(scores), scores * ~eye(scores)),
        "same_user_times_zero": lambda scores, user_ids: ce(
            scores * (~same(user_ids) | eye(scores))
        ),
        "collisions_times_zero": lambda pos_scores, neg_scores, item_ids, negative_ids: nce(
            pos_scores, neg_scores * (negative_ids != item_ids[:, None])
        ),
        "padding_times_zero": lambda pos_scores, neg_scores, neg_mask: nce(
            pos_scores, neg_scores * neg_mask
        ),
    },
    "not-normalised": {
        "users_alone_normalised": lambda users, items: ce(5 * unit(users) @ items.T),
        "negatives_of_any_length": lambda users, items, negatives: nce(
            near(users, items), drawn(unit(users), negatives)
        ),
    },
    "padding": {
        "padding_in_the_mean": lambda pos_scores, neg_scores, mask: jnp.mean(
            mask * nce_rows(pos_scores, neg_scores)
        ),
        "padding_as_negatives": lambda scores, mask: jnp.sum(mask * rows(scores)) / jnp.sum(mask),
        "padding_in_rows": lambda scores, is_padding: ce(real(scores, 1.0 - is_padding)),
        "padding_drawn": lambda pos_scores, neg_scores, negative_mask: nce(pos_scores, neg_scores),
        "weights_of_positives": lambda pos_scores, neg_scores, weights: (
            jnp.mean(weights * softplus(-pos_scores)) + jnp.mean(softplus(neg_scores))
        ),
    },
    "over-users": {
        "users_of_drawn": lambda pos_scores, neg_scores: (
            logsumexp(pos_scores) - jnp.mean(pos_scores)
        ),
    },
}
"""By the code of the finding that names the fault, and by name."""
FAULTS.update(
    {name: Exhibit(loss, (code,)) for code, named in WRONG.items() for name, loss in named.items()}
)

RIGHT = {
    "infonce": lambda users, items, temperature=0.1: ce(cosine(users, items) / temperature),
    "siglip": lambda users, items, temperature=10.0, bias=-5.0: jnp.mean(
        softplus(-(temperature * cosine(users, items) + bias) * (2 * jnp.eye(len(users)) - 1))
    ),
    "smoothed": lambda scores, smoothing=0.1: (
        ce(scores) + smoothing * jnp.mean(diag(scores) - jnp.mean(scores, axis=1))
    ),
    "views": lambda users, items: simclr(rest(5 * views(users, items))),
    "decoupled": lambda scores, tau=0.1: jnp.mean(
        logsumexp(rest(scores) / tau, axis=1) - diag(scores) / tau
    ),
    "weighted_push": lambda scores, weight=0.5: jnp.mean(
        weight * logsumexp(rest(5 * scores), axis=1) - 5 * diag(scores)
    ),
    "angular_margin": lambda users, items, margin=0.3: angular(cosine(users, items), margin),
    "both_directions": lambda scores, tau=0.2: 0.7 * ce(scores / tau) + 0.3 * ce(scores.T / tau),
    "hardest": lambda scores, hard=3: nce(diag(scores), hardest(rest(scores), hard)),
    "hardest_within_margin": lambda scores, margin=0.2: jnp.mean(
        relu(margin + rest(scores).max(axis=1) - diag(scores))
    ),
    "perceptron": lambda scores: jnp.mean(relu(apart(diag(scores), scores))),
    "threshold": lambda scores: jnp.mean(
        jnp.log1p(jnp.sum(jnp.exp(rest(scores)), axis=1)) + softplus(-diag(scores))
    ),
    "smooth_rank": lambda scores, temperature=0.05: (
        -jnp.mean(1 / (0.5 + sigmoid(apart(diag(scores), scores) / temperature).sum(axis=1)))
    ),
    "cross_entropy_to_the_power": lambda scores, q=0.7: jnp.mean(
        (1 - diag(softmax(scores, axis=1)) ** q) / q
    ),
    "exponential": lambda pos_scores, neg_scores: jnp.mean(jnp.exp(apart(pos_scores, neg_scores))),
    "contrastive": lambda users, items, negatives, margin=0.1: (
        jnp.mean(1 - near(users, items)) + jnp.mean(relu(far(users, negatives) - margin))
    ),
    "contrastive_by_far": lambda users, items, negatives, margin=0.4: (
        jnp.mean(1 - near(users, items)) + jnp.mean(relu(far(users, negatives) - margin))
    ),
    "circle": lambda users, items, margin=0.25, gamma=8.0: circle(
        cosine(users, items), margin, gamma
    ),
    "top1_of_hardest": lambda pos_scores, neg_scores: jnp.mean(
        neg_scores.shape[1]
        * softmax(neg_scores, axis=1)
        * (sigmoid(apart(pos_scores, neg_scores)) + sigmoid(neg_scores**2))
    ),
    "noise_contrastive": lambda pos_scores, neg_scores, log_q, neg_log_q: bce(
        pos_scores - log_q, neg_scores - neg_log_q
    ),
    "masked_rows": lambda scores, mask: jnp.sum(mask * rows(real(scores, mask))) / jnp.sum(mask),
    "rows_of_padding": lambda pos_scores, neg_scores, is_padding: jnp.mean(
        bpr_rows(pos_scores, neg_scores), where=~is_padding
    ),
    "wide_mask": lambda pos_scores, neg_scores, mask: nce(
        pos_scores, off(neg_scores, ~mask) + jnp.zeros_like(neg_scores)
    ),
    "masked_negatives": lambda pos_scores, neg_scores, negative_mask: nce(
        pos_scores, off(neg_scores, ~negative_mask)
    ),
    "weighted_rows": lambda scores, weights: jnp.sum(weights * rows(scores)) / jnp.sum(weights),
    "normalised_by_flag": lambda users, items, normalize=True, training=False, deterministic=True: (
        ce(5 * cosine(users, items) if normalize else 5 * users @ items.T)
    ),
}
"""By name; popularity and links are corrected in none of them."""
