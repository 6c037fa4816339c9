"""The convergence check: each fault, runs without one, and what a table says of them."""

import math

import pytest
from support.records import REPOSITORY, read, record, rows_of

from ncfbench.runs.convergence import find_fault
from ncfbench.storage import schemas

RESULTS = REPOSITORY / "results/citeulike-title-tags"


def curve_of(*losses, **last):
    """A probe every 10 iterations; ``last`` stands in the last row."""
    rows = [
        {"iteration": 10 * place, "probe_loss": loss} | dict.fromkeys(schemas.QUALITY_COLUMNS)
        for place, loss in enumerate(losses)
    ]
    rows[-1] |= {f"test_recall_at_50{name}": value for name, value in last.items()}
    return rows


def approach(constants, noise=0.0):
    """A loss that nears 2 exponentially, over some time constants, from 90 before training."""
    steps = enumerate(constants * probe / 40 for probe in range(40))
    return [90.0, *(2 + math.exp(-step) + noise * (-1) ** place for place, step in steps)]


@pytest.mark.parametrize(
    ("losses", "kind"),
    [
        (approach(6), None),
        (approach(6, noise=0.01), None),
        pytest.param([90, 5, 3, 2.6, 2.5, 2.4, 2.5, 2.7, 2.9], None, id="overfitting"),
        (approach(1.7), "falling"),
        (approach(2.3), None),
        # The baseline of a large batch: its smallest loss comes early, and it is above it after.
        ([9, 6.2, 5.9, 6.1, 6.3, 6.2, 6.1, 6.0], "dip"),
        ([9, 6.2, 6.1, 5.9, 6.1, 6.3, 6.2, 6.1], None),
        # However few its probes are, the target would be reached before training.
        *((rising, "rise") for rising in ([5], [5, 6], [3, 3, 3], [5, 6, 7, 8, 9, 9, 9])),
        pytest.param([9, 5, 3], None, id="few probes show no loss that falls"),
        ([9, 5, 4, 3, 2], "falling"),
    ],
)
def test_a_fault_of_the_loss_is_found(losses, kind):
    fault = find_fault(curve_of(*losses))
    assert (fault and fault.kind) == kind
    if kind == "rise":
        later = [{**row, "iteration": row["iteration"] + 10} for row in curve_of(*losses[:4])]
        assert find_fault(later) is None, "what it was before training is not known"


def test_findings_have_their_numbers():
    """By hand: 41 rows, of which those up to iteration 300 of 400 come before the last quarter."""
    fault = find_fault(curve_of(*approach(1)))
    shares = [math.exp(-place / 40) for place in (29, 39)]
    share = (shares[0] - shares[1]) / (1 - shares[1])
    assert f"{100 * share:.0f} %" in fault.finding
    assert fault.remedy.startswith("Train longer")
    dip = find_fault(curve_of(9, 6.2, 5.9, 6.1, 6.3, 6.2, 6.1, 6.0))
    assert "iteration 20 of 70" in dip.finding
    assert "below the 3 before" in find_fault(curve_of(3, 4, 5)).finding


@pytest.mark.parametrize(
    ("recall", "chance", "item_error", "kind"),
    [
        (0.071, 0.087, 0.001, "chance"),
        (0.093, 0.087, 0.001, "chance"),
        (0.095, 0.087, 0.001, None),
        (0.12, 0.087, 0.02, "chance"),
        (0.14, 0.087, 0.02, None),
        pytest.param(1.0, 1.0, 0.0, None, id="by construction"),
    ],
)
def test_recall_of_chance_is_a_fault(recall, chance, item_error, kind):
    """With an error over users of 0.003; few items add an error of their own."""
    last = {"": recall, "_chance": chance, "_error": 0.003, "_item_error": item_error}
    fault = find_fault(curve_of(*approach(6), **last))
    assert (fault and fault.kind) == kind


def test_kept_runs_are_judged_as_the_documents_say():
    """All have trained over 30 epochs; of 15 runs of an LSTM with SG, one over eight."""
    records, _ = read(RESULTS)
    assert len(records) > 40
    assert [run.name for run in records if find_fault(run.curve)] == []
    begun = [
        find_fault([row for row in run.curve if row["epoch"] <= 8])
        for run in records
        if (run.config.encoder, run.config.loss) == ("lstm", "sg")
    ]
    assert sorted(fault.kind if fault else "" for fault in begun) == ["", *["falling"] * 14]


def test_an_untrained_baseline_gives_no_ratio():
    """Nor a bold 1.00 of its own; times per iteration stay."""
    runs = [record("iid", [9, 6.2, 5.9, 6.1, 6.3, 6.2], 200), record("ns", [9, 6, 5, 4, 3, 2], 20)]
    rows = rows_of(runs)
    for sampler, ratio, status in (("iid", 1, "not trained"), ("ns", 10, "no baseline")):
        row = rows[sampler]
        assert row["status"] == status
        assert row["per_iteration_speedup"] == pytest.approx(ratio)
        names = ("reference_loss", "iterations_speedup", "total_speedup", "total_speedup_at_most")
        assert [row.get(name) for name in names] == [None] * 4
