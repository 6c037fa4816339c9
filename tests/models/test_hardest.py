"""The hardest shared negatives: which they are, the gradient, refusals, and what audits say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from ncfbench.advice.question import Question
from ncfbench.auditing.audit import audit_samplers
from ncfbench.config import RunConfig, complete, digest
from ncfbench.data.store import Dataset
from ncfbench.errors import UsageError
from ncfbench.models.interaction import make_interaction
from ncfbench.models.losses import make_loss
from ncfbench.models.objective import batch_link_loss
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler


def configure(**more: Any) -> RunConfig:
    return complete({"sampler": "ns", "batch_size": 32, "hardest": 4} | more)


@pytest.mark.parametrize("loss", ["sg", "hinge", "softmax", "softmax-logq"])
def test_loss_and_gradient_are_those_of_the_chosen(tiny: Dataset, loss: str) -> None:
    """As if the other negatives had no weight; with all of them, as without the setting.

    A row's own item, which has weight in softmax-logq, stays beside the chosen ones.
    """
    config = configure(loss=loss)
    made = make_sampler(tiny.graph, config, Streams(0))
    batch = made.assemble(made.draw(0, 1)[0])
    rng = np.random.default_rng(0)
    users, items = rng.normal(size=(32, 5)), rng.normal(size=(len(batch.items), 5))
    dot = make_interaction(config)

    def value(users: jax.Array, items: jax.Array, weight: Any, hardest: int) -> jax.Array:
        own = batch._replace(negatives=batch.negatives._replace(weight=weight))
        return batch_link_loss(
            users, items, own, dot, make_loss(config), config.lambda_, hardest=hardest
        )

    weight = batch.negatives.weight.copy()
    scores = np.where(weight > 0, users.astype(np.float32) @ items.T.astype(np.float32), -np.inf)
    own = np.arange(32), batch.pos_item
    scores[own] = -np.inf
    easy = np.argsort(-scores, axis=1)[:, 4:]
    chosen = weight.copy()
    np.put_along_axis(chosen, easy, 0, axis=1)
    chosen[own] = weight[own]
    assert (chosen[own] > 0).all() == (loss == "softmax-logq")
    call = jax.jit(jax.value_and_grad(value, argnums=(0, 1)), static_argnums=3)
    for one, other in (
        (call(users, items, weight, 4), call(users, items, chosen, 0)),
        (call(users, items, weight, 99), call(users, items, weight, 0)),
    ):
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_what_cannot_be_chosen_is_refused(tiny: Dataset) -> None:
    with pytest.raises(UsageError, match="meets 31 items, so there is nothing to choose"):
        make_sampler(tiny.graph, configure(hardest=31), Streams(0))
    make_sampler(tiny.graph, configure(sampler="xbm", memory=16, hardest=46), Streams(0))
    with pytest.raises(UsageError, match="meets 47 items, so there is nothing to choose"):
        make_sampler(tiny.graph, configure(sampler="xbm", memory=16, hardest=47), Streams(0))
    with pytest.raises(UsageError, match="hardest gives samplers .* another objective"):
        Question({"dataset": "tiny", "hardest": 4}, "loss")
    with pytest.raises(UsageError, match="mined gives samplers .* another objective"):
        Question({"dataset": "tiny", "mined": "200"}, "loss")
    assert Question({"dataset": "tiny", "mined": "off"}, "loss").target == "loss"
    assert Question({"dataset": "tiny", "hardest": 4}, target="recall").base.hardest == 4
    assert digest(configure(hardest="all")) == digest(configure(hardest=0))
    assert digest(configure()) != digest(configure(hardest=0))


@pytest.mark.long
def test_the_audit_says_that_it_is_biased_on_purpose(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the bias as measured, and no failure."""
    monkeypatch.setattr("ncfbench.auditing.conformance.SUMMED_LINKS", 3200)
    monkeypatch.setattr("ncfbench.auditing.gradient_audit.TIMING_ROUNDS", 1)
    settings = {"dataset": "tiny", "encoder": "mf", "dimension": 4, "batch_size": 32, "hardest": 2}
    chosen = {"samplers": ["ns"], "losses": ["sg"], "noises": ["unigram"]}
    record = audit_samplers(batches=96, warmup=2, data_dir=data_dir, **chosen, **settings)
    assert record.failures == []
    assert {(row["verdict"], row["shown_by"]) for row in record.audit} == {("biased", "declared")}
    assert all(row["bias"] > 0.3 for row in record.audit)
    expectation = record.conformance[-1]
    assert expectation["result"] == "declared"
    assert "only the 2 negatives of the highest scores count" in expectation["detail"]
