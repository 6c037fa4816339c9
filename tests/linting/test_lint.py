"""The lint of losses: the museum, and each probe against plain arithmetic."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.nn import logsumexp
from linting.duties import RIGHT
from linting.museum import CORRECT, FAULTS, bpr, cross_entropy, negated, unit
from scipy.special import expit, softmax
from support.cli import check, invoke

from ncfbench.errors import UsageError
from ncfbench.linting import balance, batches
from ncfbench.linting.derivatives import ROWS, Evaluator
from ncfbench.linting.facts import logistic, measure
from ncfbench.linting.findings import KINDS
from ncfbench.linting.lint import lint_loss
from ncfbench.linting.scenes import Scenes
from ncfbench.linting.signature import read_loss, role_of
from ncfbench.testing import assert_no_findings

GRAPH = batches.default_graph()
QUICK = {
    *("logq_sign", "missing_logq", "duplicates", "linked_pairs", "over_users", "broadcast"),
    *("double_softmax", "normalised_along_batch", "counts_for_logarithms", "idle_symmetric"),
    *("terms_divided", "positive_detached", "negatives_attracted", "sigmoid_of_differences"),
    *("diagonal_times_zero", "users_alone_normalised", "padding_as_negatives"),
    *("in_batch_softmax", "hinge", "pairs_bce", "top1", "uniform_softmax"),
    *("decoupled", "hardest", "masked_rows", "flag_of_the_gradient", "constant"),
}
"""Losses that are linted by default: one of each finding, and of each kind that is right."""


def cases(losses):
    marks = {name: [] if name in QUICK else [pytest.mark.long] for name in losses}
    return [pytest.param(name, marks=marks[name]) for name in losses]


def evaluator(loss):
    return Evaluator.of(read_loss(loss), GRAPH)


@pytest.mark.parametrize("name", cases(FAULTS))
def test_faults_are_named(name):
    exhibit = FAULTS[name]
    result = lint_loss(exhibit.loss)
    codes = [row.code for row in result.findings if row.severity == exhibit.severity]
    assert {*exhibit.codes} <= {*codes}
    for error in result.errors:
        # The number and what would be right are apart, with the whole interval.
        assert error.low <= error.value <= error.high
        assert not error.low <= error.expected <= error.high


@pytest.mark.parametrize("name", cases(CORRECT))
def test_correct_losses_are_not_accused(name):
    errors = lint_loss(CORRECT[name].loss).errors
    assert {error.code for error in errors} == {*CORRECT[name].codes}


@pytest.mark.parametrize("name", cases(RIGHT))
def test_losses_that_do_their_duties_are_right(name):
    errors = lint_loss(RIGHT[name]).errors
    assert {error.code for error in errors} <= {"missing-logq", "duplicates", "linked"}


def test_idle_flags_are_errors_by_what_they_promise():
    def idle(scores, item_ids, remove_hits=True, training=False):
        return cross_entropy(scores)

    flags = [finding for finding in lint_loss(idle).findings if "flag" in finding.code]
    severities = {finding.detail.split()[0]: finding.severity for finding in flags}
    assert severities == {"remove_hits": "error", "training": "warning"}


def test_rules_list_every_finding():
    check(invoke("lint", "--rules"), 0, *KINDS)


# Pushes, and what is read from them.


def in_batch(users, items):
    scores = 5 * users @ items.T
    return jnp.mean(jnp.log(jnp.sum(jnp.exp(scores), axis=1)) - jnp.diagonal(scores))


@pytest.mark.parametrize(
    "loss",
    [
        in_batch,
        lambda scores: cross_entropy(5 * scores),
        lambda users, items: (
            cross_entropy(5 * unit(users) @ unit(items).T) + 0.1 * jnp.mean(items**2)
        ),
    ],
)
def test_pushes_are_the_derivatives_by_scores(loss):
    """Neither a norm nor a penalty on lengths is a push on a pair."""
    one = evaluator(loss)
    scene = one.scenes().plain(0, ROWS)
    expected = 5 * (softmax(5 * scene.scores, axis=1) - np.eye(ROWS)) / ROWS
    np.testing.assert_allclose(one.pushes(scene), expected, atol=1e-9)


def zeroed_diagonal(scores):
    rest = 5 * scores * (1 - jnp.eye(len(scores)))
    positive = 5 * jnp.diagonal(scores)
    return jnp.mean(jnp.log(jnp.exp(positive) + jnp.exp(rest).sum(axis=1)) - positive)


def hotter_positive(scores):
    return cross_entropy(5 * scores + 10 * scores * jnp.eye(len(scores)))


@pytest.mark.parametrize(("loss", "scale"), [(zeroed_diagonal, 5), (hotter_positive, 15)])
def test_pulls_and_pushes_are_those_of_the_softmax(loss, scale):
    """A constant has a share of the softmax, and a positive's own scale is a factor of pulls."""
    one = evaluator(loss)
    scene = one.scenes().plain(0, ROWS)
    eye, s = np.eye(ROWS, dtype=bool), scene.scores
    weight = np.exp(np.where(eye, scale, 5) * s)
    constant = 1.0 if loss is zeroed_diagonal else 0.0
    share = weight / (weight.sum(axis=1, keepdims=True) + constant)
    pull, push = scale * (1 - np.diagonal(share)).sum() / ROWS, 5 * share[~eye].sum() / ROWS
    assert one.totals(scene) == pytest.approx((pull, push), rel=1e-6)
    assert balance.ratios(one, [scene]) == pytest.approx(pull / push, rel=1e-6)


