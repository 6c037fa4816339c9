"""Losses of other frameworks: the kept records, the page made of them, and the packages."""

import json
from typing import Any

import audit_frameworks
import pytest
from audit_frameworks import BEGIN, END, ENTRIES, PAGE, RECORDS

from ncfbench.linting.lint import lint_loss

KEPT: dict[str, dict[str, Any]] = json.loads(RECORDS.read_text("utf-8"))
packages = pytest.mark.filterwarnings("ignore")
"""The packages warn about what they import; that is not ours to mend."""


def test_page_is_made_of_the_records():
    part = PAGE.read_text("utf-8").split(BEGIN)[1].split(END)[0]
    assert part.strip() == audit_frameworks.page_part(KEPT)


def test_each_entry_has_its_record():
    assert [*KEPT] == [entry.key for entry in ENTRIES]
    assert all(KEPT[entry.key]["options"] == entry.options for entry in ENTRIES)


@packages
@pytest.mark.long
@pytest.mark.parametrize(
    "entry", [pytest.param(entry, id=f"{entry.framework}-{entry.key}") for entry in ENTRIES]
)
def test_package_is_judged_as_kept(entry):
    """Findings are those of the record, and the numbers about its own."""
    if not audit_frameworks.is_installed(entry):
        pytest.skip(f"{entry.package} is not installed")
    findings = lint_loss(entry.loss, options_=entry.options).findings
    kept = KEPT[entry.key]["findings"]
    assert [(row.code, row.severity) for row in findings] == [
        (row["code"], row["severity"]) for row in kept
    ]
    for row, of_record in zip(findings, kept, strict=True):
        assert row.value == pytest.approx(of_record["value"], rel=0.05, abs=0.02)
