"""Memory of a GPU that arms of a race hold, by a GPU that is simulated."""

from __future__ import annotations

from pathlib import Path

import pytest
from raced_commands import COUNT, ENDLESS, V, by_name, race

from ncfbench.racing import field as fields

pytestmark = pytest.mark.usefixtures("quick")
LATE = "sleep {start}; touch gpu-{pace}; " + ENDLESS


@pytest.fixture
def _gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of 10 GiB, of which each arm takes 6 when it writes its file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        fields, "free_device_bytes", lambda: [(10 - 6 * len([*tmp_path.glob("gpu-*")])) << 30]
    )


@pytest.mark.long
@pytest.mark.usefixtures("_gpu")
def test_the_field_is_limited_by_memory_of_a_gpu(tmp_path: Path) -> None:
    """The first takes 6 of 10 GiB, so that 4 are left for the second."""
    arms = ("-L", "start", "0", "-L", "pace", "1,2", LATE)
    found = race(tmp_path, *V, "--budget", "6s", *arms, code=6)
    first, second = by_name(found).values()
    assert first["device_bytes"] == 6 << 30
    assert (second["status"], second["reason"]) == (
        "not begun",
        "no GPU memory: paused arms hold theirs, one needs 7.2 GiB",
    )


@pytest.mark.long
@pytest.mark.usefixtures("_gpu")
def test_memory_of_a_gpu_is_measured_until_the_first_line(tmp_path: Path) -> None:
    """Neither takes any in the turn in which it begins."""
    arms = ("-L", "start", "0.6", "-L", "pace", "1,2", LATE)
    found = race(tmp_path, *V, "--budget", "2s", *arms)
    assert [arm["device_bytes"] for arm in by_name(found).values()] == [6 << 30] * 2


@pytest.mark.long
@pytest.mark.usefixtures("_gpu")
def test_a_line_before_training_shows_no_memory(tmp_path: Path) -> None:
    """Step 0 is printed before the memory is taken."""
    shown = (
        'echo \'{"v": 0, "step": 0}\'; sleep 0.6; touch gpu-{pace}; n=0; while :; do n=$((n+1));'
    )
    shown += ' echo "{\\"v\\": $n, \\"step\\": $n}"; sleep 0.0{pace}; done'
    found = race(tmp_path, "--metric", "v", "--budget", "2s", "-L", "pace", "1,2", shown)
    assert [arm["device_bytes"] for arm in by_name(found).values()] == [6 << 30] * 2


@pytest.mark.long
@pytest.mark.usefixtures("_gpu")
def test_arms_that_start_will_need_memory_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 16 GiB the first holds 6; the second will, which leaves none for the third."""
    free = fields.free_device_bytes
    monkeypatch.setattr(fields, "free_device_bytes", lambda: [free()[0] + (6 << 30)])
    arms = ("-L", "start", "0,0.5,0.6", "-L", "pace", "1", LATE.replace("{pace}", "1{start}", 1))
    found = race(tmp_path, *V, "--budget", "6s", *arms)
    assert [arm["status"] == "not begun" for arm in by_name(found).values()] == [False, False, True]


def test_a_gpu_that_does_not_answer_once_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([[], [8 << 30]])
    monkeypatch.setattr(fields, "free_device_bytes", lambda: next(answers, []))
    found = race(tmp_path, *V, "-L", "count", "5,6", COUNT)
    assert {arm["device_bytes"] for arm in by_name(found).values()} == {0}
