"""The lint of losses: the museum, and each probe against plain arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.nn import logsumexp
from linting.museum import FAULTS, bpr, cross_entropy, same, unit
from linting.right_losses import CORRECT, in_batch_softmax
from scipy.special import expit, log_softmax, softmax
from typer.testing import CliRunner

from ncfbench.cli import app
from ncfbench.errors import DataError, UsageError
from ncfbench.linting import batches, objectives
from ncfbench.linting.derivatives import Evaluator
from ncfbench.linting.facts import logistic, measure
from ncfbench.linting.findings import KINDS
from ncfbench.linting.frameworks import framework_of
from ncfbench.linting.layouts import ROWS
from ncfbench.linting.lint import Lint, lint_loss
from ncfbench.linting.scenes import Scenes
from ncfbench.linting.signature import read_loss, role_of
from ncfbench.testing import assert_unbiased

GRAPH = batches.default_graph()
SLOW = (
    "gathered(?!_without)|doubled|detached|similar|symmetric|jax|drawn_softmax|idle_in|neighbours"
    "|multiplied|decoupled|metric|regularised|squared|temperature_twice|idle_flag|over_temperature|random_negative"
    "|sampling_corrected|drawn_by_popularity|of_the_positive|of_scores|drawn_without"
)


def lint(name: str) -> Lint:
    exhibit = {**FAULTS, **CORRECT}[name]
    return lint_loss(exhibit.loss, batches_from=exhibit.batches, estimates=False)


def evaluator(loss: Any) -> Evaluator:
    return Evaluator.of(read_loss(loss), GRAPH)


@pytest.mark.long_cases(SLOW)
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named(name: str) -> None:
    found = lint(name)
    assert FAULTS[name].code in [each.code for each in found.errors]
    for each in found.errors:
        # The number and what would be right are apart, with the whole interval.
        assert each.low <= each.value <= each.high
        assert not each.low <= each.expected <= each.high


@pytest.mark.long_cases(SLOW)
@pytest.mark.parametrize("name", CORRECT)
def test_correct_losses_are_not_accused(name: str) -> None:
    assert [each.sentence for each in lint(name).errors] == []


def test_the_museum_says_where_faults_come_from() -> None:
    assert len(FAULTS) >= 12
    assert len(CORRECT) >= 12
    assert all(exhibit.source.startswith("https://") for exhibit in FAULTS.values())


def test_every_finding_stands_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs/audit.md").read_text("utf-8")
    assert all(f"| `{code}` | {severity} |" in page for code, (severity, *_) in KINDS.items())


def same_items(ids: Any) -> Any:
    return (ids[:, None] == ids[None, :]) & ~jnp.eye(len(ids), dtype=bool)


def cross_entropy_of(logits: Any) -> Any:
    return jnp.mean(logsumexp(logits, axis=1) - jnp.diagonal(logits))


def positive_twice(users: Any, items: Any) -> Any:
    positive, scores = np.sum(users * items, axis=1), users @ items.T
    return np.mean(np.log(np.exp(positive) + np.exp(scores).sum(axis=1)) - positive)


def counts_for_logarithms(scores: Any, counts: Any) -> Any:
    return cross_entropy(scores - counts[None, :])


def labels_of_zero(users: Any, items: Any) -> Any:
    scores = 10 * unit(users) @ unit(items).T
    return np.mean(np.logaddexp(0, -np.eye(len(users)) * scores))


def negatives_without_user(users: Any, items: Any, negatives: Any) -> Any:
    near, far = (np.einsum("bd,b...d->b...", x, y) for x, y in ((users, items), (items, negatives)))
    return np.mean(np.logaddexp(0, -near)) + np.mean(np.logaddexp(0, far))


def pulled_negatives(scores: Any, labels: Any) -> Any:
    return np.mean(np.logaddexp(0, -scores))


def sigmoid_twice(scores: Any, labels: Any) -> Any:
    logits = expit(scores)
    return np.mean(np.logaddexp(0, logits) - labels * logits)


def shared_view(users: Any, items: Any, negatives: Any) -> Any:
    b, k, width = negatives.shape
    drawn = negatives.reshape(k, b, width).transpose(1, 0, 2)
    return bpr(np.sum(users * items, axis=1), np.einsum("bd,bkd->bk", users, drawn))


def tiled_positives(positive_scores: Any, negative_scores: Any) -> Any:
    k = negative_scores.shape[1]
    return np.mean(np.logaddexp(0, negative_scores.reshape(-1) - np.tile(positive_scores, k)))


def weights_after_the_mean(users: Any, items: Any, item_ids: Any, sample_weight: Any) -> Any:
    logits = jnp.where(same_items(item_ids), -1e9, users @ items.T)
    return cross_entropy_of(logits) * jnp.mean(sample_weight)


def idle_symmetric(scores: Any, symmetric: bool = True) -> Any:
    return cross_entropy(scores)


def centred_in_place(scores: Any) -> Any:
    scores -= scores.max(axis=1, keepdims=True)
    return cross_entropy(scores)


def of_hardest(users: Any, items: Any) -> Any:
    scores = users @ items.T
    others = scores[~np.eye(len(scores), dtype=bool)].reshape(len(scores), -1)
    return bpr(np.diagonal(scores), others.max(axis=1, keepdims=True))


def in_bfloat16(users: Any, items: Any) -> Any:
    f, g = (x.astype(jnp.bfloat16) for x in (users, items))
    return cross_entropy_of((f @ g.T).astype(float))


@pytest.mark.parametrize(
    ("loss", "code"),
    [
        (positive_twice, "positive-twice"),
        (counts_for_logarithms, "logq-scale"),
        (labels_of_zero, "no-negatives"),
        (negatives_without_user, "no-negatives"),
        (pulled_negatives, "no-negatives"),
        (sigmoid_twice, "squashed"),
        (shared_view, "wrong-negative"),
        (tiled_positives, "wrong-negative"),
        (weights_after_the_mean, "row-weights"),
        (idle_symmetric, "idle-flag"),
        (centred_in_place, "changed-input"),
        (of_hardest, "not-finite"),
        (in_bfloat16, "rounded"),
    ],
)
def test_kinds_of_faults_are_told_apart(loss: Any, code: str) -> None:
    assert code in [each.code for each in lint_loss(loss, estimates=False).findings]


def sampled_with_hits(users: Any, items: Any, negatives: Any, probability: Any, neg_p: Any) -> Any:
    """Corrected everywhere, with the positive's own copies among the negatives."""
    own = np.sum(users * items, axis=1, keepdims=True) - np.log(probability)[:, None]
    logits = np.concatenate([own, np.einsum("bd,bkd->bk", users, negatives) - np.log(neg_p)], 1)
    return -np.mean(log_softmax(logits, axis=1)[:, 0])


