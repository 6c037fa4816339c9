"""Where there is no time to choose a penalty, the usual one serves."""

import pytest
from support.training import quiet

from ncfbench.data import prepare
from ncfbench.floors import case, floor
from ncfbench.floors.models import FLOORS


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_options):
    folder = tmp_path_factory.mktemp("floors")
    prepare("synthetic", tiny_options, folder, "cold", say=quiet)
    return folder


def test_without_time_to_choose_the_usual_penalty_serves(folder, monkeypatch):
    """It is kept, and takes no time again; with more time a penalty is chosen."""

    def seconds(case, name, *, is_chosen):
        return 100.0 if is_chosen else 10.0

    monkeypatch.setattr(case, "expected_seconds", seconds)
    said = []
    given = {"floors": ["ridge"], "data_dir": folder, "say": said.append}
    (row,) = floor.floor("cold", **given, budget_seconds=50.0).rows
    assert (
        (row["penalty"], row["chosen_by"])
        == (FLOORS["ridge"].usual_penalty, "given")
        == (30, "given")
    )
    assert "ridge has its usual penalty, 30. To choose one, it would take about 100 s" in said[-1]

    monkeypatch.setattr(floor, "measure", lambda *a: pytest.fail("it is kept"))
    assert floor.floor("cold", **given, budget_seconds=5.0).rows == [row]
    monkeypatch.undo()
    monkeypatch.setattr(case, "expected_seconds", seconds)
    (chosen,) = floor.floor("cold", **given, budget_seconds=200.0).rows
    assert chosen["chosen_by"] == "validation"
    with pytest.raises(Exception, match="it would take about 10 s"):
        floor.floor("cold", **given | {"again": True}, budget_seconds=5.0)
