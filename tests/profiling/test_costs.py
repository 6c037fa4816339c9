"""The cost model and its calibration, by known laws and the paper's symbols; and what a profile
measures.
"""

import re
import shlex
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli import check, invoke
from support.training import Trial, shorten

from ncfbench.catalog import find_sampler
from ncfbench.config import complete
from ncfbench.errors import DataError
from ncfbench.profiling import measure
from ncfbench.profiling import profile as profiling
from ncfbench.profiling.batches import BatchMaker, calibration_points, spaced_sizes
from ncfbench.profiling.costs import AXES, PARTS, Costs, Counts, labels, predict_full
from ncfbench.profiling.measure import Steps, timed
from ncfbench.profiling.tables import profile_tables, write
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.sampling.batch import Listed, negative_ids
from ncfbench.storage import schemas, tables

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


# The profile

PROFILED = {"encoder": "mf", "dimension": 8, "batch_size": 32}


@pytest.fixture(scope="module")
def record(data_dir, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NCFBENCH_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        shorten(patch)
        more = PROFILED | {"dataset": "tiny", "data_dir": data_dir}
        return profiling.profile(samplers=["strat-ns", "iid"], rounds=3, **more)


def test_what_a_profile_holds(record, tiny):
    assert [row["sampler"] for row in record.costmodel] == ["iid", "strat-ns"]
    assert len(repr(record)) < 100
    for row in record.costmodel:
        trial = Trial(tiny, PROFILED | {"sampler": row["sampler"]})
        counts = Counts.of(next(trial.batches()))
        held = [row[name] for name in ("user_slots", "item_slots", "interactions")]
        assert held == [counts.users, counts.items, counts.interactions]
        total = sum(row[f"predicted_{part}_seconds"] for part in PARTS)
        assert row["predicted_step_iteration_seconds"] == pytest.approx(total)
        ends = [row[f"{end}_full_speedup"] for end in ("lower", "measured", "upper")]
        assert ends == sorted(ends)
    assert record.costmodel[0]["measured_full_speedup"] == 1
    for row in record.unitcost:
        if row["part"] in AXES:
            assert len(row["sizes"]) == len(row["step_seconds"]) > 1
    assert {row["part"] for row in record.unitcost} == {*AXES, "fixed"}
    parts = {row["part"] for row in record.profile}
    steps = {"step", *(f"step by {axis}" for axis in AXES)}
    assert parts == {"full", "draw", "assemble", "transfer"} | steps
    assert {row["round"] for row in record.profile} == {0, 1, 2}
    assert all(row["seconds"] > 0 and row["calls"] >= 1 for row in record.profile)
    first, second = ([row["part"] for row in record.profile if row["round"] == n] for n in (0, 1))
    assert sorted(first) == sorted(second)
    assert first != second, "each round has an order of its own"


def test_tables_are_kept_by_settings(record, tmp_path):
    """A damaged table stops a write before the first file."""
    other = {
        name: [row | {"encoder": "cnn"} for row in rows] for name, rows in record.tables.items()
    }
    for profile in (record.tables, other, record.tables):
        write(tmp_path, profile)
    for name, schema in schemas.PROFILE_TABLES.items():
        rows = tables.read_rows(tmp_path / f"{name}.parquet", schema)
        assert len(rows) == 2 * len(record.tables[name])
        assert {row["encoder"] for row in rows} == {"cnn", "mf"}
    before = (tmp_path / "profile.parquet").read_bytes()
    (tmp_path / "unitcost.parquet").write_bytes(b"no table")
    with pytest.raises(DataError, match=r"unitcost\.parquet"):
        write(tmp_path, {name: rows[:1] for name, rows in other.items()})
    assert (tmp_path / "profile.parquet").read_bytes() == before


def test_other_settings_are_another_profile():
    digests = {
        profiling.settings_digest(complete(more))
        for more in ({}, {"negatives": 3}, {"stratum_size": 8}, {"convolution": "plain"})
    }
    assert len(digests) == 4
    assert profiling.settings_digest(complete({"sampler": "ns"})) in digests


def test_tables_name_settings_that_differ(record):
    config = complete({"encoder": "cnn", "convolution": "plain", "batch_size": 32, "sampler": "ns"})
    other = {"unusual_settings": profiling.unusual_words(config)}
    changed = {name: [row | other for row in rows] for name, rows in record.tables.items()}
    for profile, words in ((record.tables, "dimension=8"), (changed, "convolution=plain")):
        shown = profile_tables(profile)
        assert all(table.title.endswith(f"b=32, {words}") for table in shown)
        assert [row[0].text for row in shown[1].rows] == ["iid", "strat-ns"]


@pytest.mark.parametrize(
    ("seconds", "passes"), [(0.5, 4), (14.9, 3), (25.0, 2), (58.0, 1), (300.0, 1)]
)
def test_a_round_of_slow_steps_has_fewer_passes(seconds, passes):
    """As many as fit into a minute beside a part of 1 s, from 1 to 4."""
    blocks = []

    def timed(name, block_seconds):
        def block():
            blocks.append(name)
            return {name: (1, block_seconds)}

        return measure.Timed(1, None, block, block_seconds)

    both = [timed("step", seconds), timed("part", 1.0)]
    assert measure.plan_round(both) == (passes, passes * (seconds + 1))
    rows = measure.measure_round(0, both, passes)
    assert sorted(blocks) == ["part"] * passes + ["step"] * passes
    assert [row["part"] for row in rows] == blocks


@pytest.mark.parametrize(("seconds", "tried"), [(0.01, [1, 50]), (0.3, [1, 3]), (6.0, [1])])
def test_slow_iterations_are_timed_once(seconds, tried):
    blocks, samples = [], []

    def full_block(iterations):
        blocks.append(iterations)
        samples.append(SimpleNamespace(iterations=iterations, seconds=iterations * seconds))

    loop = SimpleNamespace(full_block=full_block, take_samples=samples.clear, samples=samples)
    loop.step_block = lambda iterations: None
    iterations, measured = measure.choose_iterations(loop)
    assert blocks == tried
    assert measured == pytest.approx(seconds)
    assert iterations == pytest.approx(max(0.25 / seconds, 2), abs=2)
    assert iterations % 2 == 0


@pytest.mark.long
def test_profile_from_the_command_line(data_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("NCFBENCH_CACHE_DIR", str(tmp_path / "cache"))
    shorten(monkeypatch)
    words = shlex.split("profile --dataset tiny --encoder mf --set batch_size=32 --rounds 3")
    words += ["--set", "dimension=8", "--data-dir", data_dir, "--runs-dir", tmp_path / "runs"]
    done = invoke(*words, "--loss", "hinge")
    check(done, 0, "speedups over neg", "Slots are what is embedded")
    assert "iid" not in done.stdout
    assert "Left out, as the loss refuses them: iid, strat." in done.stderr
    assert re.search(r"3 rounds of about \d+ s each\.", done.stderr)