def copies_are_positives(users: Any, items: Any, item_ids: Any, probability: Any) -> Any:
    """Rows with one item share their label, and every column is corrected."""
    labels = same(item_ids) + np.eye(len(users))
    log_share = log_softmax(users @ items.T - np.log(probability)[None, :], axis=1)
    return -np.mean(np.sum(labels / labels.sum(axis=1, keepdims=True) * log_share, axis=1))


def sharp(users: Any, items: Any, temperature: float = 0.01) -> Any:
    return cross_entropy(unit(users) @ unit(items).T / temperature)


def narrow_hinge(positive_scores: Any, negative_scores: Any) -> Any:
    """Rows beyond the margin have no push, whatever shape the negatives have."""
    return np.mean(np.maximum(negative_scores - positive_scores[:, None] + 0.05, 0))


@pytest.mark.parametrize(
    ("loss", "codes"),
    [
        (narrow_hinge, set()),
        (sampled_with_hits, set()),
        (copies_are_positives, set()),
        (sharp, {"missing-logq", "duplicates"}),
    ],
)
def test_right_parts_are_not_accused(loss: Any, codes: set[str]) -> None:
    assert {each.code for each in lint_loss(loss, estimates=False).errors} == codes


# Pushes, and what is read from them.


def jax_in_batch(users: Any, items: Any) -> Any:
    scores = 5 * users @ items.T
    return jnp.mean(jnp.log(jnp.sum(jnp.exp(scores), axis=1)) - jnp.diagonal(scores))


def of_scores(scores: Any) -> Any:
    return cross_entropy(5 * scores)


def normalising(users: Any, items: Any) -> Any:
    return cross_entropy(5 * unit(users) @ unit(items).T) + 0.1 * np.mean(items**2)


