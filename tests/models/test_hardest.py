"""Hard negatives: which they are, the gradient, the warm start, refusals, and what audits say."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from trial import Trial

from ncfbench.advice.question import Question
from ncfbench.auditing.audit import audit_samplers
from ncfbench.config import Locations, RunConfig, complete, digest
from ncfbench.data.store import Dataset
from ncfbench.errors import UsageError
from ncfbench.models.interaction import make_interaction
from ncfbench.models.losses import make_loss
from ncfbench.models.objective import ALL, Hardness, batch_link_loss
from ncfbench.profiling.profile import profile
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.sampling.batch import Batch, Listed
from ncfbench.training.plan import RunPlan


def configure(**more: Any) -> RunConfig:
    return complete({"sampler": "ns", "batch_size": 32, "hardest": 4} | more)


@pytest.mark.parametrize("margin", [0.0, 1.5])
@pytest.mark.parametrize("loss", ["sg", "hinge", "softmax", "softmax-logq"])
def test_loss_and_gradient_are_those_of_the_chosen(tiny: Dataset, loss: str, margin: float) -> None:
    """As if the other negatives had no weight; with all of them, as without the setting.

    A row's own item, which has weight in softmax-logq, stays beside the chosen ones. With a margin
    some rows have fewer than four to choose from.
    """
    config = configure(loss=loss)
    made = make_sampler(tiny.graph, config, Streams(0))
    batch = made.assemble(made.draw(0, 1)[0])
    rng = np.random.default_rng(0)
    users, items = rng.normal(size=(32, 5)), rng.normal(size=(len(batch.items), 5))
    dot = make_interaction(config)

    def value(users: jax.Array, items: jax.Array, weight: Any, hard: Hardness) -> jax.Array:
        own = batch._replace(negatives=batch.negatives._replace(weight=weight))
        rest = make_loss(config), config.lambda_
        return batch_link_loss(users, items, own, dot, *rest, hardness=hard)

    weight = batch.negatives.weight.copy()
    scores = np.where(weight > 0, users.astype(np.float32) @ items.T.astype(np.float32), -np.inf)
    own = np.arange(32), batch.pos_item
    limit = scores_of_links(users, items, batch) - margin if margin else np.inf
    scores[own] = -np.inf
    scores[scores >= limit] = -np.inf
    chosen = np.zeros_like(weight)
    for row, order in enumerate(np.argsort(-scores, axis=1)[:, :4]):
        for slot in order[np.isfinite(scores[row, order])]:
            chosen[row, slot] = weight[row, slot]
    counts = np.count_nonzero(chosen, axis=1)
    assert (counts.min() < 4) == bool(margin)
    assert counts.max() == 4
    chosen[own] = weight[own]
    assert (chosen[own] > 0).all() == (loss == "softmax-logq")
    call = jax.jit(jax.value_and_grad(value, argnums=(0, 1)), static_argnums=3)
    for one, other in (
        (call(users, items, weight, Hardness(4, margin)), call(users, items, chosen, ALL)),
        (call(users, items, weight, Hardness(99)), call(users, items, weight, ALL)),
    ):
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def scores_of_links(users: Any, items: Any, batch: Batch) -> Any:
    scores = np.einsum("bd,bd->b", users, items[batch.pos_item]).astype(np.float32)
    return scores[:, None]


@pytest.mark.parametrize("hardest", [0, 2])
def test_a_margin_leaves_out_listed_negatives(tiny: Dataset, hardest: int) -> None:
    """Drawn ones that score too high, by the definition of the loss."""
    config = configure(sampler="neg", loss="sg", negatives=5)
    made = make_sampler(tiny.graph, config, Streams(0))
    batch = made.assemble(made.draw(0, 1)[0])
    rng = np.random.default_rng(1)
    users, items = rng.normal(size=(32, 5)), rng.normal(size=(len(batch.items), 5))
    negatives = batch.negatives
    assert isinstance(negatives, Listed)
    scores = np.einsum("bd,bkd->bk", users, items[negatives.item])
    below = scores < scores_of_links(users, items, batch) - 0.5
    assert below.any()
    assert not below.all()
    if hardest:
        rank = np.argsort(np.argsort(-np.where(below & (negatives.weight > 0), scores, -np.inf)))
        below &= rank < hardest
    positive = np.log1p(np.exp(-scores_of_links(users, items, batch))).mean()
    terms = negatives.weight * np.log1p(np.exp(scores))
    assert config.lambda_ is not None
    expected = positive + config.lambda_ * terms[below].sum()
    dot, loss = make_interaction(config), make_loss(config)
    given = users, items, batch, dot, loss, config.lambda_
    found = partial(batch_link_loss, *given, hardness=Hardness(hardest, 0.5))
    assert float(found()) == pytest.approx(expected, rel=1e-5)
    whole = positive + config.lambda_ * terms.sum()
    assert float(found(is_hard=np.bool_(False))) == pytest.approx(whole, rel=1e-5)


def test_a_warm_start_trains_on_all_negatives_first(tiny: Dataset) -> None:
    """Three iterations are those without hard negatives to the last bit; the next has them."""
    small = {"encoder": "mf", "dimension": 6, "sampler": "ns", "batch_size": 32}
    curves = {}
    for name, own in {
        "all": {},
        "hard": {"hardest": 4, "positive_margin": 0.01},
        "warm": {"hardest": 4, "positive_margin": 0.01, "warm_start": 3},
    }.items():
        trial = Trial(tiny, small | own)
        state, losses = trial.state, []
        for number in range(6):
            state, loss = trial.trainer.step(state, trial.batch(number, 60), trial.content)
            losses.append(float(loss))
        curves[name] = losses
    assert curves["warm"][:3] == curves["all"][:3]
    assert curves["warm"][3] < curves["all"][3]
    assert curves["hard"][0] < curves["all"][0]


def test_what_nothing_begins_after_is_refused(tiny: Dataset) -> None:
    for given, words in (
        ({"hardest": 0, "warm_start": 9}, "--warm-start 9: nothing begins after it"),
        (
            {"hardest": 0, "positive_margin": 0.5},
            "--positive-margin 0.5 is for hard",
        ),
        ({"sampler": "neg", "warm_start": 9}, "nothing begins after it"),
        ({"sampler": "xbm", "hardest": 0, "positive_margin": 0.5}, "is for hard negatives"),
    ):
        with pytest.raises(UsageError, match=words):
            configure(**given)
    assert configure(sampler="xbm", hardest=0, warm_start=9).first_hard == 9
    idle = {"sampler": "neg", "hardest": 4, "positive_margin": 0.5, "warm_start": 9}
    assert complete(idle, ignore_unknown=True) == complete({"sampler": "neg"})
    off = configure(positive_margin="off", warm_start="off")
    assert digest(off) == digest(configure())
    long = configure(dataset="tiny", warm_start=900, epochs=1)
    with pytest.raises(UsageError, match="warm_start = 900: the run has .* Use --warm-start"):
        RunPlan.of(long, Locations(), dataset=tiny)
    with pytest.raises(UsageError, match="A profile measures what comes after a warm start"):
        profile(samplers=["ns"], hardest=4, warm_start=9)
    with pytest.raises(UsageError, match="An audit judges what comes after a warm start"):
        audit_samplers(samplers=["ns"], losses=["sg"], hardest=4, warm_start=9)


def test_what_cannot_be_chosen_is_refused(tiny: Dataset) -> None:
    with pytest.raises(UsageError, match="meets 31 items, so there is nothing to choose"):
        make_sampler(tiny.graph, configure(hardest=31), Streams(0))
    make_sampler(tiny.graph, configure(sampler="xbm", memory=16, hardest=46), Streams(0))
    with pytest.raises(UsageError, match="meets 47 items, so there is nothing to choose"):
        make_sampler(tiny.graph, configure(sampler="xbm", memory=16, hardest=47), Streams(0))
    assert Question({"dataset": "tiny", "hardest": 4}).base.hardest == 4
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
