"""Contracts of plug-ins: what is wrong is named before a folder is made."""

from pathlib import Path

import jax.numpy as jnp
import optax
import pytest
from flax import nnx
from support.processes import SMALL

from ncfbench.config import Locations, complete
from ncfbench.errors import UsageError
from ncfbench.models.contracts import require_contracts
from ncfbench.models.losses import Pairwise, Pointwise
from ncfbench.runs.plan import RunPlan
from ncfbench.training.run import run


class Right(nnx.Module):
    width = 0

    def __init__(self, config, data, *, rngs):
        self.words = nnx.Embed(data.words + 1, config.dimension + self.width, rngs=rngs)
        self.hidden = nnx.Linear(config.dimension, config.dimension, rngs=rngs)

    def __call__(self, texts):
        return (self.words(texts.tokens) * texts.present[..., None]).sum(axis=1)


class Wide(Right):
    width = 3


class Fails(Right):
    def __call__(self, texts):
        return super().__call__(texts) @ jnp.ones((3, 4))  # LINE


class BiasLeaks(Right):
    def __call__(self, texts):
        words = self.words(texts.tokens) * texts.present[..., None]
        return nnx.relu(self.hidden(words)).sum(axis=1)


class ByTokens(Right):
    """By the words' ids, not by ``present``: right, as padding is 0."""

    def __call__(self, texts):
        words = jnp.where(texts.tokens[..., None] > 0, self.words(texts.tokens), 0)
        return words.sum(axis=1) / jnp.maximum(texts.lengths, 1)[:, None]


class Empty(Right):
    def __call__(self, texts):
        return super().__call__(texts) / texts.lengths[:, None]


def pairwise(pair, **more):
    return type("Margin", (Pairwise,), {"pair": lambda _, *scores: pair(*scores)} | more)


def margin(positive, negative):
    return jnp.maximum(negative - positive + 0.5, 0)


def sums(loss, positive, negative, weight, lambda_):
    return jnp.sum(weight * loss.pair(positive[:, None], negative))


def means(loss, positive, negative, weight, lambda_):
    return loss.pair(positive[:, None], negative).mean(axis=-1)


RightLoss = pairwise(margin)
Rowless, Unweighted = pairwise(margin, rows=sums), pairwise(margin, rows=means)
Swapped = pairwise(lambda positive, negative: margin(negative, positive))
Constant = pairwise(lambda positive, negative: margin(0 * positive, negative))
Overflows = pairwise(lambda positive, negative: jnp.log(1 + jnp.exp(2 * (negative - positive))))


class Huber(Pointwise):
    def positive(self, scores):
        return optax.losses.huber_loss(scores, jnp.ones_like(scores))

    def negative(self, scores):
        return optax.losses.huber_loss(scores, jnp.zeros_like(scores))


class AlikeTerms(Huber):
    negative = Huber.positive


LINES = Path(__file__).read_text("utf-8").splitlines()
LINE = next(number for number, line in enumerate(LINES, 1) if "# LINE" in line)
WRONG = [
    ("encoder", "Wide", "returns float32[7, 11] for 7 items, and it must return"),
    ("encoder", "Fails", f"fails (test_contracts.py, line {LINE}): TypeError: dot_general"),
    ("encoder", "BiasLeaks", "gives a text another vector where more padding follows its last"),
    ("encoder", "Empty", "returns vectors that are not finite"),
    ("loss", "Rowless", "returns float32[] for 24 links of 3 negatives, and it must return"),
    ("loss", "Swapped", "does not fall when the score of a positive link rises."),
    ("loss", "Constant", "does not fall when the score of a positive link rises."),
    ("loss", "AlikeTerms", "does not rise when the score of a negative link rises."),
    ("loss", "Overflows", "is not finite, or its slope is not, at scores of -50 to 50"),
    ("loss", "Unweighted", "counts negatives whose weight is 0."),
]
RIGHT = [{"encoder": "Right", "loss": "RightLoss"}, {"encoder": "ByTokens"}, {"loss": "Huber"}]


def settings(**choices):
    plugins = {kind: f"{__name__}:{name}" for kind, name in choices.items()}
    return complete(SMALL | {"sampler": "ns"} | plugins)


@pytest.mark.parametrize(("kind", "name", "message"), WRONG)
def test_a_broken_contract_is_named(data_dir, tmp_path, kind, name, message):
    """Before a folder is made."""
    with pytest.raises(UsageError) as caught:
        run(RunPlan.of(settings(**{kind: name}), Locations(data_dir, tmp_path)))
    assert f"The {kind} {__name__}:{name} {message}" in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("choices", RIGHT)
def test_right_plug_ins_pass(tiny, choices):
    """Any mask, flat regions, and distances to a target score too."""
    require_contracts(settings(**choices), tiny)
