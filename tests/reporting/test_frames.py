"""The frames of results: probes of runs, and runs beside the baseline with a target."""

import json

import pytest
from support.cli import invoke
from support.records import write_run

import ncfbench
from ncfbench.storage import schemas


def rows_of(folder):
    return {row["sampler"]: row for row in ncfbench.report(folder).arms.to_pylist()}


def test_arms_have_the_target_and_the_ratios_of_their_seed(tmp_path):
    """iid ends at 3 after 200 iterations of 40 ms, ns is there after 150 of 10 ms."""
    write_run(tmp_path, "iid", [9, 5, 3], 40, [0, 0.1, 0.2])
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.2, 0.3])
    write_run(tmp_path, "neg", [9, 8, 7], 20)
    found = ncfbench.report(tmp_path)
    assert found.arms.column_names == schemas.ARMS.names
    rows = rows_of(tmp_path)
    own = rows["ns"]
    assert (own["target"], own["iterations_to_target"], own["reached"]) == (3, 150, True)
    assert own["seconds_to_target"] == pytest.approx(1.5)
    ratios = [own[name] for name in ("times_shorter", "times_fewer", "times_sooner")]
    assert ratios == pytest.approx([4, 200 / 150, 4 * 200 / 150])
    assert own["baseline_run"] == rows["iid"]["run"]
    never = rows["neg"]
    assert (never["reached"], never["iterations_to_target"], never["times_sooner"]) == (
        False,
        None,
        None,
    )
    probes = found.probes.to_pylist()
    assert len(probes) == 9
    last = [row for row in probes if row["run"] == own["run"]][-1]
    assert (last["iteration"], last["probe_loss"], last["test_recall_at_50"]) == (200, 2, 0.3)
    assert last["seconds"] == pytest.approx(2.0)


def test_caveats_have_codes(tmp_path):
    write_run(tmp_path, "iid", [9, 5, 3], 40, [0, 0.1, 0.2])
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.2, 0.3])
    (answer,) = json.loads(invoke("report", tmp_path, "--json").stdout)["answers"]
    codes = [caveat["code"] for caveat in answer["caveats"]]
    assert codes == ["decided_by_test", "undertrained", "few_seeds", "not_interleaved"]
    assert all(caveat["sentence"].endswith(".") for caveat in answer["caveats"])
