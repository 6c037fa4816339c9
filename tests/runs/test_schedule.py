"""The schedule of a run, against stops written out."""

import pytest

from ncfbench.config import complete
from ncfbench.runs.schedule import Schedule


@pytest.mark.parametrize(("probe_every", "probes"), [(0, 4), (0, 1), (1, 4), (7, 1), (100, 4)])
@pytest.mark.parametrize(
    ("links", "batch"),
    [
        (1000, 32),
        (1000, 1000),
        (7, 3),
        (999, 64),
        (64, 64),
        (43_200, 512),
        (1000, 900),
        (43_200, 32_768),
    ],
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
    for more, each, batches in (
        ({"encoder": "cnn"}, 4, 16),
        ({"encoder": "bert"}, 1, 4),
        ({"encoder": "bert", "probe_every": 5}, 4, 4),
    ):
        schedule = Schedule.of(
            complete({"batch_size": 50, "epochs": 3, "sampler": "ns"} | more), 1000
        )
        assert schedule.step_batches == batches
        assert (schedule.last, schedule.next_stop(0)) == (60, 20 // each)
