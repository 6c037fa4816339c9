"""Bytes that devices send: formulas against compiled programs, and the profile's table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compiled_bytes import count_bytes
from shortened import shorten
from trial import Trial

from ncfbench.data.store import Dataset
from ncfbench.distributed import collectives
from ncfbench.errors import UsageError
from ncfbench.profiling import profile as profiling
from ncfbench.profiling.tables import profile_tables, write
from ncfbench.sampling import plan_capacity
from ncfbench.sampling.batch import Batch
from ncfbench.storage import tables
from ncfbench.storage.schemas import PROFILE_TABLES
from ncfbench.training import optimizer as optimizers

SMALL: dict[str, Any] = {
    "dataset": "tiny",
    "batch_size": 64,
    "dimension": 8,
    "word_dimension": 6,
}


def compiled(dataset: Dataset, more: dict[str, Any]) -> tuple[Trial, str, Batch, int]:
    """A compiled step as text, its batch, and the batch's item slots."""
    trial = Trial(dataset, SMALL | more)
    layout, slots = trial.trainer.layout, plan_capacity(dataset.graph, trial.config)
    batch = layout.put(next(layout.shard(trial.sampler).batches(0, slots)))
    traced = trial.trainer.trace(trial.state, batch, layout.replicate(trial.content))
    return trial, traced.lower().compile().as_text(), batch, slots


@pytest.mark.parametrize(
    "more",
    [
        {"sampler": "neg", "encoder": "bow", "devices": 4},
        {"sampler": "strat-ns", "encoder": "mf", "devices": 4, "share": "local"},
        {"sampler": "ns", "encoder": "mf", "devices": 8, "shard_tables": True},
        {"sampler": "ns", "encoder": "bow", "devices": 4, "shard_tables": True},
    ],
    ids=("global", "local", "rows by item", "tables of words"),
)
def test_a_compiled_step_sends_what_formulas_say(
    tiny: Dataset, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors and never texts; locally nothing but gradients. To the byte."""
    trial, program, batch, slots = compiled(tiny, more)
    config, trainer = trial.config, trial.trainer
    words = tiny.tokens_IxL.shape[1]
    sent = trainer.layout.sent_bytes(
        trainer.shapes.parameters, len(batch.users), slots, words, config.share
    )
    texts = trainer.layout.sent_bytes(trainer.shapes.parameters, 0, slots, words, "texts")["texts"]
    assert texts == 4 * slots * (words + 1) * (config.devices - 1) / config.devices
    found = count_bytes(program, config.devices)
    assert sum(found.values()) == pytest.approx(sum(sent.values()), rel=1e-12)
    assert found["all-reduce"] == pytest.approx(sent["gradients"])
    if config.share == "local":
        assert found["all-gather"] == found["reduce-scatter"] == 0
    elif not config.shard_tables:
        assert found["all-gather"] == found["reduce-scatter"] == sent["vectors"] / 2
        assert f"[{slots},{words}]" not in program, "texts of all items stand on one device"
    if config.encoder != "mf" or config.share == "local":
        return
    # Through Gloo: parts are exchanged, and the bytes are the same.
    monkeypatch.setattr(collectives, "uses_gloo", lambda: True)
    _, program, _, _ = compiled(tiny, more)
    exchanged = count_bytes(program, config.devices)
    assert exchanged["reduce-scatter"] == 0
    assert exchanged["all-to-all"] == pytest.approx(found["reduce-scatter"])
    assert sum(exchanged.values()) == pytest.approx(sum(sent.values()), rel=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("encoder", ["mf", "bow"])
def test_rows_send_gradients_of_what_is_named(
    tiny: Dataset, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the ids, of which every device finds the same rows."""
    monkeypatch.setattr(optimizers, "FEW", dict.fromkeys(optimizers.FEW, 0))
    more = {"encoder": encoder, "devices": 4, "optimizer": "row-adam", "batch_size": 16}
    trial, program, batch, slots = compiled(tiny, {"sampler": "ns"} | more)
    sent = trial.trainer.sent_bytes(trial.sampler, slots, tiny, trial.config.share)
    users, items = len(batch.users), len(batch.items)
    assert sent["rows"] == 0.75 * 4 * (users + items)
    named = users + 1 + (items + 1 if encoder == "mf" else 0)
    if encoder == "mf":
        assert sent["gradients"] == 2 * 0.75 * 4 * (8 * named + 1)
    found = count_bytes(program, trial.config.devices)
    assert sum(found.values()) == pytest.approx(sum(sent.values()), rel=1e-12)


@pytest.mark.long
def test_a_profile_of_several_devices(
    tiny: Dataset, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With local sharing without iid, which shares nothing."""
    monkeypatch.setenv("NCFBENCH_CACHE_DIR", str(tmp_path))
    shorten(monkeypatch)
    small = SMALL | {"negatives": 1, "batch_size": 16}
    settings = small | {"encoder": "mf", "devices": 2, "share": "local", "data_dir": data_dir}
    record = profiling.profile(samplers=["iid", "ns"], rounds=3, **settings)
    (row,) = record.costmodel
    assert row["sampler"] == "ns"
    assert (row["devices"], row["share"], row["simulated"]) == (2, "local", True)
    assert row["measured_collectives_seconds"] > 0
    gradients = 2 * 0.5 * 4 * (8 * (tiny.n_users + tiny.n_items) + 1)
    assert row["gradient_sent_bytes"] == row["local_sent_bytes"] == gradients
    assert row["global_sent_bytes"] == gradients + 2 * 0.5 * 4 * 8 * row["item_slots"]
    assert (
        row["texts_sent_bytes"]
        == gradients + 0.5 * 4 * (tiny.tokens_IxL.shape[1] + 1) * row["item_slots"]
    )
    assert {sample["part"] for sample in record.profile} >= {"collectives"}
    write(tmp_path, record.tables)
    kept = {
        name: tables.read_rows(tmp_path / f"{name}.parquet", PROFILE_TABLES[name])
        for name in PROFILE_TABLES
    }
    notes = [note for table in profile_tables(kept) for note in table.notes]
    assert any("SIMULATED devices" in note for note in notes)
    with pytest.raises(UsageError, match="shard-tables"):
        profiling.profile(samplers=["ns"], devices=2, shard_tables=True, **SMALL)
