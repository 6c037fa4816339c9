"""The sum over all users and items: fused and by the Gramian, beside plain loops."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncfbench.config import complete
from ncfbench.models import all_users
from ncfbench.models.interaction import DotProduct, Interaction, make_interaction
from ncfbench.models.losses import MeanSquaredError, Pointwise, SkipGram
from ncfbench.sampling.batch import MetUsers

USERS, ITEMS, D = 23, 7, 5
DOT = DotProduct(complete({}), rngs=None)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Cubic(Pointwise):
    """A plug-in's loss, whose negative links cost something at every score."""

    def positive(self, scores: jax.Array) -> jax.Array:
        return -scores

    def negative(self, scores: jax.Array) -> jax.Array:
        return scores**3 + 2 + scores


FORMULAS: dict[type[Pointwise], Any] = {
    SkipGram: lambda s: (math.log1p(math.exp(s)), 1 / (1 + math.exp(-s))),
    MeanSquaredError: lambda s: (s * s, 2 * s),
    Cubic: lambda s: (s**3 + 2 + s, 3 * s * s + 1),
}


def example() -> tuple[np.ndarray, np.ndarray, MetUsers]:
    rng = np.random.default_rng(3)
    f, g = rng.normal(size=(USERS, D)), rng.normal(size=(ITEMS, D))
    linked = {(0, 0), (4, 2), (11, 2), (11, 5), (22, 6)}
    padding = [(USERS, 0)] * 3
    user, item = zip(*sorted(linked), *padding, strict=True)
    c = rng.dirichlet(np.ones(ITEMS))
    c[3] = 0  # a padding slot
    weights = rng.dirichlet(np.ones(USERS)), c
    negatives = MetUsers(
        *(weight.astype(np.float32) for weight in weights),
        np.array(user, np.int32),
        np.array(item, np.int32),
    )
    return f.astype(np.float32), g.astype(np.float32), negatives


def by_definition(f: np.ndarray, g: np.ndarray, negatives: MetUsers, formula: Any) -> list[Any]:
    """Value and both gradients, pair by pair in float64."""
    left_out = set(zip(negatives.linked_user.tolist(), negatives.linked_item.tolist(), strict=True))
    f, g = f.astype(np.float64), g.astype(np.float64)
    value, by_f, by_g = 0.0, np.zeros_like(f), np.zeros_like(g)
    for i in range(USERS):
        for j in range(ITEMS):
            if (i, j) in left_out:
                continue
            weight = float(negatives.user_weight[i]) * float(negatives.item_weight[j])
            loss, slope = formula(float(f[i] @ g[j]))
            value += weight * loss
            by_f[i] += weight * slope * g[j]
            by_g[j] += weight * slope * f[i]
    return [value, by_f, by_g]


def assert_alike(found: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("loss", "block"),
    [(SkipGram(), 40), (SkipGram(), 2**22), (MeanSquaredError(), 40), (Cubic(), 40)],
)
def test_each_way_is_the_sum_by_definition(
    loss: Pointwise, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_users, "BLOCK_SCORES", block)
    f, g, on_host = example()
    negatives = MetUsers(*map(jax.device_put, on_host))
    ways = {
        "plain": lambda f, g: all_users.plain_sum(f, g, negatives, DOT, loss),
        "fused": lambda f, g: all_users.fused_sum(loss, f, g, negatives),
        "chosen": lambda f, g: all_users.negative_sum(f, g, negatives, DOT, loss),
    }
    if loss.squares_negatives:
        ways["gramian"] = lambda f, g: all_users.gramian_sum(f, g, negatives)
    expected = by_definition(f, g, on_host, FORMULAS[type(loss)])

    @jax.jit
    def all_ways(f: jax.Array, g: jax.Array) -> Any:
        return {name: jax.value_and_grad(way, argnums=(0, 1))(f, g) for name, way in ways.items()}

    for found in all_ways(f, g).values():
        assert_alike([found[0], *found[1]], expected)


def test_real_sizes_need_little_memory() -> None:
    """5,551 users and 495 items: no more than three arrays of all scores at a time."""
    shapes = [
        jax.ShapeDtypeStruct((5551, 50), jnp.float32),
        jax.ShapeDtypeStruct((495, 50), jnp.float32),
        MetUsers(
            *(jax.ShapeDtypeStruct((size,), jnp.float32) for size in (5551, 495)),
            *[jax.ShapeDtypeStruct((8192,), jnp.int32)] * 2,
        ),
    ]
    summed = jax.grad(all_users.fused_sum, argnums=(1, 2))
    compiled = jax.jit(summed, static_argnums=0).lower(SkipGram(), *shapes).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 64e6


@pytest.mark.parametrize("name", ["cosine", "gmf", "mlp"])
def test_other_interactions_sum_the_same_pairs(name: str) -> None:
    """By its gradient too; a cosine is a dot product, so that its sum is fused."""
    f, g, negatives = example()
    config = complete({"interaction": name, "dimension": D, "learn_temperature": True})
    score, loss = make_interaction(config), SkipGram()

    def summed(score: Interaction) -> jax.Array:
        return all_users.negative_sum(f, g, negatives, score, loss)

    assert ("custom_vjp" in str(jax.make_jaxpr(summed)(score))) == (name == "cosine")
    found, slopes = jax.jit(jax.value_and_grad(summed))(score)
    weights = negatives.user_weight[:, None] * negatives.item_weight[None, :]
    is_pair = negatives.linked_user < USERS
    weights[negatives.linked_user[is_pair], negatives.linked_item[is_pair]] = 0

    def expected(score: Interaction) -> jax.Array:
        pairs = score.pairs(jnp.repeat(f, ITEMS, axis=0), jnp.tile(g, (USERS, 1)))
        return jnp.sum(weights.reshape(-1) * jax.nn.softplus(pairs))

    assert_alike([found, slopes], list(jax.jit(jax.value_and_grad(expected))(score)))


def test_the_gramian_is_left_where_most_pairs_are_linked() -> None:
    """Eight slots for pairs in 161 cells."""
    f, g, on_host = example()
    negatives, loss = MetUsers(*map(jax.device_put, on_host)), MeanSquaredError()
    traced = jax.make_jaxpr(lambda f, g: all_users.negative_sum(f, g, negatives, DOT, loss))(f, g)
    assert "custom_vjp" in str(traced)


@pytest.mark.parametrize("loss", [SkipGram(), MeanSquaredError()])
def test_a_costless_score_costs_nothing(loss: Pointwise) -> None:
    value, slope = loss.negative_and_slope(jnp.array([loss.costless_score]))
    assert float(value[0]) == float(slope[0]) == 0


def test_the_skip_gram_slope_is_exact_far_out() -> None:
    scores = np.array([-90, -30.0, -5, -1e-3, 0, 0.3, 4, 20, 90])
    value, slope = SkipGram().negative_and_slope(jnp.asarray(scores, jnp.float32))
    expected = [math.log1p(math.exp(s)) if s < 30 else s for s in scores]
    np.testing.assert_allclose(value, expected, rtol=4e-7, atol=1e-38)
    sigmoid = [math.exp(s) / (1 + math.exp(s)) for s in scores]
    np.testing.assert_allclose(slope, sigmoid, rtol=4e-7, atol=1e-38)