@pytest.mark.parametrize("loss", [jax_in_batch, of_scores, normalising])
def test_pushes_are_the_derivatives_by_scores(loss: Any) -> None:
    """Neither a norm nor a penalty on lengths is a push on a pair."""
    one = evaluator(loss)
    scene = one.scenes().plain(0, ROWS)
    expected = 5 * (softmax(5 * scene.scores, axis=1) - np.eye(ROWS)) / ROWS
    tolerance = 1e-7 if loss is not normalising else 1e-6
    np.testing.assert_allclose(one.pushes(scene), expected, atol=tolerance)
    if loss is jax_in_batch:
        on_items, on_users = one.true_pushes(scene)
        np.testing.assert_allclose(on_items, expected, atol=1e-7)
        np.testing.assert_allclose(on_users, expected, atol=1e-7)
        np.testing.assert_allclose(one.pushes_on_users(scene), expected, atol=1e-7)


def test_pushes_of_drawn_negatives_meet_their_row() -> None:
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
def test_scale_and_amplitude_are_exact(scale: float) -> None:
    def loss(scores: Any) -> Any:
        return 2 * cross_entropy(scale * scores)

    one = evaluator(loss)
    found = logistic(one, one.scenes().plain(0, ROWS), 0, 1)
    assert found == pytest.approx((scale, 2 * scale / ROWS), rel=1e-3)


def test_facts_of_a_corrected_softmax() -> None:
    facts = measure(evaluator(in_batch_softmax))
    assert facts.kind == "listwise"
    assert facts.normalises
    for number, value in (
        (facts.scale, 20.0),
        (facts.slope, -1.0),
        (facts.positive_slope, 0.0),
        (facts.positive_weight, 1.0),
    ):
        assert number is not None
        assert number.value == pytest.approx(value, abs=1e-3)


def test_the_objective_is_named_by_fitting() -> None:
    def uncorrected(scores: Any) -> Any:
        return cross_entropy(scores)

    for loss, title in (
        (uncorrected, "softmax over items by popularity"),
        (bpr, "BPR, uniform items without a link"),
    ):
        one = evaluator(loss)
        fits = objectives.fit(one, measure(one))
        assert fits.fits[0].title == title
        assert fits.fits[0].bias.estimate < 0.2
    assert len(fits.deciles) == 10


# Scenes.


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_scenes_have_the_links_that_they_claim(seed: int) -> None:
    scenes = Scenes(GRAPH, 2)
    last = ROWS - 1
    expected = {
        "": [],
        "same item": [(0, last), (last, 0)],
        "same user": [(0, last), (last, 0)],
        "linked": [(0, last)],
    }
    for relation, pairs in expected.items():
        scene, twin = scenes.related(seed, ROWS, relation)  # type: ignore[arg-type]
        linked = scene.linked[:, :ROWS] & ~np.eye(ROWS, dtype=bool)
        assert sorted(zip(*np.nonzero(linked), strict=True)) == pairs
        assert np.diagonal(scene.linked[:, :ROWS]).all()
        assert not scene.linked[np.repeat(np.arange(ROWS), 2), np.arange(ROWS, 3 * ROWS)].any()
        assert np.array_equal(twin.scores, scene.scores)
        assert (twin.linked[:, :ROWS] == np.eye(ROWS, dtype=bool)).all()
        vectors = scene.coordinates()
        np.testing.assert_allclose(vectors.users @ vectors.columns.T, scene.scores, atol=1e-12)
        np.testing.assert_allclose(np.linalg.norm(vectors.columns, axis=1), 1, atol=1e-12)


def test_dense_pairs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    rows = [f"{u},{v}" for u in range(12) for v in range(12)]
    path.write_text("\n".join(["user,item", *rows]))
    with pytest.raises(DataError, match="too few or too dense"):
        lint_loss(bpr, pairs=path)


# Arguments.


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("query_embeddings", "users"),
        ("candidate_embeddings", "items"),
        ("users_bxD", "users"),
        ("pos_score", "positive_scores"),
        ("neg_score", "negative_scores"),
        ("candidate_sampling_probability", "probability"),
        ("candidate_ids", "item_ids"),
        ("log_q", "log_probability"),
        ("item_idx", "item_ids"),
        ("neg_item_ids", "negative_ids"),
        ("item_freq", "counts"),
        ("counts_by_item", "counts_table"),
        ("probability_table", "probability_table"),
        ("negative_log_q", "negative_log_probability"),
        ("anchor", "users"),
        ("emb2", "items"),
        ("item_counts", "counts"),
        ("q_reps", "users"),
        ("rep_anchor", "users"),
        ("e_i", "items"),
        ("item_tower_output", "items"),
        ("hard_neg_emb", "negatives"),
        ("positive_predictions", "positive_scores"),
        ("x_uj", "negative_scores"),
        ("logits_per_image", "scores"),
        ("sample_weight", "row_weights"),
        ("q", "probability"),
        ("key", "key"),
        ("k", ""),
        ("temperature", ""),
    ],
)
def test_arguments_go_by_their_names(name: str, role: str) -> None:
    assert role_of(name) == role


