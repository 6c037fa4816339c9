"""The command that audits frameworks: its refusals, records, and comparison with packages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from invoked import check, invoke

from ncfbench.auditing.frameworks import audit, packages
from ncfbench.auditing.frameworks.catalog import BY_NAME
from ncfbench.auditing.frameworks.links import Links
from ncfbench.data.store import load
from ncfbench.errors import UsageError
from ncfbench.storage import tables
from ncfbench.storage.schemas import FRAMEWORKS


def test_command_refuses_what_it_cannot_audit() -> None:
    check(invoke("audit", "--framework", "tfrs-logp"), 2, "did you mean 'tfrs-logq'?")
    check(invoke("audit", "--frameworks", "--encoder", "cnn"), 2, "--encoder has no effect")
    check(invoke("audit", "--frameworks", "--filters", "3"), 2, "--filters has no effect")
    check(invoke("audit", "--frameworks", "--loss", "sg"), 2, "--loss has no effect")
    check(invoke("audit", "--frameworks", "--installed"), 2, "--installed needs --framework")
    check(invoke("audit", "--frameworks", "--batches", "9"), 2, "at least 48")
    check(invoke("audit", "--framework", "xbm", "--installed"), 2, "no package to compare")
    check(invoke("audit", "--framework", "st-mnrl", "--seed", "-1"), 2, "seed = -1")
    check(invoke("audit", "--framework", ""), 2, "No frameworks are named")


def test_command_audits_a_data_set(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its figures are printed, kept in a table, and shown by a report."""
    words = ("audit", "--framework", "recbole", "--dataset", "tiny", "--data-dir", data_dir)
    words = (*words, "--batches", "48", "--batch-size", "16", "--json", "--quiet")
    words = (*words, "--runs-dir", tmp_path / "runs")
    found = invoke(*words)
    assert found.exit_code == 0, found.output
    (row,) = json.loads(found.stdout)["frameworks"]
    assert (row["name"], row["batches"], row["batch_size"]) == ("recbole", 48, 16)
    assert row["bias_low"] <= row["bias"] <= row["bias_high"]
    assert row["linked_share"] == 0
    assert tables.read_rows(tmp_path / "runs/frameworks.parquet", FRAMEWORKS) == [row]
    assert (row["dataset"], row["links"]) == ("tiny", load(data_dir, "tiny").graph.n_links)
    shown = invoke("report", "--runs-dir", tmp_path / "runs", "--data-dir", data_dir)
    check(shown, 0, "Estimators of frameworks", "tiny, b=16, 48 batches", "RecBole, uniform")
    kept = invoke("report", "--runs-dir", tmp_path / "runs", "--data-dir", data_dir, "--json")
    assert json.loads(kept.stdout)["frameworks"] == [row]
    monkeypatch.setattr(audit, "undetected", lambda rows: ["a fault"])
    check(invoke(*words), 6, "missed planted faults", "a fault")


def test_other_loss_of_a_package_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"name": "st-mnrl", "package": "sentence-transformers", "version": "9.0"}
    row |= {"followed_version": "6.2.0", "our_loss": 1.0, "package_loss": 2.0, "agrees": False}
    monkeypatch.setattr(packages, "compare", lambda *arguments: [row])
    found = invoke("audit", "--framework", "st-mnrl", "--installed")
    check(found, 6, "2.000000", "differs from the installed package")
    check(found, 6, "sentence-transformers 9.0 is installed, and ours follows 6.2.0")


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = invoke("audit", "--framework", "st-mnrl", "--installed")
    check(found, 2, "sentence-transformers, which is not installed", "python -m pip install")


@pytest.mark.parametrize("error", [AttributeError("no such class"), TypeError("no such option")])
def test_other_interface_of_a_package_is_named(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = Links(np.int32([0, 1]), np.int32([0, 1]), 2, 2)

    def loss(*arguments: Any) -> Any:
        raise error

    package = packages.Package("pytest", "pytest", loss)
    monkeypatch.setitem(packages.PACKAGES, "st-mnrl", package)
    with pytest.raises(UsageError, match=rf"pytest {pytest.__version__} .* as 6.2.0.*{error}\.$"):
        packages.compare(few, [BY_NAME["st-mnrl"]], 2)


def test_package_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attribute that is missing during the import is no fault of the package's interface."""
    (tmp_path / "broken_package.py").write_text("raise AttributeError('no np.float_')")
    monkeypatch.syspath_prepend(str(tmp_path))
    package = packages.Package("broken-package", "broken_package", lambda *arguments: (0.0, None))
    monkeypatch.setitem(packages.PACKAGES, "st-mnrl", package)
    few = Links(np.int32([0, 1]), np.int32([0, 1]), 2, 2)
    with pytest.raises(UsageError, match=r"broken-package cannot be imported: no np\.float_\.$"):
        packages.compare(few, [BY_NAME["st-mnrl"]], 2)
