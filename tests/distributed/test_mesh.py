"""A step over several devices, simulated on a CPU: the numbers of one device."""

import numpy as np
import pytest
from support.processes import SMALL, assert_same_curve, on_devices, train
from support.training import StopAt, Trial

from ncfbench.catalog import SAMPLERS
from ncfbench.config import complete

CASES = [
    *({"sampler": name, "devices": 8} for name in SAMPLERS if name not in ("ns", "mixed-ns")),
    {"sampler": "ns", "encoder": "bow", "devices": 4, "item_block": 6},
    {"sampler": "strat-ns", "encoder": "bow", "devices": 2, "word_dimension": 100},
    {"sampler": "strat", "strata": "user", "devices": 4, "loss": "hinge"},
    # Slots are padded: 7 does not divide the items.
    {"sampler": "ns", "devices": 7, "batch_size": 63},
    {"sampler": "neg", "encoder": "bow", "devices": 8, "coupling": "regularised"},
    {"sampler": "neg", "encoder": "bow", "devices": 4, "optimizer": "row-adam"},
]


@pytest.mark.long_cases(r"(?!ns-bow|ns-7)")
@pytest.mark.parametrize("settings", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_loss_and_gradient_equal_one_device(tiny, settings):
    settings = SMALL | {"encoder": "mf"} | settings
    value, gradient = on_devices(tiny, complete(settings))
    expected, whole = on_devices(tiny, complete(settings | {"devices": 1}))
    assert value == pytest.approx(expected, rel=1e-5)
    assert np.linalg.norm(gradient - whole) < 1e-5 * np.linalg.norm(whole)


@pytest.mark.parametrize(
    ("devices", "small"),
    [(2, {"encoder": "mf", "epochs": 1}), pytest.param(4, {}, marks=pytest.mark.long)],
)
def test_a_run_continues_on_its_devices(data_dir, tmp_path, devices, small):
    """Interrupted at an iteration: the curve of one device, in one folder."""
    whole = train(data_dir, tmp_path / "whole", **small)
    more = small | {"devices": devices}
    with pytest.raises(KeyboardInterrupt):
        train(data_dir, tmp_path / "cut", progress=StopAt(5), **more)
    record = train(data_dir, tmp_path / "cut", **more)
    assert len(list((tmp_path / "cut").iterdir())) == 1
    assert_same_curve(record, whole)
    assert record.environment["key"] != whole.environment["key"], "its times are others"
    mesh = record.environment["mesh"]
    assert (mesh["devices"], mesh["simulated"]) == (devices, True)


def test_a_compiled_step_divides_the_work(tiny):
    """Each device encodes a part of the items and scores a part of the rows."""
    settings = SMALL | {"sampler": "ns", "encoder": "cnn", "batch_size": 64}
    flops = []
    for devices in (1, 4):
        trial = Trial(tiny, settings | {"devices": devices})
        layout = trial.trainer.layout
        batch = layout.put(next(trial.sampler.batches(0, 64)))
        content = layout.replicate(trial.content)
        compiled = trial.trainer.trace(trial.state, batch, content).lower().compile()
        flops.append(compiled.cost_analysis()["flops"])
    assert flops[1] < 0.5 * flops[0]