def test_a_default_makes_an_option() -> None:
    def loss(
        scores: Any, p: float = 2.0, axis: int = 1, item_ids: Any = None, rank: int = 0
    ) -> Any:
        return scores.sum()

    read = read_loss(loss)
    assert dict(read.options) == {"p": 2.0, "axis": 1}
    assert [*read.roles.values()] == ["scores", "item_ids", "rank"]


def test_wrong_losses_are_refused() -> None:
    def unknown(users: Any, items: Any, whatever: Any) -> Any:
        return whatever

    def alone(users: Any) -> Any:
        return users.sum()

    def many(scores: Any) -> Any:
        return scores

    def many_of_jax(scores: Any) -> Any:
        return jnp.mean(scores), {"scores": scores}

    def nameless(users: Any, items: Any, /) -> Any:
        return users.sum()

    def on_gpu(users: Any, items: Any) -> Any:
        raise AssertionError("not compiled with CUDA")

    class Without:
        pass

    for loss, message in (
        (unknown, "'whatever' that is none"),
        (alone, "neither vectors nor scores"),
        (many, "must return one number"),
        (many_of_jax, "returns tuple: it must return one number"),
        (nameless, "leave its '/' out"),
        (on_gpu, "take the device from them"),
        (Without, "has no method forward"),
        ("linting:", "module:name"),
        (3, "cannot be called"),
        ("museum", "module:name"),
    ):
        with pytest.raises(UsageError, match=message):
            lint_loss(loss, estimates=False)
    with pytest.raises(UsageError, match="has no argument 'margn'"):
        read_loss(CORRECT["hinge"].loss, {"margn": 1})
    with pytest.raises(UsageError, match="did you mean 'missing-logq'"):
        lint_loss(bpr, accept=["missing-log"])


def counted_once(users: Any, items: Any, item_ids: Any) -> Any:
    """An in-batch softmax in which each distinct item has one column."""
    same = item_ids[:, None] == item_ids[None, :]
    is_own = jnp.eye(len(users), dtype=bool)
    has_earlier = jnp.argmax(same, axis=1) < jnp.arange(len(users))
    is_out = (has_earlier[None, :] | same) & ~is_own
    logits = jnp.where(is_out, -1e9, 5 * users @ items.T)
    return jnp.mean(logsumexp(logits, axis=1) - jnp.diagonal(logits))


@pytest.mark.parametrize(("size", "codes"), [(16, ["missing-logq"]), (20_000, [])])
def test_items_counted_once_need_less_correction(size: int, codes: list[str]) -> None:
    """A batch that has all items once is no popular sample, a small one is."""
    found = lint_loss(counted_once, batch_size=size, estimates=False)
    assert [each.code for each in found.errors] == codes
    assert found.facts is not None
    assert found.facts.counts_once


def test_tilt_falls_from_one_to_none() -> None:
    assert batches.tilt(GRAPH, 1) == pytest.approx(1)
    assert 0.3 < batches.tilt(GRAPH, 64) < 0.7
    assert batches.tilt(GRAPH, 100_000) == pytest.approx(0, abs=1e-3)


def test_a_loss_without_effect_is_named() -> None:
    def constant(users: Any, items: Any) -> Any:
        return 0.0 * np.sum(users) + 0.0 * np.sum(items)

    assert [each.code for each in lint_loss(constant, estimates=False).findings] == ["no-gradient"]


def test_imports_within_a_loss_name_its_framework() -> None:
    class Base:
        def __call__(self, positive_scores: Any, negative_scores: Any) -> Any:
            from jax import nn

            return nn.softplus(negative_scores - positive_scores[:, None]).mean()

    class Own(Base):
        pass

    assert framework_of(Own).name == framework_of(Own()).name == "JAX"


def test_methods_alone_take_the_framework_around() -> None:
    def loss(users: Any, items: Any) -> Any:
        return (users * items).sum()

    assert framework_of(loss).name == "JAX"


