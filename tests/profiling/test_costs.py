"""The cost model: unit costs from known laws, counts by the paper's symbols; and its calibration by
counts between the samplers', and batches that have them.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.training import Trial

from ncfbench.catalog import find_sampler
from ncfbench.config import complete
from ncfbench.models.towers import DeviceContent
from ncfbench.profiling import measure
from ncfbench.profiling.batches import BatchMaker, calibration_points, spaced_sizes
from ncfbench.profiling.costs import AXES, PARTS, Costs, Counts, labels, predict_full
from ncfbench.profiling.measure import Steps, timed
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
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


WEIGHTS = dict(zip(AXES, (1e-6, 3e-5, 2e-7, 5e-8), strict=True))
STEPS = list(labels(calibration_points([IID, STRAT_NS], complete(SMALL))))


def law(counts):
    return 1e-3 + sum(WEIGHTS[axis] * counts.on(axis) for axis in AXES)


def test_steps_of_a_calibration_determine_all_costs():
    """Whatever samplers are profiled: as many independent steps as unknown costs."""
    for counts, more in (([IID], {}), ([STRAT_NS], {}), ([IID, STRAT_NS], {"negatives": 1})):
        steps = list(labels(calibration_points(counts, complete(SMALL | more))))
        costs = Costs.fit(steps, [*map(law, steps)])
        assert costs.fixed == pytest.approx(1e-3, rel=1e-6)
        assert costs.units == pytest.approx(WEIGHTS, rel=1e-6)
    parts = costs.parts(IID)
    assert tuple(parts) == PARTS
    expected = {"users": 160e-6, "items": 150 * 3e-5, "interactions": 160 * 2e-7, "fixed": 1e-3}
    assert parts == pytest.approx(expected)
    assert costs.parts(STRAT_NS)["interactions"] == pytest.approx(32 * 13 * 5e-8)


@given(st.lists(st.floats(1e-3, 1), min_size=len(STEPS), max_size=len(STEPS)))
def test_no_cost_is_negative(seconds):
    costs = Costs.fit(STEPS, seconds)
    parts = (costs.parts(counts).values() for counts in (IID, STRAT_NS))
    assert min(costs.fixed, *costs.units.values(), *map(min, parts)) >= 0


def test_noise_of_steps_cancels():
    rng = np.random.default_rng(0)
    noisy = [law(counts) * rng.uniform(0.97, 1.03) for counts in STEPS]
    total = sum(Costs.fit(STEPS, noisy).parts(IID).values())
    assert total == pytest.approx(law(IID), rel=0.05)


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


@pytest.mark.parametrize(
    ("sampler", "strata", "users", "items", "negatives"),
    [
        ("iid", "item", 384, 384, 320),
        ("neg", "item", 64, 384, 320),
        ("strat", "item", 384, 16, 320),
        ("strat", "user", 16, 384, 320),
        ("ns", "item", 64, 64, 64 * 63),
        ("strat-ns", "item", 64, 16, 64 * 15),
        ("strat-ns", "user", 16, 64, 64 * 60),
        ("mixed-ns", "item", 64, 128, 64 * 127),
    ],
)
def test_formulas_count_what_batches_hold(tiny, sampler, strata, users, items, negatives):
    """For b = 64 (and k' = 64), k = 5, s = 4."""
    shared = {"batch_size": 64, "negatives": 5, "stratum_size": 4}
    config = complete({"sampler": sampler, "strata": strata} | shared)
    instance = make_sampler(tiny.graph, config, Streams(0))
    assert instance.claims().nominal == (users, items, negatives)
    counts = Counts.of(next(instance.batches(0, 0)))
    assert counts.kind == find_sampler(sampler).symbols[-1]
    if sampler in ("iid", "neg"):
        assert counts.interactions == 64 * 6


def test_full_iterations_by_hand():
    assert predict_full(2.0, 0.5, accelerator=False) == 2.5
    assert predict_full(2.0, 0.5, accelerator=True) == 2.0
    assert predict_full(2.0, 3.0, accelerator=True) == 3.0
