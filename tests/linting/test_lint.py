"""The lint of losses: the museum, and each probe against plain arithmetic."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linting.duties import RIGHT
from linting.museum import FAULTS, bpr, cross_entropy, negated, unit
from linting.right_losses import CORRECT
from scipy.special import expit, softmax
from support.cli import check, invoke

from ncfbench.linting import balance, batches
from ncfbench.linting.derivatives import ROWS, Evaluator
from ncfbench.linting.facts import logistic, measure
from ncfbench.linting.findings import KINDS
from ncfbench.linting.lint import lint_loss
from ncfbench.linting.scenes import Scenes
from ncfbench.linting.signature import read_loss
from ncfbench.testing import assert_no_findings

GRAPH = batches.default_graph()
QUICK = {
    *("logq_sign", "missing_logq", "duplicates", "linked_pairs", "over_users", "broadcast"),
    *("double_softmax", "normalised_along_batch", "counts_for_logarithms", "idle_symmetric"),
    *("terms_divided", "positive_detached", "negatives_attracted", "sigmoid_of_differences"),
    *("diagonal_times_zero", "users_alone_normalised", "padding_as_negatives"),
    *("in_batch_softmax", "hinge", "pairs_bce", "top1", "uniform_softmax"),
    *("decoupled", "hardest", "masked_rows"),
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


def test_a_flag_of_the_users_gradient_is_not_idle():
    def loss(users, items, remove_users=True):
        users = jax.lax.stop_gradient(users) if remove_users else users
        return cross_entropy(users @ items.T)

    assert "idle-flag" not in [finding.code for finding in lint_loss(loss).findings]


def test_rules_list_every_finding():
    check(invoke("lint", "--rules"), 0, *KINDS)


# Pushes, and what is read from them.


def in_batch(users, items):
    scores = 5 * users @ items.T
    return jnp.mean(jnp.log(jnp.sum(jnp.exp(scores), axis=1)) - jnp.diagonal(scores))


def of_scores(scores):
    return cross_entropy(5 * scores)


def normalising(users, items):
    return cross_entropy(5 * unit(users) @ unit(items).T) + 0.1 * jnp.mean(items**2)


@pytest.mark.parametrize("loss", [in_batch, of_scores, normalising])
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
    for number, value in (
        (facts.scale, 20.0),
        (facts.slope, -1.0),
        (facts.positive_slope, 0.0),
        (facts.positive_weight, 1.0),
    ):
        assert number.value == pytest.approx(value, abs=1e-3)


# Scenes.


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_scenes_have_the_links_that_they_claim(seed):
    scenes = Scenes(GRAPH, 2)
    last = ROWS - 1
    expected = {
        "": [],
        "same item": [(0, last), (last, 0)],
        "same user": [(0, last), (last, 0)],
        "linked": [(0, last)],
    }
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


def test_assertion_names_the_fault():
    assert_no_findings(bpr)
    with pytest.raises(AssertionError, match="wrong-sign"):
        assert_no_findings(negated)
    assert_no_findings(negated, accept=["wrong-sign"])


LOSSES = """
import jax.numpy as np
def bpr(positive_scores, negative_scores, scale=2.0):
    return np.mean(np.logaddexp(0, scale * (negative_scores - positive_scores[:, None])))
def wrong(positive_scores, negative_scores):
    return -bpr(positive_scores, negative_scores)
"""


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
