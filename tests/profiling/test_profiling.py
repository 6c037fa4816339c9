"""The profile: what was measured, and its tables."""

import re
import shlex
from types import SimpleNamespace

import pytest
from support.cli import check, invoke
from support.training import Trial, shorten

from ncfbench.config import complete
from ncfbench.errors import DataError
from ncfbench.profiling import measure
from ncfbench.profiling import profile as profiling
from ncfbench.profiling.costs import AXES, PARTS, Counts
from ncfbench.profiling.tables import profile_tables, write
from ncfbench.storage import schemas, tables

SMALL = {"encoder": "mf", "dimension": 8, "batch_size": 32}


@pytest.fixture(scope="module")
def record(data_dir, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NCFBENCH_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        shorten(patch)
        more = SMALL | {"dataset": "tiny", "data_dir": data_dir}
        return profiling.profile(samplers=["strat-ns", "iid"], rounds=3, **more)


def test_what_a_profile_holds(record, tiny):
    assert [row["sampler"] for row in record.costmodel] == ["iid", "strat-ns"]
    assert len(repr(record)) < 100
    for row in record.costmodel:
        trial = Trial(tiny, SMALL | {"sampler": row["sampler"]})
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
    iterations, found = measure.choose_iterations(loop)
    assert blocks == tried
    assert found == pytest.approx(seconds)
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


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--rounds", "2"], "3 rounds or more"),
        (["--samplers", "iid", "--loss", "hinge"], "iid"),
        (["--samplers", ""], "one sampler"),
    ],
)
def test_what_cannot_be_profiled_is_refused(words, text):
    check(invoke("profile", "--dataset", "tiny", *words), 2, text)
