"""Stops of a run, its reported epoch, and faults of its curve: the curves are written out."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.records import change, write_run

from ncfbench.config import complete
from ncfbench.reporting.frames import Run
from ncfbench.reporting.quality import quality_of
from ncfbench.runs import folder as runs
from ncfbench.runs import reported
from ncfbench.runs.convergence import find_fault
from ncfbench.runs.reported import BY_VALIDATION, NO_VALIDATION, choose_epoch, is_chosen
from ncfbench.runs.schedule import BLIND_EPOCHS, Schedule
from ncfbench.storage import schemas


def row(epoch, validation, test=0.1):
    return {
        "iteration": int(100 * epoch),
        "epoch": epoch,
        "validation_recall_at_50": validation,
        "test_recall_at_50": test,
    }


def curve_of(*validation):
    return [row(epoch, value) for epoch, value in enumerate(validation, 1)]


@given(
    recalls=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    tests=st.lists(st.integers(0, 5), min_size=12, max_size=12),
    patience=st.integers(1, 12),
)
def test_it_is_the_first_peak_within_patience(recalls, tests, patience):
    """No later epoch in time is better, none earlier as good; the test plays no part."""
    both = zip(recalls, tests[: len(recalls)], strict=True)
    curve = [row(at, value, test) for at, (value, test) in enumerate(both)]
    at = int(choose_epoch(curve, patience)[0]["epoch"])
    assert all(value < recalls[at] for value in recalls[:at])
    assert all(value <= recalls[at] for value in recalls[at + 1 : at + patience + 1])
    assert is_chosen(curve, patience) == (len(recalls) - 1 - at >= patience)
    highs = [place for place in range(at + 1) if recalls[place] > max(recalls[:place], default=-1)]
    assert all(after - before <= patience for before, after in itertools.pairwise(highs))


def test_small_differences_count_and_missing_recalls_do_not():
    for recalls in ((0.1, 0.2, 0.3 - 1e-12, 0.3, 0.1), (None, 0.2, None, 0.3, 0.1)):
        best, by = choose_epoch(curve_of(*recalls), 1)
        assert (best["epoch"], by) == (4, BY_VALIDATION)


def test_without_validation_the_last_epoch_counts():
    curve = [row(0, None, None), row(1, None, 0.3), row(2, None, 0.1), row(2.5, None, None)]
    assert choose_epoch(curve, 10) == (curve[2], NO_VALIDATION)
    assert choose_epoch(curve[:1], 10)[0] is None
    assert not is_chosen(curve, 1)
    certain = [one | {"validation_recall_at_50_chance": 1.0} for one in curve_of(1.0, 1.0)]
    assert choose_epoch(certain, 10) == (certain[1], NO_VALIDATION)


def test_a_fall_since_is_described():
    sentence = reported.describe_fall(curve_of(0.1, 0.43, 0.36, 0.3125), 10)
    assert "from 0.4300 at epoch 2 to 0.3125 at epoch 4: fewer epochs" in sentence
    for recalls in ((0.1, 0.2), (0.2, 0.2), (0.2,), (None, None), ()):
        assert reported.describe_fall(curve_of(*recalls), 10) is None


def test_the_curve_of_an_older_record_decides(tmp_path):
    """Whatever epoch its summary names, all readers see the one that validation chose."""
    validation = {"validation": [0, 0.25, 0.2]}
    folder = write_run(tmp_path, "ns", [3.0, 2.0, 1.0], 5.0, [0.0, 0.4, 0.3], **validation)
    older = {"reported_epoch": 2.0, "reported_by": NO_VALIDATION, "test_recall_at_50": 0.3}
    change(folder, "summary", lambda rows: rows[0].update(older))
    record = runs.read(folder)
    names = ("reported_epoch", "reported_by", "test_recall_at_50", "validation_recall_at_50")
    assert [record.summary[name] for name in names] == [1, BY_VALIDATION, 0.4, 0.25]
    assert record.reported_iteration == 100
    columns = reported.reported_columns(record.curve, record.config.patience)
    assert record.summary | columns == record.summary
    run = Run.of(record)
    assert (run.reported_iteration, quality_of([run]).values["recall_at_50"]) == (100, 0.4)


@pytest.mark.parametrize(("probe_every", "probes"), [(0, 4), (0, 1), (1, 4), (7, 1), (100, 4)])
@pytest.mark.parametrize(
    ("links", "batch"),
    [(1000, 32), (1000, 1000), (7, 3), (999, 64), (64, 64), (43_200, 512), (43_200, 32_768)],
)
def test_stops_are_probes_and_ends_of_epochs(links, batch, probe_every, probes):
    schedule = Schedule(links, batch, epochs=5, probe_every=probe_every, probes=probes)
    stops, iteration = [], 0
    while iteration < schedule.last:
        iteration = schedule.next_stop(iteration)
        stops.append(iteration)
    ends = [-(-epoch * links // batch) for epoch in range(1, 6)]
    if probe_every:
        expected = {*ends, *range(probe_every, ends[-1] + 1, probe_every)}
    else:
        expected = {-(-q * links // (probes * batch)) for q in range(1, 5 * probes + 1)}
    assert stops == sorted(expected)
    assert [stop for stop in stops if schedule.ends_epoch(stop)] == ends
    assert [schedule.epoch_of(end) for end in ends] == [1, 2, 3, 4, 5]
    assert stops[-1] == ends[-1] == schedule.last


def test_costly_encoders_are_probed_once_an_epoch():
    """And repeat fewer batches; an explicit distance of probes stays."""
    for more, probes, batches in (
        ({"encoder": "cnn"}, 4, 16),
        ({"encoder": "bert"}, 1, 4),
        ({"encoder": "bert", "probe_every": 5}, 4, 4),
    ):
        config = complete({"batch_size": 50, "epochs": 3, "sampler": "ns"} | more)
        schedule = Schedule.of(config, 1000)
        assert schedule.step_batches == batches
        assert (schedule.last, schedule.next_stop(0)) == (60, 20 // probes)


def test_without_validation_a_run_has_some_epochs():
    schedule = Schedule.of(complete({"epochs": 0, "batch_size": 64}), 640, has_validation=False)
    assert schedule.last == BLIND_EPOCHS * 640 // 64


# --- faults of a curve


def losses_of(*losses, **last):
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


DIP = [9, 6.2, 5.9, 6.1, 6.3, 6.2, 6.1, 6.0]
"""The baseline of a large batch: its smallest loss comes early, and it is above it after."""


@pytest.mark.parametrize(
    ("losses", "kind"),
    [
        (approach(6), None),
        (approach(6, noise=0.01), None),
        pytest.param([90, 5, 3, 2.6, 2.5, 2.4, 2.5, 2.7, 2.9], None, id="overfitting"),
        (approach(1.7), "falling"),
        (approach(2.3), None),
        (DIP, "dip"),
        ([9, 6.2, 6.1, 5.9, 6.1, 6.3, 6.2, 6.1], None),
        # However few its probes are, the target would be reached before training.
        *((rising, "rise") for rising in ([5], [5, 6], [3, 3, 3], [5, 6, 7, 8, 9, 9, 9])),
        pytest.param([9, 5, 3], None, id="few probes show no loss that falls"),
        ([9, 5, 4, 3, 2], "falling"),
    ],
)
def test_a_fault_of_the_loss_is_found(losses, kind):
    fault = find_fault(losses_of(*losses))
    assert (fault and fault.kind) == kind
    if kind == "rise":
        later = [{**row, "iteration": row["iteration"] + 10} for row in losses_of(*losses[:4])]
        assert find_fault(later) is None, "what it was before training is not known"


def test_findings_have_their_numbers():
    """By hand: 41 rows, of which those up to iteration 300 of 400 come before the last quarter."""
    early, late = (math.exp(-place / 40) for place in (29, 39))
    fault = find_fault(losses_of(*approach(1)))
    assert f"{100 * (early - late) / (1 - late):.0f} %" in fault.finding
    assert "iteration 20 of 70" in find_fault(losses_of(*DIP)).finding
    assert "below the 3 before" in find_fault(losses_of(3, 4, 5)).finding


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
    fault = find_fault(losses_of(*approach(6), **last))
    assert (fault and fault.kind) == kind