def test_a_loss_that_cannot_be_repeated_is_refused() -> None:
    rng = np.random.default_rng(0)

    def noisy(positive_scores: Any, negative_scores: Any) -> Any:
        return bpr(positive_scores, negative_scores) + rng.normal()

    with pytest.raises(UsageError, match="other values for the same batch"):
        lint_loss(noisy)


def test_pairs_keep_small_numbers_and_number_names(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("item_id,user_id,more\n7,anna,1\n0,bob,2\n7,anna,3\n")
    graph = batches.read_pairs(path)
    assert (graph.n_users, graph.n_items, graph.n_links) == (2, 8, 2)
    assert graph.linked(np.int32([0, 1, 1]), np.int32([7, 0, 7])).tolist() == [True, True, False]


def test_pairs_without_repeats_can_be_judged(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("query,text\n" + "".join(f"{n},t{n}\n" for n in range(100)))
    found = lint_loss(CORRECT["in_batch_softmax"].loss, pairs=path, estimates=False)
    assert found.findings == []


def test_batches_of_several_negatives_fit_a_loss_of_one() -> None:
    def of_one(users: Any, items: Any, negatives: Any) -> Any:
        if negatives.shape != users.shape:
            raise ValueError("one negative for each user")
        return bpr(np.sum(users * items, axis=1), np.sum(users * negatives, axis=1)[:, None])

    own = FAULTS["sampled_positives"].batches
    codes = [each.code for each in lint_loss(of_one, batches_from=own, estimates=False).findings]
    assert codes == ["sampled-positives"]


@pytest.mark.parametrize("first", ["a", 10**9])
def test_batches_of_any_ids_have_a_graph(first: Any) -> None:
    ids = np.array([f"a{n}" for n in range(9)]) if first == "a" else np.arange(9) + first
    (batch, _), graph = batches.own_batches([(ids, ids, ids[::-1])] * 2, None, 9)
    assert (graph.n_users, graph.n_items, graph.n_links) == (9, 9, 9)
    assert batch.negative[:, 0].tolist() == batch.item[::-1].tolist()


def test_batches_are_read_or_refused() -> None:
    ids = np.arange(4)
    own, _ = batches.own_batches([(ids, ids, ids[::-1]), {"u": ids, "i": ids}], GRAPH, 4)
    assert own[0].negative.tolist() == [[3], [2], [1], [0]]
    assert own[1].negative.shape == (4, 0)
    for wrong, message in (
        ([], "are none"),
        ([(ids, ids[:2])], "users, items"),
        ([(ids + 1000, ids)], "none of the pairs: 1000"),
        ([(ids, ids + 0.5)], "ids are fractions"),
    ):
        with pytest.raises(UsageError, match=message):
            batches.own_batches(wrong, GRAPH, 4)


# What users call.


def test_assertion_names_the_fault() -> None:
    assert_unbiased(bpr)
    with pytest.raises(AssertionError, match="last-batch"):
        assert_unbiased(FAULTS["fixed_divisor"].loss)
    assert_unbiased(FAULTS["fixed_divisor"].loss, accept=["last-batch"])


LOSSES = """
import numpy as np
def bpr(positive_scores, negative_scores, scale=2.0):
    return np.mean(np.logaddexp(0, scale * (negative_scores - positive_scores[:, None])))
def wrong(positive_scores, negative_scores):
    return -bpr(positive_scores, negative_scores)
"""


def test_command_ends_with_six_if_something_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "linted_losses.py").write_text(LOSSES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    runner = CliRunner()
    command = ["audit", "--loss", "linted_losses:bpr", "--set", "scale=3.0", "-q", "--json"]
    right = runner.invoke(app, command)
    assert right.exit_code == 0, right.output
    found = json.loads(right.stdout)
    assert found["findings"] == []
    assert found["facts"]["scale"]["value"] == pytest.approx(3.0)
    wrong = runner.invoke(app, ["audit", "--loss", "linted_losses:wrong", "-q"])
    assert wrong.exit_code == 6
    assert "wrong-sign" in wrong.stdout
    for more, message in (
        (["--encoder", "bow"], "--encoder has no effect"),
        (["--samplers", "neg"], "--samplers has no effect"),
        (["--batch-size", "1"], "2 links or more"),
    ):
        refused = runner.invoke(app, ["audit", "--loss", "linted_losses:bpr", "-q", *more])
        assert refused.exit_code == 2
        assert message in refused.stderr
    refused = runner.invoke(app, ["audit", "--pairs", "x.csv"])
    assert refused.exit_code == 2
    assert "go with a loss of your own" in refused.stderr
