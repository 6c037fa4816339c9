"""A step over several devices, simulated on a CPU: the numbers of one device, and nothing sent but
what is said.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from devices import assert_same_curve, on_devices, train
from processes import SMALL
from stopping import StopAt

from ncfbench.audit.gradients import flat
from ncfbench.config import complete
from ncfbench.data.store import Dataset
from ncfbench.distributed.mesh import MeshLayout, make_layout
from ncfbench.errors import UsageError
from ncfbench.models.dropout import Dropout
from ncfbench.models.interaction import DotProduct
from ncfbench.models.towers import Content
from ncfbench.registry import SAMPLERS
from ncfbench.rng import Streams
from ncfbench.runs import folder as runs
from ncfbench.runs.folder import RunRecord
from ncfbench.sampling import make_sampler
from ncfbench.storage import locks
from ncfbench.sweeps.grid import read_status
from ncfbench.training import session
from ncfbench.training.inference import Embedder
from ncfbench.training.probe import Probe
from ncfbench.training.recall import RecallEvaluator
from ncfbench.training.step import Trainer

CASES: list[Any] = [
    *({"sampler": name, "encoder": "mf", "devices": 8} for name in SAMPLERS if name != "ns"),
    {"sampler": "ns", "encoder": "cnn", "devices": 8},
    pytest.param(
        {"sampler": "strat-ns", "encoder": "lstm", "devices": 2, "loss": "softmax"},
        marks=pytest.mark.long,
    ),
    pytest.param({"sampler": "iid", "encoder": "cnn", "devices": 8}, marks=pytest.mark.long),
    {"sampler": "strat", "strata": "user", "encoder": "mf", "devices": 4, "loss": "hinge"},
    {"sampler": "neg", "encoder": "mf", "devices": 8, "shard_tables": True, "loss": "log"},
    {"sampler": "strat-ns", "encoder": "cnn", "devices": 8, "shard_tables": True},
]


@pytest.mark.parametrize("settings", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_loss_and_gradient_are_those_of_one_device(tiny: Dataset, settings: dict[str, Any]) -> None:
    value, gradient, rows = on_devices(tiny, complete(SMALL | settings))
    assert rows == (tiny.n_users // 8 if settings.get("shard_tables") else tiny.n_users)
    alone = {
        name: setting
        for name, setting in settings.items()
        if name not in ("devices", "shard_tables")
    }
    expected, whole, _ = on_devices(tiny, complete(SMALL | alone))
    assert value == pytest.approx(expected, rel=1e-5)
    assert np.linalg.norm(gradient - whole) < 1e-5 * np.linalg.norm(whole)


@pytest.mark.parametrize(("sampler", "shard_tables"), [("strat-ns", False), ("mixed-ns", True)])
def test_local_sharing_on_its_devices_is_its_batch_on_one(
    tiny: Dataset, sampler: str, shard_tables: bool
) -> None:
    """The weights of the whole batch, which the audit sees, against the parts, which are
    trained.
    """
    config = complete(
        SMALL
        | {
            "encoder": "mf",
            "sampler": sampler,
            "share": "local",
            "devices": 4,
            "shard_tables": shard_tables,
        }
    )
    value, gradient, _ = on_devices(tiny, config)
    trainer, state = Trainer.create(complete(SMALL | {"encoder": "mf", "sampler": sampler}), tiny)
    made = make_sampler(tiny.graph, config, Streams(0))
    batch, dropout = made.assemble(made.draw(2, 1)[0]), Dropout(jnp.uint32(0), jnp.uint32(2))
    expected, whole = jax.jit(trainer.gradient)(state.parameters, batch, Content.of(tiny), dropout)
    assert value == pytest.approx(float(expected), rel=1e-5)
    assert np.linalg.norm(gradient - flat(whole)) < 1e-5 * np.linalg.norm(flat(whole))


@pytest.fixture(scope="module")
def one_device(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    return train(data_dir, tmp_path_factory.mktemp("one"))


@pytest.mark.long
def test_a_run_goes_on_with_another_number_of_devices(
    data_dir: Path, tmp_path: Path, one_device: RunRecord
) -> None:
    """Eight with tables by row, then two, then four: the curve of one, in the one folder. Several
    iterations a dispatch too.
    """
    for place, (stop, more) in enumerate(
        ((5, {"devices": 8, "shard_tables": True}), (20, {"devices": 2}))
    ):
        with pytest.raises(KeyboardInterrupt):
            train(data_dir, tmp_path, resume=place > 0, progress=StopAt(stop), **more)
    record = train(data_dir, tmp_path, resume=True, devices=4)
    assert len(list(tmp_path.iterdir())) == 1
    assert_same_curve(record, one_device)
    mesh = record.environment["mesh"]
    assert (mesh["devices"], mesh["shard_tables"], mesh["simulated"]) == (4, False, True)
    assert sum(record.environment["sent_bytes"].values()) > 0
    assert record.environment["key"] != one_device.environment["key"], (
        "times of more devices are others"
    )
    assert json.loads((record.folder / "config.json").read_text())["config"]["devices"] == 8, (
        "as it was begun"
    )
    assert record.config.devices == 4, "as its times are"
    settings, found = SMALL | {"epochs": 2, "sampler": "strat-ns"}, record.data_fingerprint
    assert runs.find(tmp_path, complete(settings | {"devices": 4}), found) == record.folder
    for elsewhere in ({"devices": 8, "shard_tables": True}, {"devices": 2}):
        assert runs.find(tmp_path, complete(settings | elsewhere), found) is None, (
            "finished on others: other times"
        )
    assert (
        runs.find(tmp_path, complete(settings | {"devices": 2}), found, anywhere=True)
        == record.folder
    )
    assert runs.create(tmp_path, complete(settings | {"devices": 2}), found) != record.folder, (
        "one that was killed at once"
    )
    assert (
        runs.find(tmp_path, complete(settings | {"devices": 2}), found, anywhere=True)
        == record.folder
    )


def test_a_run_that_another_process_trains_on_other_devices_is_left_to_it(
    data_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(data_dir, tmp_path, encoder="mf", progress=StopAt(5))
    (folder,) = tmp_path.iterdir()
    config, fingerprint = runs.read_config(folder / "config.json")
    elsewhere = dataclasses.replace(config, devices=2)
    assert runs.find(tmp_path, elsewhere, fingerprint) == folder
    with locks.held(folder, "writing"):
        assert runs.find(tmp_path, elsewhere, fingerprint) is None
        assert runs.find(tmp_path, config, fingerprint) == folder, "to say that it is trained now"
    with pytest.raises(KeyboardInterrupt):
        train(data_dir, tmp_path, encoder="mf", resume=True, devices=2, progress=StopAt(9))
    states = read_status(tmp_path, [config, elsewhere], {config.dataset: fingerprint}).states
    assert (states[config].folder, states[elsewhere].folder) == (
        None,
        folder,
    ), "it is a sweep's cell of two devices now"
    assert runs.find(tmp_path, config, fingerprint) == folder
    elsewhere = dataclasses.replace(config, devices=4)
    assert runs.find(tmp_path, elsewhere, fingerprint) == folder
    shutil.rmtree(folder / "checkpoints")
    assert runs.find(tmp_path, elsewhere, fingerprint) is None, "there is nothing to go on from"


def test_what_is_computed_from_tables_that_are_spread(
    tiny: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probe and recall: gathered first, as on a CPU; and by all devices together, as on others."""
    config = complete(SMALL | {"sampler": "ns", "devices": 8, "shard_tables": True})
    trainer, state = Trainer.create(config, tiny)
    embedder = Embedder(trainer.towers, Content.of(tiny))
    looks = (
        Probe(tiny.graph, config, embedder),
        RecallEvaluator(tiny, "test", embedder, DotProduct()),
    )
    gathered = [look(trainer.layout.to_one_device(state.parameters)) for look in looks]
    monkeypatch.setattr(MeshLayout, "is_simulated", False)
    parameters = trainer.layout.to_one_device(state.parameters)
    assert len(parameters["user_tower"]["vectors"]["embedding"].sharding.device_set) == 8
    assert [look(parameters) for look in looks] == [
        pytest.approx(gathered[0], rel=1e-6),
        pytest.approx(gathered[1]),
    ]


def test_several_iterations_in_one_dispatch(
    data_dir: Path, tmp_path: Path, one_device: RunRecord
) -> None:
    record = train(data_dir, tmp_path, devices=2, iterations_per_dispatch=4)
    assert_same_curve(record, one_device)


def test_what_is_sent_is_that_of_the_slots_at_the_end(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "plan_capacity", lambda graph, config: 16)
    record = train(data_dir, tmp_path, encoder="mf", devices=2, epochs=1)
    slots = record.environment["sent_bytes"]["vectors"] / (2 * 0.5 * 4 * SMALL["dimension"])
    assert slots >= max(row["item_slots"] or 0 for row in record.timing) > 16


def test_more_devices_than_there_are_is_said(tiny: Dataset) -> None:
    with pytest.raises(UsageError, match="JAX has 8 cpu here. Use --devices 8"):
        make_layout(complete(SMALL | {"sampler": "ns", "devices": 16}))
