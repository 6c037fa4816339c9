"""Calibration: counts between the samplers', and batches that have them."""

import numpy as np
import pytest
from support.training import Trial

from ncfbench.config import complete
from ncfbench.models.towers import DeviceContent
from ncfbench.profiling import measure
from ncfbench.profiling.batches import BatchMaker, calibration_points, spaced_sizes
from ncfbench.profiling.costs import AXES, Costs, Counts, labels
from ncfbench.profiling.measure import Steps, timed
from ncfbench.sampling.batch import Listed, negative_ids
from ncfbench.training.step import Trainer

SMALL = {"dataset": "tiny", "encoder": "mf", "dimension": 8, "batch_size": 32, "negatives": 4}
IID = Counts(users=160, items=150, interactions=160, kind="vectors")
STRAT_NS = Counts(users=32, items=12, interactions=32 * 13, kind="matrix")


def test_sizes_lie_no_further_apart_than_four_times():
    assert spaced_sizes([184, 512, 4272, 92]) == [92, 184, 512, 1479, 4272]
    assert spaced_sizes([512, 5632, 512]) == [512, 1698, 5632]
    assert spaced_sizes([7]) == [7]


def test_one_count_changes_at_a_time():
    points = calibration_points([IID, STRAT_NS], complete(SMALL))
    assert tuple(points) == AXES
    base = Counts(users=32, items=12, interactions=160, kind="vectors")
    assert all(base in points[axis] for axis in AXES[:3])
    assert [each.users for each in points["users"]] == [32, 72, 160]
    assert [each.items for each in points["items"]] == [6, 12, 42, 150]
    assert [each.interactions for each in points["vectors"]] == [32 * 2, 32 * 5, 32 * 9]
    assert points["matrix"] == [Counts(32, size, 32 * (size + 1), "matrix") for size in (6, 12)]
    names = labels(points)
    assert len(names) == len(set(names.values())) == 1 + 2 + 3 + 2 + 2
    assert names[base] == ("step by items", 12)


def test_steps_of_a_calibration_determine_all_costs():
    """Whatever samplers are profiled: as many independent steps as unknown costs."""
    for counts, more in (([IID], {}), ([STRAT_NS], {}), ([IID, STRAT_NS], {"negatives": 1})):
        steps = list(labels(calibration_points(counts, complete(SMALL | more))))
        weights = {"users": 1e-6, "items": 3e-5, "vectors": 2e-7, "matrix": 5e-8}
        work = [sum(weights[axis] * each.on(axis) for axis in weights) for each in steps]
        costs = Costs.fit(steps, [1e-3 + seconds for seconds in work])
        assert costs.fixed == pytest.approx(1e-3, rel=1e-6)
        assert costs.units == pytest.approx(weights, rel=1e-6)


CONSTRUCTED = [Counts(*sizes, 160, "vectors") for sizes in ((32, 12), (8, 40), (100, 160))]


@pytest.mark.parametrize("counts", [*CONSTRUCTED, Counts(32, 20, 32 * 21, "matrix")])
def test_a_constructed_batch_has_its_counts(tiny, counts):
    batch = BatchMaker(tiny.graph, complete(SMALL)).batch(counts)
    assert Counts.of(batch) == counts
    assert np.isin(batch.items, tiny.graph.items_in_use).all()
    assert len(set(batch.items)) == min(counts.items, len(tiny.graph.items_in_use))
    users, items = negative_ids(batch)
    weights = batch.negatives.weight
    assert users.shape == items.shape == weights.shape
    assert weights.sum() == pytest.approx(1, rel=1e-5)
    if isinstance(batch.negatives, Listed):
        for slots, size in (
            ([batch.pos_user, batch.negatives.user], counts.users),
            ([batch.pos_item, batch.negatives.item], counts.items),
        ):
            named = np.concatenate([np.ravel(each) for each in slots])
            assert set(named) == set(range(size)), "every slot is named"


@pytest.mark.long
def test_slots_without_links_are_embedded_all_the_same(tiny):
    """Ten times the slots of the same links: ten times the operations of the convolution."""
    more = {"encoder": "cnn", "convolution": "plain", "sampler": "ns", "filters": 10}
    config = complete(SMALL | more)
    maker, content = BatchMaker(tiny.graph, config), DeviceContent.of(tiny)
    trainer, state = Trainer.create(config, tiny)
    flops = {}
    for items in (16, 160):
        batch = maker.batch(Counts(32, items, 160, "vectors"))
        batch.pos_item[:] = 0
        batch.negatives.item[:] = 1
        step = trainer.trace(state, trainer.layout.put(batch), content).lower().compile()
        flops[items] = step.cost_analysis()["flops"]
    convolution = 2 * tiny.tokens_IxL.shape[1] * 3 * 50 * 10
    assert flops[160] - flops[16] > 0.9 * 2 * 144 * convolution


def test_steps_train_with_one_state(tiny, monkeypatch):
    """Each call goes on from the state before; a long block has one more to warm up."""
    trial = Trial(tiny, SMALL | {"sampler": "ns"})
    steps = Steps(trial.trainer, trial.state, trial.content)
    maker = BatchMaker(tiny.graph, trial.config)
    batches = [maker.batch(IID) for _ in range(2)]
    for before in range(2):
        assert int(steps.state.iteration) == before
        steps.call(batches)()
    assert trial.trainer.traces == 1
    for seconds, calls in ((1e-9, 1), (1e9, 2000)):
        monkeypatch.setattr(measure, "BLOCK_SECONDS", seconds)
        done = []
        program = timed("step by items", 12, lambda done=done: done.append(1))
        assert len(done) == 2, "to compile, and to know its seconds"
        ((counted, _),) = program.block().values()
        assert (counted, len(done)) == (calls, 2 + calls + (calls > 1))
