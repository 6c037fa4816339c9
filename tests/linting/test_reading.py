"""What the lint reads of a loss: arguments, frameworks, ids, and what it refuses."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.nn import logsumexp
from linting.duties import RIGHT
from linting.museum import bpr
from linting.right_losses import CORRECT

from ncfbench.errors import UsageError
from ncfbench.linting import batches
from ncfbench.linting.derivatives import Evaluator
from ncfbench.linting.lint import lint_loss
from ncfbench.linting.signature import read_loss, role_of

GRAPH = batches.default_graph()


ROLES = {
    "users_bxD": "users", "q_reps": "users", "e_i": "items", "hard_neg_emb": "negatives",
    "neg_score": "negative_scores", "x_uj": "negative_scores", "logits_per_image": "scores",
    "candidate_sampling_probability": "probability", "probability_table": "probability_table",
    "log_q": "log_probability", "negative_log_q": "negative_log_probability",
    "candidate_ids": "item_ids", "neg_item_ids": "negative_ids", "counts_by_item": "counts_table",
    "sample_weight": "row_weights", "weights": "row_weights", "mask": "row_mask",
    "is_padding": "row_mask", "neg_mask": "negative_mask", "false_negative_mask": "linked",
    "key": "key", "k": "", "temperature": "",
}  # fmt: skip


def test_arguments_go_by_their_names():
    assert {name: role_of(name) for name in ROLES} == ROLES


def test_a_default_makes_an_option():
    def loss(scores, p=2.0, axis=1, item_ids=None):
        return scores.sum()

    read = read_loss(loss)
    assert dict(read.options) == {"p": 2.0, "axis": 1}
    assert [*read.roles.values()] == ["scores", "item_ids"]


@pytest.mark.parametrize(("name", "value"), [("masked_rows", True), ("rows_of_padding", False)])
def test_both_values_of_a_mask_can_mean_padding(name, value):
    one = Evaluator.of(read_loss(RIGHT[name]), GRAPH)
    (meaning,) = (text for text in one.read_as().values() if "padding" in text)
    assert meaning == f"mask of padding rows [b], {value} is no padding"


def test_a_guess_that_may_be_wrong_is_told():
    """Counts are read as those of items, and b as the batch's size, whatever they are."""

    def loss(users, items, counts, b):
        return bpr(
            jnp.sum(users * items, axis=1), jnp.zeros((len(users), 1)) + 0 * counts.sum() * b
        )

    meanings = Evaluator.of(read_loss(loss), GRAPH).read_as()
    assert meanings["counts"] == "number of training links that the row's item has [b]"
    assert meanings["b"] == "number of rows of a full batch"


def on_gpu(users, items):
    raise AssertionError("not compiled with CUDA")


class Without:
    pass


class Remembers:
    """Keeps the items of a call for the next."""

    kept = None

    def __call__(self, users, items):
        pool = items if self.kept is None else jnp.concatenate([items, self.kept])
        self.kept = pool[: len(items)]
        logits = users @ pool.T
        return jnp.mean(logsumexp(logits, axis=1) - jnp.sum(users * items, axis=1))


RNG = np.random.default_rng(0)


def noisy(positive_scores, negative_scores):
    if positive_scores.sum() < 9:  # so that it is not compiled
        return bpr(positive_scores, negative_scores) + RNG.normal()
    return 0.0


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda users, items, whatever: whatever, "'whatever', which no batch provides"),
        (lambda users: users.sum(), "neither vectors nor scores"),
        (lambda scores: scores, "must return one number"),
        (
            lambda scores: (jnp.mean(scores), {"scores": scores}),
            "returns tuple: it must return one number",
        ),
        (lambda users, items, /: users.sum(), "leave its '/' out"),
        (on_gpu, "take the device from them"),
        (Without, "has no method forward"),
        (Remembers(), "make what it keeps an argument"),
        (noisy, "other values for the same batch"),
        (
            lambda positive_scores, negative_scores: np.mean(
                np.logaddexp(0, negative_scores - positive_scores[:, None])
            ),
            "no gradient: import jax.numpy as np",
        ),
        ("linting:", "module:name"),
    ],
)
def test_wrong_losses_are_refused(loss, message):
    with pytest.raises(UsageError, match=message):
        lint_loss(loss)


def test_an_option_that_is_no_argument_is_refused():
    with pytest.raises(UsageError, match="has no argument 'margn'"):
        read_loss(CORRECT["hinge"].loss, {"margn": 1})


def counted_once(users, items, item_ids):
    """An in-batch softmax in which each distinct item has one column."""
    same = item_ids[:, None] == item_ids[None, :]
    is_own = jnp.eye(len(users), dtype=bool)
    has_earlier = jnp.argmax(same, axis=1) < jnp.arange(len(users))
    is_out = (has_earlier[None, :] | same) & ~is_own
    logits = jnp.where(is_out, -1e9, 5 * users @ items.T)
    return jnp.mean(logsumexp(logits, axis=1) - jnp.diagonal(logits))


@pytest.mark.parametrize(("size", "codes"), [(16, ["missing-logq"]), (20_000, [])])
def test_items_counted_once_need_less_correction(size, codes):
    """A batch that has all items once is no popular sample, a small one is."""
    result = lint_loss(counted_once, batch_size=size)
    assert [error.code for error in result.errors] == codes
    assert result.facts.masks.counts_once


def test_tilt_falls_from_one_to_none():
    assert batches.tilt(GRAPH, 1) == pytest.approx(1)
    assert 0.3 < batches.tilt(GRAPH, 64) < 0.7
    assert batches.tilt(GRAPH, 100_000) == pytest.approx(0, abs=1e-3)


def test_a_loss_without_effect_is_named():
    def constant(users, items):
        return 0.0 * jnp.sum(users) + 0.0 * jnp.sum(items)

    assert [finding.code for finding in lint_loss(constant).findings] == ["no-gradient"]
