"""Processes of entries in the field of a race."""

from __future__ import annotations

from pathlib import Path

import pytest
from raced_commands import LIMIT_SECONDS, V

from ncfbench.racing.arms import Arm
from ncfbench.racing.clock import Reading
from ncfbench.racing.entry import Entry, Status
from ncfbench.racing.field import Field, Slot
from ncfbench.racing.metric import Metric

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.parametrize(
    ("lines", "status", "reason"),
    [
        ([Reading(1.0, 0.5)], Status.ENDED, "by itself"),
        ([], Status.FAILED, "ended and printed no metric, it printed nothing"),
    ],
)
def test_a_resumed_arm_may_have_nothing_left(
    tmp_path: Path, lines: list[Reading], status: Status, reason: str
) -> None:
    """It ends without a line, and its lines from before count."""
    one = Entry(Arm("a", "true"))
    one.timeline.pieces[0] += lines
    with Field(Metric.of(V[1]), tmp_path, [Slot()], resume_flag="# on") as field:
        field.start(one)
        field.turn([one], LIMIT_SECONDS, lambda _: False)
    assert (one.status, one.reason) == (status, reason)