def test_pushes_of_drawn_negatives_meet_their_row():
    one = evaluator(bpr)
    scene = one.scenes().plain(0, ROWS)
    push, s = one.pushes(scene), scene.scores
    for row in range(ROWS):
        for k in range(3):
            column = ROWS + 3 * row + k
            expected = expit(s[row, column] - s[row, row]) / (3 * ROWS)
            assert push[row, column] == pytest.approx(expected, abs=1e-8)
    assert np.count_nonzero(push) == 4 * ROWS


@pytest.mark.parametrize("scale", [0.5, 3.0, 20.0])
def test_scale_and_amplitude_are_exact(scale):
    def loss(scores):
        return 2 * cross_entropy(scale * scores)

    one = evaluator(loss)
    fit = logistic(one, one.scenes().plain(0, ROWS), 0, 1)
    assert fit == pytest.approx((scale, 2 * scale / ROWS), rel=1e-3)


@pytest.mark.parametrize(("value", "is_named"), [(0.99, False), (0.9, True)])
def test_a_temperature_near_one_shows_nothing(value, is_named):
    def loss(scores, temperature=value):
        return cross_entropy(scores / value / temperature)

    codes = [finding.code for finding in balance.temperatures(*measure(evaluator(loss), 64))]
    assert codes == ["temperature-twice"] * is_named


def test_facts_of_a_corrected_softmax():
    _, facts = measure(evaluator(CORRECT["in_batch_softmax"].loss), 64)
    assert facts.kind == "listwise"
    assert not facts.lengths["users"]
    numbers = facts.scale, facts.slope, facts.positive_slope, facts.positive_weight
    assert [number.value for number in numbers] == pytest.approx([20, -1, 0, 1], abs=1e-3)


# Scenes.


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_scenes_have_the_links_that_they_claim(seed):
    scenes, last = Scenes(GRAPH, 2), ROWS - 1
    both = [(0, last), (last, 0)]
    expected = {"": [], "same item": both, "same user": both, "linked": both[:1]}
    for relation, pairs in expected.items():
        scene, twin = scenes.related(seed, ROWS, relation)
        linked = scene.linked[:, :ROWS] & ~np.eye(ROWS, dtype=bool)
        assert sorted(zip(*np.nonzero(linked), strict=True)) == pairs
        assert np.diagonal(scene.linked[:, :ROWS]).all()
        assert not scene.linked[np.repeat(np.arange(ROWS), 2), np.arange(ROWS, 3 * ROWS)].any()
        assert np.array_equal(twin.scores, scene.scores)
        assert (twin.linked[:, :ROWS] == np.eye(ROWS, dtype=bool)).all()
        vectors = scene.vectors()
        np.testing.assert_allclose(vectors.users @ vectors.columns.T, scene.scores, atol=1e-12)
        np.testing.assert_allclose(np.linalg.norm(vectors.columns, axis=1), 1, atol=1e-12)


