"""The convergence check: each fault, runs without one, and what a report says of them."""

import math

import pytest
from support.cli import check, invoke
from support.records import REPOSITORY, read, write_run

from ncfbench.runs.convergence import find_fault
from ncfbench.storage import schemas, tables

RESULTS = REPOSITORY / "results/citeulike-title-tags"


def curve_of(*losses, **last):
    """A probe every 10 iterations; ``last`` stands in the last row."""
    rows = [
        {"iteration": 10 * place, "probe_loss": loss} | dict.fromkeys(schemas.QUALITY_COLUMNS)
        for place, loss in enumerate(losses)
    ]
    rows[-1] |= {f"test_recall_at_50{name}": value for name, value in last.items()}
    return rows


def approach(constants, probes=40, noise=0.0):
    """A loss that nears 2 exponentially, over some time constants, from 90 before training."""
    steps = [constants * probe / probes for probe in range(probes)]
    return [
        90.0,
        *(2 + math.exp(-step) + noise * (-1) ** place for place, step in enumerate(steps)),
    ]


def kind_of(curve):
    fault = find_fault(curve)
    return fault and fault.kind


def test_a_run_that_has_trained_has_no_fault():
    assert find_fault(curve_of(*approach(6))) is None
    assert find_fault(curve_of(*approach(6, noise=0.01))) is None
    rising = [90, 5, 3, 2.6, 2.5, 2.4, 2.5, 2.7, 2.9]
    assert find_fault(curve_of(*rising)) is None, "overfitting is no lack of training"
    trained = {"": 0.3, "_chance": 0.1, "_error": 0.002, "_item_error": 0.02}
    assert find_fault(curve_of(*approach(6), **trained)) is None


def test_a_loss_that_still_falls_is_a_fault():
    fault = find_fault(curve_of(*approach(1)))
    assert fault.kind == "falling"
    # By hand: 41 rows, of which those up to iteration 300 of 400 come before the last quarter.
    shares = [math.exp(-place / 40) for place in (29, 39)]
    share = (shares[0] - shares[1]) / (1 - shares[1])
    assert f"made {100 * share:.0f} % of its fall in the last quarter" in fault.finding
    assert fault.remedy.startswith("Train longer")
    assert kind_of(curve_of(*approach(1.7))) == "falling"
    assert kind_of(curve_of(*approach(2.3))) is None


def test_an_early_dip_is_a_fault():
    """The baseline of a large batch: its smallest loss at iteration 20, and above it ever after."""
    fault = find_fault(curve_of(9, 6.2, 5.9, 6.1, 6.3, 6.2, 6.1, 6.0))
    assert (fault.kind, "iteration 20 of 70" in fault.finding) == ("dip", True)
    assert kind_of(curve_of(9, 6.2, 6.1, 5.9, 6.1, 6.3, 6.2, 6.1)) is None


@pytest.mark.parametrize("losses", [[5], [5, 6], [3, 4, 5], [3, 3, 3], [5, 6, 7, 8, 9, 9, 9]])
def test_a_loss_that_only_rises_is_a_fault(losses):
    """However few its probes are: the target would be reached before training."""
    fault = find_fault(curve_of(*losses))
    assert fault.kind == "rise"
    assert fault.finding == f"its loss was never below the {losses[0]} before training"
    later = [{**row, "iteration": row["iteration"] + 10} for row in curve_of(*losses[:4])]
    assert find_fault(later) is None, "what it was before training is not known"


@pytest.mark.parametrize(
    ("recall", "item_error", "expected"),
    [
        (0.071, 0.001, "chance"),
        (0.093, 0.001, "chance"),
        (0.095, 0.001, None),
        (0.12, 0.02, "chance"),
        (0.14, 0.02, None),
    ],
)
def test_recall_of_chance_is_a_fault(recall, item_error, expected):
    """Chance 0.087, an error over users of 0.003; few items add an error of their own."""
    last = {"": recall, "_chance": 0.087, "_error": 0.003, "_item_error": item_error}
    assert kind_of(curve_of(*approach(6), **last)) == expected


def test_recall_that_is_one_by_construction_shows_nothing():
    last = {"": 1.0, "_chance": 1.0, "_error": 0.0, "_item_error": 0.0}
    assert find_fault(curve_of(*approach(6), **last)) is None


def test_few_probes_show_no_loss_that_falls():
    assert find_fault(curve_of(9, 5, 3)) is None
    assert kind_of(curve_of(9, 5, 4, 3, 2)) == "falling"


def test_kept_runs_are_judged_as_the_documents_say():
    """Over 30 epochs every sampler, loss and encoder has trained. An LSTM with SG over eight has
    not: 14 of 15 runs are found, and one makes a little less than a tenth of its fall at the end.
    """
    records, _ = read(RESULTS)
    faults = {record.name: find_fault(record.curve) for record in records}
    assert len(faults) > 40
    assert {name: fault.kind for name, fault in faults.items() if fault} == {}
    begun = {
        record.name: find_fault([row for row in record.curve if row["epoch"] <= 8])
        for record in records
        if (record.config.encoder, record.config.loss) == ("lstm", "sg")
    }
    found = [fault.kind for fault in begun.values() if fault is not None]
    assert found == ["falling"] * 14
    assert len(begun) == 15


def test_an_untrained_baseline_gives_no_ratio(tmp_path):
    """Nor a bold 1.00 of its own; times per iteration stay, and the tables verify."""
    write_run(tmp_path, "iid", [9, 6.2, 5.9, 6.1, 6.3, 6.2], 200)
    write_run(tmp_path, "ns", [9, 6, 5, 4, 3, 2], 20)
    done = invoke("report", tmp_path)
    said = " ".join(done.stdout.split())
    assert "No ratio, CNN: iid has not trained: its smallest loss comes at" in said
    assert "Use another learning rate or a smaller batch, or train longer." in said
    rows = {
        row["sampler"]: row
        for row in tables.read_rows(tmp_path / "speedup.parquet", schemas.SPEEDUP)
    }
    for sampler, ratio, status in (("iid", 1, "not trained"), ("ns", 10, "no baseline")):
        row = rows[sampler]
        assert row["status"] == status
        assert row["per_iteration_speedup"] == pytest.approx(ratio)
        names = ("reference_loss", "iterations_speedup", "total_speedup", "total_speedup_at_most")
        assert [row[name] for name in names] == [None] * 4
    check(invoke("report", tmp_path, "--verify"), 0)
