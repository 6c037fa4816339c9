"""Whole models: encoders and user towers together, on devices, audited, resumed."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from support.processes import SMALL, on_devices
from support.tiny_bert import write_checkpoint
from support.training import BEST, CHECKPOINT_DIGEST, StopAt, Trial, recommend

from ncfbench.advice.search import Search
from ncfbench.advice.space import Space
from ncfbench.catalog import find_encoder
from ncfbench.config import Locations, complete
from ncfbench.data.assets.checkpoint import kept_path
from ncfbench.runs.plan import RunPlan
from ncfbench.storage import schemas, tables
from ncfbench.training import run as training
from ncfbench.training.checkpoint import Checkpoints

MODELS: dict[str, dict[str, Any]] = {
    "bow": {"sampler": "neg", "loss": "hinge"},
    "cnn": {},
    "lstm": {},
    "mf": {},
    "gru": {},
    "transformer": {},
    "mlp": {"user_tower": "history"},
    "bert": {"checkpoint": CHECKPOINT_DIGEST},
}
EVERY = pytest.mark.parametrize("encoder", MODELS)
OWN: dict[str, Any] = {"gru_units": 4, "mlp_units": 5, "user_units": 4, "feed_forward": 8}
OWN |= {"history_of": "both", "own_vector": True}


def model(encoder, **more):
    """Texts and dense features of items, where the encoder takes both."""
    settings = {"sampler": "strat-ns", "encoder": encoder} | MODELS[encoder]
    return complete(SMALL | OWN | settings | more)


@pytest.fixture(autouse=True, scope="module")
def _kept_checkpoint(featured):
    write_checkpoint(kept_path(featured.folder, CHECKPOINT_DIGEST), words=featured.n_words + 1)


@pytest.mark.long_cases(r"(?!mlp)")
@EVERY
def test_two_devices_give_the_gradient_of_one(featured, encoder):
    """Dropout on."""
    expected, whole = on_devices(featured, model(encoder))
    value, gradient = on_devices(featured, model(encoder, devices=2))
    assert value == pytest.approx(expected, rel=1e-5)
    assert np.linalg.norm(gradient - whole) < 1e-5 * np.linalg.norm(whole)


@pytest.mark.long_cases(r"(?!bow|mlp)")
@EVERY
def test_the_audit_has_the_gradient_of_the_step(featured, encoder):
    """The mean over batches, whose expectation is the objective's gradient by the weights alone."""
    trial = Trial(featured, model(encoder))
    trial.add_noise(0.1)
    trial.check_audit()


@pytest.mark.long
@EVERY
def test_an_interrupted_run_ends_the_same(featured, featured_dir, tmp_path, encoder):
    """Bit for bit; and it recommends what its own vectors score highest, if it has some."""
    config = model(encoder, epochs=1)
    whole = training.run(RunPlan.of(config, Locations(featured_dir, tmp_path / "whole")))
    cut = Locations(featured_dir, tmp_path / "cut")
    with pytest.raises(KeyboardInterrupt):
        training.run(RunPlan.of(config, cut), progress=StopAt(5))
    record = training.run(RunPlan.of(config, cut))
    for row, expected in zip(record.curve, whole.curve, strict=True):
        assert row | {"train_seconds": 0} == expected | {"train_seconds": 0}
    assert len(record.curve) == (2 if encoder == "bert" else 5)
    if not find_encoder(encoder).scores_cold_items:
        return

    exported = recommend(record.folder, count=3, data_dir=featured_dir)
    trial = Trial(featured, config)
    found = Checkpoints(record.folder / "checkpoints").restore(trial.trainer.shapes)
    assert found is not None
    parameters, embedder = found[0].parameters, trial.embedder
    users = embedder.users(parameters).scored[jnp.array([0, 1])]
    scores = np.asarray(users @ embedder.items(parameters, featured.items_of("test")).T)
    kinds = schemas.recommendations(False, False)
    table = tables.read_table(exported / BEST, kinds).to_pylist()
    for user in (0, 1):
        rows = [row for row in table if row["user"] == user]
        best = np.sort(scores[user])[::-1][:3]
        np.testing.assert_allclose([row["score"] for row in rows], best, rtol=1e-4, atol=1e-6)


def test_bert_is_advised(featured):
    fixed = {"dataset": "tiny", "checkpoint": CHECKPOINT_DIGEST, "dimension": 8}
    tried = {"encoder": ("bert",), "sampler": ("ns", "strat-ns"), "batch_size": (16,)}
    field = Search(Space.of(featured, fixed, tried), tried).first_field()
    assert "bert softmax ns" in [each.name for each in field]