# What users call.


LOSSES = """
import jax.numpy as np
def bpr(positive_scores, negative_scores, scale=2.0):
    return np.mean(np.logaddexp(0, scale * (negative_scores - positive_scores[:, None])))
def wrong(positive_scores, negative_scores):
    return -bpr(positive_scores, negative_scores)
"""


def test_assertion_names_the_fault():
    assert_no_findings(bpr)
    with pytest.raises(AssertionError, match="wrong-sign"):
        assert_no_findings(negated)
    assert_no_findings(negated, accept=["wrong-sign"])


def test_command_ends_with_six_if_something_is_wrong(tmp_path, monkeypatch):
    (tmp_path / "linted_losses.py").write_text(LOSSES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    right = invoke("lint", "linted_losses:bpr", "--set", "scale=3.0", "-q", "--json")
    check(right, 0)
    document = json.loads(right.stdout)
    assert document["findings"] == []
    assert document["facts"]["scale"]["value"] == pytest.approx(3.0)
    assert document["read_as"] == {
        "positive_scores": "positive scores [b]",
        "negative_scores": "negative scores [b, k]",
        "scale": "option, 3.0",
    }
    check(invoke("lint", "linted_losses:wrong", "-q"), 6, "wrong-sign", "read as")


# What is read of a loss: arguments, ids, and what is refused.


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
    with pytest.raises(UsageError, match="has no argument 'margn'"):
        read_loss(loss, {"margn": 1})


@pytest.mark.parametrize(("name", "value"), [("masked_rows", True), ("rows_of_padding", False)])
def test_both_values_of_a_mask_can_mean_padding(name, value):
    one = Evaluator.of(read_loss(RIGHT[name]), GRAPH)
    (meaning,) = (text for text in one.read_as().values() if "padding" in text)
    assert meaning == f"mask of padding rows [b], {value} is no padding"


def test_a_guess_that_may_be_wrong_is_told():
    """Counts are read as those of items, and b as the batch's size, whatever they are."""

    def loss(users, items, counts, b):
        scores = jnp.sum(users * items, axis=1)
        return bpr(scores, jnp.zeros((len(users), 1)) + 0 * counts.sum() * b)

    meanings = Evaluator.of(read_loss(loss), GRAPH).read_as()
    assert meanings["counts"] == "number of training links that the row's item has [b]"
    assert meanings["b"] == "number of rows of a full batch"


def on_gpu(users, items):
    raise AssertionError("not compiled with CUDA")


class Without:
    pass


class Remembers:
    kept = jnp.zeros((0, 1))

    def __call__(self, users, items):
        pool = jnp.concatenate([items, self.kept]) if len(self.kept) else items
        self.kept = pool[: len(items)]
        return jnp.mean(logsumexp(users @ pool.T, axis=1) - jnp.sum(users * items, axis=1))


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
        (lambda scores: (jnp.mean(scores), {}), "returns tuple: it must return one number"),
        (lambda users, items, /: users.sum(), "leave its '/' out"),
        (on_gpu, "take the device from them"),
        (Without, "has no method forward"),
        (Remembers(), "make what it keeps an argument"),
        (noisy, "other values for the same batch"),
        (lambda scores: np.mean(np.exp(scores)), "no gradient: import jax.numpy as np"),
        ("linting:", "module:name"),
    ],
)
def test_wrong_losses_are_refused(loss, message):
    with pytest.raises(UsageError, match=message):
        lint_loss(loss)


def counted_once(users, items, item_ids):
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
