"""Plans that cannot work are refused before any folder is made: by plans, or once JAX is there."""

import dataclasses

import jax
import pytest
from support.training import SMALL

from ncfbench import prepare
from ncfbench.config import Locations, complete
from ncfbench.distributed.process_group import ProcessGroup
from ncfbench.errors import UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.runs.folder import held
from ncfbench.runs.plan import RunPlan
from ncfbench.storage import free_space, tables
from ncfbench.training import limits
from ncfbench.training.run import run, train
from ncfbench.training.step import Trainer, state_shapes


@pytest.mark.parametrize(("features", "is_read"), [("add", True), ("ignore", False)])
def test_a_run_keeps_the_seconds_of_derived_features(tmp_path, features, is_read):
    sizes = {"users": 60, "items": 90, "links": 900, "topics": 5, "vocabulary_size": 70}
    data = prepare("synthetic", name="x", data_dir=tmp_path, say=lambda text: None, lsa=4, **sizes)
    config = complete(SMALL | {"dataset": "x", "features": features})
    with held(tmp_path / "runs", config, data) as folder:
        document = tables.read_json(folder / "config.json")
    assert document.get("feature_seconds") == (data.feature_seconds if is_read else None)


def test_missing_devices_make_no_folder(data_dir, tmp_path):
    plan = RunPlan.of(complete(SMALL | {"devices": 16}), Locations(data_dir, tmp_path / "runs"))
    with pytest.raises(UsageError, match="JAX has 8 cpu here. Use --devices 8"):
        run(plan)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "more", [{}, {"optimizer": "row-adam"}, {"user_tower": "history"}, {"devices": 8}], ids=str
)
def test_a_state_that_exceeds_the_memory_is_refused(tiny, tmp_path, monkeypatch, more):
    """To the byte: state, gradients and content. A container's limit counts."""
    config = complete(SMALL | more)
    trainer, state = Trainer.create(config, tiny)
    devices = jax.devices() if config.devices > 1 else jax.devices()[:1]
    needed = max(
        sum(
            shard.data.nbytes
            for leaf in [*jax.tree.leaves(state), *jax.tree.leaves(state.parameters)]
            for shard in leaf.addressable_shards
            if shard.device == device
        )
        for device in devices
    )
    for path, leaf in jax.tree_util.tree_leaves_with_path(state.parameters):
        needed -= leaf.nbytes * (tuple(key.key for key in path) in trainer.optimizer.tables)
    needed += sum(array.nbytes for array in jax.tree.leaves(DeviceContent.of(tiny, [config])))
    monkeypatch.setattr(limits, "memory_limit", lambda: needed)
    limits.layout_for(config, tiny)
    monkeypatch.setattr(free_space, "CONTROL_GROUP", tmp_path)
    monkeypatch.setattr(limits, "memory_limit", free_space.memory_limit)
    limits.layout_for(config, tiny)
    (tmp_path / "memory.max").write_text(f"{needed - 1}\n")
    with pytest.raises(UsageError, match="Use a smaller --dimension"):
        limits.layout_for(config, tiny)


def test_shapes_need_no_memory(tiny):
    """A table of 2^31 numbers for the users is refused without making it."""
    huge = dataclasses.replace(complete(SMALL | {"encoder": "mf"}), dimension=2**31 // tiny.n_users)
    shapes = state_shapes(huge, tiny)
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes.parameters)) >= 2**31


def test_several_processes_need_the_command(data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(ProcessGroup, "current", lambda: ProcessGroup(index=1, count=2))
    with pytest.raises(UsageError, match="ncfbench run --coordinator"):
        train(data_dir=data_dir, runs_dir=tmp_path, **SMALL)
