"""The reported epoch, from curves that are written out."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.records import write_run

from ncfbench.reporting.frames import Run
from ncfbench.reporting.quality import quality_of
from ncfbench.runs import folder as runs
from ncfbench.runs.reported import (
    BY_VALIDATION,
    NO_VALIDATION,
    choose_epoch,
    describe_fall,
    reported_columns,
)
from ncfbench.storage import schemas, tables


def row(epoch, validation, test=0.1):
    return {
        "iteration": int(100 * epoch),
        "epoch": epoch,
        "validation_recall_at_50": validation,
        "test_recall_at_50": test,
    }


def curve_of(*validation):
    return [row(epoch, value) for epoch, value in enumerate(validation, 1)]


@pytest.mark.parametrize(
    ("recalls", "patience", "epoch"),
    [
        ((0.1, 0.3, 0.2, 0.25, 0.2), 10, 2),
        pytest.param((0.1, 0.3, 0.3 - 1e-12), 10, 2, id="however small the difference"),
        ((0.1, 0.3, 0.2, 0.25, 0.9, 0.1), 2, 2),
        ((0.1, 0.3, 0.2, 0.25, 0.9, 0.1), 3, 5),
        ((0.1, 0.3, 0.3, 0.3, 0.9), 2, 2),
        pytest.param((0.3, 0.1, 0.3, 0.1), 10, 1, id="the earlier of equals"),
        pytest.param((0.0, 0.0, 0.0), 10, 1, id="all are equal"),
        ((0.1, 0.2, 0.3), 10, 3),
        ((None, 0.2, None, 0.3, 0.1), 1, 4),
    ],
)
def test_the_largest_validation_recall_chooses(recalls, patience, epoch):
    found, by = choose_epoch(curve_of(*recalls), patience)
    assert found is not None
    assert (found["epoch"], by) == (epoch, BY_VALIDATION)


@given(
    recalls=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    tests=st.lists(st.integers(0, 5), min_size=12, max_size=12),
    patience=st.integers(1, 12),
)
def test_it_is_the_first_peak_within_patience(recalls, tests, patience):
    """No later epoch before the search ends is better, none earlier as good; the test plays no
    part.
    """
    both = zip(recalls, tests[: len(recalls)], strict=True)
    curve = [row(at, value, test) for at, (value, test) in enumerate(both)]
    found, _ = choose_epoch(curve, patience)
    assert found is not None
    at = int(found["epoch"])
    assert all(value < recalls[at] for value in recalls[:at])
    assert all(value <= recalls[at] for value in recalls[at + 1 : at + patience + 1])
    highs = [place for place in range(at + 1) if recalls[place] > max(recalls[:place], default=-1)]
    assert all(after - before <= patience for before, after in itertools.pairwise(highs))


def test_without_validation_the_last_epoch_counts():
    curve = [row(0, None, None), row(1, None, 0.3), row(2, None, 0.1), row(2.5, None, None)]
    assert choose_epoch(curve, 10) == (curve[2], NO_VALIDATION)
    assert choose_epoch(curve[:1], 10)[0] is None
    certain = [one | {"validation_recall_at_50_chance": 1.0} for one in curve_of(1.0, 1.0)]
    assert choose_epoch(certain, 10) == (certain[1], NO_VALIDATION)


def test_a_fall_since_is_described():
    sentence = describe_fall(curve_of(0.1, 0.43, 0.36, 0.3125), 10)
    assert sentence is not None
    assert sentence.startswith(
        "Validation recall@50 fell from 0.4300 at epoch 2 to 0.3125 at epoch 4: fewer epochs"
    )
    for recalls in ((0.1, 0.2), (0.2, 0.2), (0.2,), (None, None), ()):
        assert describe_fall(curve_of(*recalls), 10) is None


def test_the_curve_of_an_older_record_decides(tmp_path):
    """Whatever epoch its summary names, all readers see the one that validation chose."""
    folder = write_run(tmp_path, "ns", [3.0, 2.0, 1.0], 5.0, recalls=[0.0, 0.4, 0.3])
    curve = tables.read_rows(folder / "curve.parquet", schemas.CURVE)
    for one, validation in zip(curve, (None, 0.25, 0.2), strict=True):
        one["validation_recall_at_50"] = validation
    tables.write_rows(folder / "curve.parquet", curve, schemas.CURVE)
    before = tables.read_rows(folder / "summary.parquet", schemas.SUMMARY)[0]
    assert (before["reported_epoch"], before["test_recall_at_50"]) == (2, 0.3)
    record = runs.read(folder)
    names = ("reported_epoch", "reported_by", "test_recall_at_50", "validation_recall_at_50")
    assert [record.summary[name] for name in names] == [1, BY_VALIDATION, 0.4, 0.25]
    assert record.reported_iteration == 100
    assert record.summary | reported_columns(curve, record.config.patience) == record.summary
    found = Run.of(record)
    assert (found.reported_iteration, quality_of([found]).values["recall_at_50"]) == (
        100,
        0.4,
    )
