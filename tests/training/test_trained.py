"""Parameters that a run hands out: of which epoch, and from which checkpoint."""

import json
import sys

import pyarrow.parquet as pq
import pytest
from support.training import SMALL, Said, ends_of, interrupt, recall_of_lists, recommend, train

from ncfbench import prepare
from ncfbench.errors import DataError
from ncfbench.runs import folder as runs
from ncfbench.training.export import BEST

SETTINGS = SMALL | {"epochs": 2, "learning_rate": 0.03}


@pytest.mark.long
def test_a_run_on_two_devices(data_dir, tiny, tmp_path):
    record = train(data_dir, tmp_path, **SETTINGS | {"devices": 2})
    recall = recall_of_lists(recommend(record.folder, data_dir=data_dir), tiny)
    assert recall == pytest.approx(record.curve[-1]["test_recall_at_50"], abs=1e-12)


def test_the_reported_epoch_is_recommended_from(data_dir, tmp_path, tiny, monkeypatch):
    """An earlier one than the last, of a run that is interrupted after it and trained on."""
    monkeypatch.setattr("ncfbench.runs.reported.MEASURE", "validation_recall_at_10")
    monkeypatch.setattr("ncfbench.training.train.CHECKPOINT_SECONDS", 0.0)
    more = SETTINGS | {"epochs": 5, "learning_rate": 0.3, "loss": "mse"}
    interrupt(data_dir, tmp_path, ends_of(tiny, 5)[3] + 2, **more)
    record = train(data_dir, tmp_path, **more)
    at = record.reported_iteration
    assert at in ends_of(tiny, 5)[:3], "the data no longer peak early: choose other settings"
    folder = recommend(record.folder, count=10, data_dir=data_dir)
    recall, table = recall_of_lists(folder, tiny), pq.read_table(folder / BEST)
    assert recall == pytest.approx(record.summary["test_recall_at_10"], abs=1e-12)
    assert table.schema.metadata[b"iteration"] == str(at).encode()
    # A torn last checkpoint does not matter: an older one has these parameters too.
    last = record.folder / "checkpoints" / f"{ends_of(tiny, 5)[-1]}.npz"
    last.write_bytes(last.read_bytes()[:-99])
    recommend(record.folder, count=10, data_dir=data_dir)
    assert pq.read_table(folder / BEST).equals(table)


def test_without_validation_a_cut_epoch_is_left_out(tmp_path, tiny_options):
    """The last whole epoch is reported, and its parameters are handed out, not those of the cut."""
    options = vars(tiny_options) | {"validation_fraction": 0.0}
    tiny = prepare("synthetic", name="tiny", data_dir=tmp_path, say=lambda text: None, **options)
    assert not tiny.holds_out("validation")
    more, runs_dir = SETTINGS | {"epochs": 4}, tmp_path / "runs"
    folder = interrupt(tmp_path, runs_dir, ends_of(tiny, 4)[1] + 3, **more)
    record = runs.read(folder)
    assert record.summary["reported_epoch"] == 2 < record.summary["epochs"]
    recall = recall_of_lists(recommend(folder, data_dir=tmp_path), tiny)
    assert recall == pytest.approx(record.summary["test_recall_at_50"], abs=1e-12)
    meta = json.loads((folder / "vectors/meta.json").read_text())
    assert (meta["iteration"], meta["parameters"]) == (ends_of(tiny, 4)[1], "of the reported epoch")


def test_parameters_without_recall_are_said_to_be(data_dir, tmp_path):
    """Cut in the first epoch, nothing was evaluated: output and metadata say so. A torn end too."""
    folder = interrupt(data_dir, tmp_path, 7, **SETTINGS)
    said = Said()
    lists = pq.read_table(recommend(folder, data_dir=data_dir, said=said) / BEST)
    assert said.texts[0].endswith("its last iteration, 7, and no recall belongs to them.")
    assert lists.schema.metadata[b"parameters"] == b"of the last iteration, never evaluated"
    assert lists.schema.metadata[b"iteration"] == b"7"
    last = folder / "checkpoints" / "7.npz"
    last.write_bytes(last.read_bytes()[:-99])
    with pytest.raises(DataError, match="final checkpoint .* is missing"):
        recommend(folder, data_dir=data_dir, said=said)
    assert said.texts[-1] == f"Checkpoint 7 is damaged, and is skipped: {last}."
    assert last.exists()


EDITED = """
import jax.numpy as jnp
from flax import nnx
from ncfbench.catalog import EncoderInfo

names = ["a", "b"]


class Twins(nnx.Module):
    info = EncoderInfo(uses=())

    def __init__(self, config, data, *, rngs):
        self.words = nnx.Embed(data.words + 1, config.dimension, rngs=rngs)
        for name in names:
            width = config.dimension
            setattr(self, name, nnx.Linear(width, width, use_bias=False, rngs=rngs))

    def __call__(self, texts):
        vectors = (self.words(texts.tokens) * texts.present[..., None]).sum(axis=1)
        for name in names:
            vectors = jnp.tanh(getattr(self, name)(vectors))
        return vectors
"""


def test_an_edited_encoder_is_refused(data_dir, tmp_path, monkeypatch):
    """By all that read a checkpoint; all works once the edit is undone."""
    (tmp_path / "edited_twins.py").write_text(EDITED)
    monkeypatch.syspath_prepend(tmp_path)
    more = SETTINGS | {"encoder": "edited_twins:Twins"}
    cut = interrupt(data_dir, tmp_path / "cut", 30, **more)
    whole = train(data_dir, tmp_path / "whole", **more).folder
    expected = pq.read_table(recommend(whole, data_dir=data_dir) / BEST)
    monkeypatch.setattr(sys.modules["edited_twins"], "names", ["a", "z"])
    for reading in (
        lambda: recommend(whole, data_dir=data_dir),
        lambda: recommend(cut, data_dir=data_dir),
        lambda: train(data_dir, tmp_path / "cut", **more),
    ):
        with pytest.raises(DataError, match=r"has no \.parameters\['encoder'\]\['z'\]"):
            reading()
    monkeypatch.setattr(sys.modules["edited_twins"], "names", ["a", "b"])
    train(data_dir, tmp_path / "cut", **more)
    for folder in (whole, cut):
        assert pq.read_table(recommend(folder, data_dir=data_dir) / BEST).equals(expected)
