"""A kind of carry that the program does not know: step, loop and checkpoint take it whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trial import Trial

from ncfbench.config import complete
from ncfbench.data.store import Dataset
from ncfbench.sampling.batch import Batch
from ncfbench.training import carry
from ncfbench.training.checkpoint import Checkpoints
from ncfbench.training.loop import TimedLoop
from ncfbench.training.step import Trainer


class Counts(carry.Carry):
    """How often each item was in a batch's links; the last batch's negatives count for nothing."""

    def initial(self) -> Any:
        return jnp.zeros(self.graph.n_items, jnp.int32)

    def inputs(self, carry: Any, batch: Batch) -> tuple[Batch, jax.Array | None]:
        weight = batch.negatives.weight * (carry.sum() < 3 * self.config.batch_size)
        return batch._replace(negatives=batch.negatives._replace(weight=weight)), None

    def after_step(self, carry: Any, batch: Batch, items_VxD: jax.Array | None) -> Any:
        return carry.at[batch.items[batch.pos_item]].add(1)


def test_a_further_kind_is_one_class(
    tiny: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small: dict[str, Any] = {"sampler": "ns", "encoder": "mf", "dimension": 6, "loss": "mse"}
    config = complete(small | {"batch_size": 32, "item_dropout": 0.0})
    plain, _ = Trainer.create(config, tiny)
    monkeypatch.setattr("ncfbench.training.step.make_carry", Counts)
    trial = Trial(tiny, config)
    trainer, sampler = trial.trainer, trial.sampler
    draws = sampler.draw(0, 4)
    with TimedLoop(trainer, trial.state, trial.content, sampler, 40) as loop:
        loop.full_block(3)
        own = jax.tree.map(jnp.copy, loop.state.parameters)
        (last,) = loop.full_block(1)
        state = loop.state
    links = np.concatenate([draw.links for draw in draws])
    counts = np.bincount(tiny.graph.link_item[links], minlength=tiny.n_items)
    assert state.carry.tolist() == counts.tolist()
    batch = sampler.assemble(draws[-1], 40)
    silent = batch.negatives._replace(weight=0 * batch.negatives.weight)
    batch = batch._replace(negatives=silent)
    value, _ = jax.jit(plain.gradient)(own, batch, trial.content, None)
    assert last == pytest.approx(float(value), rel=1e-6)
    checkpoints = Checkpoints(tmp_path / "c")
    checkpoints.save(trainer.to_host(state), {"item_slots": 40, "pending_losses": []})
    found = checkpoints.restore(trainer.shapes)
    assert found is not None
    assert found[0].carry.tolist() == counts.tolist()
