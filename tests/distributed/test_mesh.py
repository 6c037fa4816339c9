"""A step over several devices, simulated on a CPU: the numbers of one device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from devices import assert_same_curve, on_devices, train
from processes import SMALL
from stopping import StopAt
from trial import Trial

from ncfbench.auditing.gradients import flat
from ncfbench.catalog import SAMPLERS
from ncfbench.config import complete
from ncfbench.data.store import Dataset
from ncfbench.models.dropout import Dropout
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.training import session
from ncfbench.training.probe import Probe
from ncfbench.training.recall import RecallEvaluator

CASES: list[dict[str, Any]] = [
    *(
        {"sampler": name, "encoder": "mf", "devices": 8}
        for name in SAMPLERS
        if name not in ("ns", "mixed-ns")
    ),
    {"sampler": "ns", "encoder": "bow", "devices": 4, "item_block": 6},
    {"sampler": "strat-ns", "encoder": "bow", "devices": 2, "word_dimension": 100},
    {"sampler": "ns", "encoder": "cnn", "devices": 8},
    {"sampler": "strat-ns", "encoder": "lstm", "devices": 2, "loss": "softmax"},
    {"sampler": "iid", "encoder": "cnn", "devices": 8},
    {"sampler": "strat", "strata": "user", "encoder": "mf", "devices": 4, "loss": "hinge"},
    {"sampler": "neg", "encoder": "mf", "devices": 8, "shard_tables": True, "loss": "log"},
    {"sampler": "strat-ns", "encoder": "cnn", "devices": 8, "shard_tables": True},
    # Tables are padded: 7 does not divide the users.
    {"sampler": "ns", "encoder": "mf", "devices": 7, "shard_tables": True, "batch_size": 63},
    {
        "sampler": "neg",
        "encoder": "bow",
        "devices": 8,
        "shard_tables": True,
        "coupling": "regularised",
    },
]


@pytest.mark.long_cases(r"(?!ns-bow|ns-mf-7)")
@pytest.mark.parametrize("settings", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_loss_and_gradient_equal_one_device(tiny: Dataset, settings: dict[str, Any]) -> None:
    value, gradient, rows = on_devices(tiny, complete(SMALL | settings))
    shares = settings["devices"] if settings.get("shard_tables") else 1
    assert rows == -(-tiny.n_users // shares)
    alone = {
        name: setting
        for name, setting in settings.items()
        if name not in ("devices", "shard_tables")
    }
    expected, whole, _ = on_devices(tiny, complete(SMALL | alone))
    assert value == pytest.approx(expected, rel=1e-5)
    assert np.linalg.norm(gradient - whole) < 1e-5 * np.linalg.norm(whole)


@pytest.mark.long_cases(r"strat-ns")
@pytest.mark.parametrize(("sampler", "shard_tables"), [("strat-ns", False), ("mixed-ns", True)])
def test_local_sharing_equals_its_batch_on_one_device(
    tiny: Dataset, sampler: str, shard_tables: bool
) -> None:
    """The weights of the whole batch, which the audit checks, against the shards, which are
    trained.
    """
    small = SMALL | {"encoder": "mf", "sampler": sampler}
    config = complete(small | {"share": "local", "devices": 4, "shard_tables": shard_tables})
    value, gradient, _ = on_devices(tiny, config)
    made = make_sampler(tiny.graph, config, Streams(0))
    batch, dropout = made.assemble(made.draw(2, 1)[0]), Dropout(jnp.uint32(0), jnp.uint32(2))
    expected, whole = Trial(tiny, small).gradient(batch, dropout)
    assert value == pytest.approx(expected, rel=1e-5)
    assert np.linalg.norm(gradient - flat(whole)) < 1e-5 * np.linalg.norm(flat(whole))


@pytest.mark.parametrize(
    ("stops", "last", "small"),
    [
        ([(5, 1, False)], (2, True), {"encoder": "mf", "epochs": 1}),
        pytest.param(
            [(5, 8, True), (20, 2, False)],
            (4, False),
            {"iterations_per_dispatch": 4},
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_run_continues_on_other_devices(
    data_dir: Path,
    tmp_path: Path,
    stops: list[tuple[int, int, bool]],
    last: tuple[int, bool],
    small: dict[str, Any],
) -> None:
    """Interrupted at iterations on a number of devices, with tables by row or not: the curve of
    one device, in the one folder.
    """
    whole = train(data_dir, tmp_path / "whole", **small)
    for number, (stop, devices, tables) in enumerate(stops):
        more = small | {"devices": devices, "shard_tables": tables}
        with pytest.raises(KeyboardInterrupt):
            train(data_dir, tmp_path / "cut", resume=number > 0, progress=StopAt(stop), **more)
    devices, tables = last
    more = small | {"devices": devices, "shard_tables": tables}
    record = train(data_dir, tmp_path / "cut", resume=True, **more)
    assert len(list((tmp_path / "cut").iterdir())) == 1
    assert_same_curve(record, whole)
    assert record.environment["key"] != whole.environment["key"], "its times are others"
    mesh = record.environment["mesh"]
    assert (mesh["devices"], mesh["shard_tables"], mesh["simulated"]) == (devices, tables, True)
    begun = json.loads((record.folder / "config.json").read_text())["config"]
    assert (begun["devices"], record.config.devices) == (stops[0][1], devices)
    per_dispatch = small.get("iterations_per_dispatch", 1)
    assert record.environment["iterations_per_dispatch"] == per_dispatch


def test_sharded_tables_give_one_probe_and_recall(
    tiny: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gathered first, as on a CPU; and by all devices together, as on others."""
    trial = Trial(tiny, SMALL | {"sampler": "ns", "devices": 8, "shard_tables": True})
    layout, embedder = trial.trainer.layout, trial.embedder
    evaluator = RecallEvaluator(tiny, "test", embedder)
    looks = (
        Probe(tiny.graph, trial.config, embedder),
        lambda parameters: evaluator(parameters).figures,
    )
    gathered = [look(layout.to_one_device(trial.parameters)) for look in looks]
    monkeypatch.setattr(layout, "is_simulated", False)
    parameters = layout.to_one_device(trial.parameters)
    assert any(len(leaf.sharding.device_set) == 8 for leaf in jax.tree.leaves(parameters))
    assert [look(parameters) for look in looks] == [
        pytest.approx(gathered[0], rel=1e-6),
        pytest.approx(gathered[1]),
    ]


@pytest.mark.long
def test_bytes_sent_are_those_of_the_slots_at_the_end(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "plan_capacity", lambda graph, config: 16)
    record = train(data_dir, tmp_path, encoder="mf", devices=2, epochs=1)
    slots = record.environment["sent_bytes"]["vectors"] / (2 * 0.5 * 4 * SMALL["dimension"])
    assert slots >= max(row["item_slots"] or 0 for row in record.timing) > 16
