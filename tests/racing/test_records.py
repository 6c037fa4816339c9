"""The file of a race: what was noted comes back, wherever a kill cuts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ncfbench.errors import DataError
from ncfbench.racing import records
from ncfbench.racing.arms import Arm
from ncfbench.racing.clock import Reading
from ncfbench.racing.entry import Entry, Status

ARMS = [Arm("a", "run a"), Arm("b", "run b")]


def noted(folder: Path) -> list[Entry]:
    """Note two entries over three turns, one of which resumes in a second process."""
    entries = [Entry(arm, 0, number) for number, arm in enumerate(ARMS)]
    kept = records.Records(folder)
    first, second = entries
    first.status = Status.RACING
    first.readings.append(Reading(1.5, 0.25, 10.0))
    first.running_seconds = 2.0
    kept.note(entries, 2.0)
    first.before, first.running_seconds = 2.0, 1.0
    first.timeline.pieces.append([Reading(0.5, 0.5, None, 0.25, 0.125)])
    kept.note(entries, 3.0)
    second.close(Status.FAILED, "was killed")
    kept.note(entries, 4.0, is_over=True)
    kept.close()
    return entries


def test_what_was_noted_is_read(tmp_path: Path) -> None:
    entries, spent, is_over = records.read(tmp_path, ARMS)
    assert [(each.arm, each.status) for each in entries] == [(arm, Status.WAITING) for arm in ARMS]
    assert (spent, is_over) == (0.0, False)
    wanted = noted(tmp_path)
    entries, spent, is_over = records.read(tmp_path, ARMS)
    assert (spent, is_over) == (4.0, True)
    for entry, want in zip(entries, wanted, strict=True):
        assert entry.timeline == want.timeline
        assert (entry.status, entry.reason) == (want.status, want.reason)
        assert entry.running_seconds == want.before + want.running_seconds
    more = records.Records(tmp_path, entries)
    before = (tmp_path / records.FILE).read_text().count("reading")
    more.note(entries, 5.0)
    more.close()
    assert (tmp_path / records.FILE).read_text().count("reading") == before


def test_a_file_cut_anywhere_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    noted(tmp_path)
    file = tmp_path / records.FILE
    whole, lines = file.read_bytes(), []
    for end in range(len(whole)):
        file.write_bytes(whole[:end])
        entries, *_ = records.read(tmp_path, ARMS)
        lines.append(sum(len(each.timeline.readings) for each in entries))
    assert lines == sorted(lines)
    assert (lines[0], lines[-1]) == (0, 2)


def test_a_file_cut_anywhere_is_continued(tmp_path: Path) -> None:
    """What was noted after the cut comes back, too."""
    noted(tmp_path)
    file = tmp_path / records.FILE
    whole = file.read_bytes()
    for end in range(len(whole)):
        file.write_bytes(whole[:end])
        entries, spent, _ = records.read(tmp_path, ARMS)
        kept = records.Records(tmp_path, entries if spent else ())
        entries[1].readings.append(Reading(9.0, 0.75))
        kept.note(entries, 9.0)
        kept.close()
        again, spent, _ = records.read(tmp_path, ARMS)
        assert spent == 9.0
        assert [each.timeline for each in again] == [each.timeline for each in entries]


@pytest.mark.parametrize(
    "line", ["{", '{"format": 99}', '{"arm": 7, "seed": 0, "running": 1}', "1"]
)
def test_a_damaged_file_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / records.FILE).write_text(f"{line}\n")
    with pytest.raises(DataError, match=r"race.jsonl is damaged.*Remove"):
        records.read(tmp_path, ARMS)
