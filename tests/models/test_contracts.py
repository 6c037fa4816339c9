"""Contracts of plug-ins: what is wrong is named before a folder is made."""

import pytest
from support.processes import SMALL

from ncfbench.config import Locations, complete
from ncfbench.errors import UsageError
from ncfbench.models.contracts import require_contracts
from ncfbench.runs.plan import RunPlan
from ncfbench.training.run import run

MODULE = """
import jax.numpy as jnp
import optax
from flax import nnx
from ncfbench.models.losses import Pairwise, Pointwise

class Right(nnx.Module):
    width = 0

    def __init__(self, config, data, *, rngs):
        self.words = nnx.Embed(data.words + 1, config.dimension + self.width, rngs=rngs)

    def __call__(self, texts):
        return (self.words(texts.tokens) * texts.present[..., None]).sum(axis=1)

class Wide(Right):
    width = 3

class Fails(Right):
    def __call__(self, texts):
        return super().__call__(texts) @ jnp.ones((3, 4))  # LINE

class BiasLeaks(Right):
    def __init__(self, config, data, *, rngs):
        super().__init__(config, data, rngs=rngs)
        self.hidden = nnx.Linear(config.dimension, config.dimension, rngs=rngs)

    def __call__(self, texts):
        words = self.words(texts.tokens) * texts.present[..., None]
        return nnx.relu(self.hidden(words)).sum(axis=1)

class ByTokens(Right):
    # By the words' ids, not by ``present``: right, as padding is 0.
    def __call__(self, texts):
        words = jnp.where(texts.tokens[..., None] > 0, self.words(texts.tokens), 0)
        return words.sum(axis=1) / jnp.maximum(texts.lengths, 1)[:, None]

class Empty(Right):
    def __call__(self, texts):
        return super().__call__(texts) / texts.lengths[:, None]

class Rowless(Pairwise):
    def pair(self, positive, negative):
        return jnp.maximum(negative - positive + 0.5, 0)

    def rows(self, positive, negative, weight, lambda_):
        return jnp.sum(weight * self.pair(positive[:, None], negative))

class RightLoss(Rowless):
    rows = Pairwise.rows

class Swapped(RightLoss):
    def pair(self, positive, negative):
        return super().pair(negative, positive)

class Constant(RightLoss):
    def pair(self, positive, negative):
        return super().pair(0 * positive, negative)

class Overflows(RightLoss):
    def pair(self, positive, negative):
        return jnp.log(1 + jnp.exp(2 * (negative - positive)))

class Unweighted(RightLoss):
    def rows(self, positive, negative, weight, lambda_):
        return self.pair(positive[:, None], negative).mean(axis=-1)

class Huber(Pointwise):
    def positive(self, scores):
        return optax.losses.huber_loss(scores, jnp.ones_like(scores))

    def negative(self, scores):
        return optax.losses.huber_loss(scores, jnp.zeros_like(scores))

class AlikeTerms(Huber):
    def negative(self, scores):
        return self.positive(scores)

"""
LINE = next(n for n, line in enumerate(MODULE.splitlines(), 1) if "# LINE" in line)
WRONG = [
    ("encoder", "Wide", "returns float32[7, 11] for 7 items, and it must return"),
    ("encoder", "Fails", f"fails (shaped.py, line {LINE}): TypeError: dot_general"),
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


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "shaped.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path / "plugins"))


def settings(**choices):
    plugins = {kind: f"shaped:{name}" for kind, name in choices.items()}
    return complete(SMALL | {"sampler": "ns"} | plugins)


@pytest.mark.parametrize(("kind", "name", "message"), WRONG)
def test_a_broken_contract_is_named(tiny, kind, name, message):
    with pytest.raises(UsageError) as caught:
        require_contracts(settings(**{kind: name}), tiny)
    assert f"The {kind} shaped:{name} {message}" in str(caught.value)


@pytest.mark.parametrize("choices", RIGHT)
def test_right_plug_ins_pass(tiny, choices):
    """Any mask, flat regions, and distances to a target score too."""
    require_contracts(settings(**choices), tiny)


def test_no_folder_is_made(data_dir, tmp_path):
    with pytest.raises(UsageError, match="shaped:Wide returns"):
        run(RunPlan.of(settings(encoder="Wide"), Locations(data_dir, tmp_path / "runs")))
    assert not (tmp_path / "runs").exists()
