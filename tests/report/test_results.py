"""The results that are kept in the repository: every number comes out of their raw samples again,
and the README shows them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ncfbench.report.render import markdown
from ncfbench.report.results import collect
from ncfbench.report.verify import verification
from ncfbench.storage import schemas, tables

REPOSITORY = Path(__file__).parents[2]
FOLDERS = sorted(path.parent for path in REPOSITORY.glob("results/*/speedup.parquet"))


def test_there_are_results() -> None:
    assert [folder.name for folder in FOLDERS] == ["citeulike-title-tags"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_number_comes_out_again(folder: Path, tmp_path: Path) -> None:
    found = verification.verify(folder)
    assert found.numbers > 1000
    assert (found.mismatches, found.problems) == ([], [])
    # And a report of today writes the same tables.
    copied = Path(shutil.copytree(folder, tmp_path / "results"))
    collect(copied, tmp_path, allow_mixed=False, locations={}).write()
    assert verification.verify(copied).mismatches == []
    for name, schema in (("speedup.parquet", schemas.SPEEDUP), ("recall.parquet", schemas.RECALL)):
        written, kept = (tables.read_rows(place / name, schema) for place in (copied, folder))
        assert len(written) == len(kept) > 0
        for own, row in zip(written, kept, strict=True):
            # A command repeats the folders that `report` was called with.
            named = {column: value for column, value in row.items() if column != "command"}
            close = {
                column: pytest.approx(value, rel=1e-9)
                for column, value in named.items()
                if isinstance(value, float)
            }
            assert {column: own[column] for column in named} == named | close


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_they_are_compact_and_name_no_machine(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 5e6
    assert not [path for path in files if "checkpoints" in path.parts]
    for path in folder.glob("*/environment.json"):
        environment = json.loads(path.read_text())
        assert environment["commit"]["id"]
        assert not environment["commit"]["dirty"], "measured with code that no commit holds"
        assert not [
            text for text in ("/tmp", "/home", "/work", "/root") if text in path.read_text()
        ]


def test_the_readme_shows_their_speedup_table(tmp_path: Path) -> None:
    results = collect(
        REPOSITORY / "results/citeulike-title-tags", tmp_path, allow_mixed=False, locations={}
    )
    wanted = [
        table
        for table in results.tables
        if table.title.startswith("Speedup beside the paper's, SG loss")
    ]
    assert {row[0].text for table in wanted for row in table.rows} >= {"CNN", "LSTM"}
    for table in wanted:
        lines = [line for line in markdown.render([table]).splitlines() if line.startswith("|")]
        assert "\n".join(lines) in (REPOSITORY / "README.md").read_text()
