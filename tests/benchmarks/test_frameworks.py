"""Losses of other frameworks: the kept records, the page made of them, and the packages."""

import json

import audit_frameworks
import pytest
from audit_frameworks import BEGIN, END, ENTRIES, PAGE, RECORDS

from ncfbench.linting.lint import lint_loss

KEPT = json.loads(RECORDS.read_text("utf-8"))


def test_page_is_made_of_the_records_of_all_entries():
    part = PAGE.read_text("utf-8").split(BEGIN)[1].split(END)[0]
    assert part.strip() == audit_frameworks.page_part(KEPT)
    assert {key: row["options"] for key, row in KEPT.items()} == {
        entry.key: entry.options for entry in ENTRIES
    }


@pytest.mark.filterwarnings("ignore")  # the packages warn about what they import
@pytest.mark.long
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.framework}-{entry.key}")
def test_package_is_judged_as_kept(entry):
    """Findings are those of the record, and the numbers about its own."""
    if not audit_frameworks.is_installed(entry):
        pytest.skip(f"{entry.package} is not installed")
    findings = lint_loss(entry.loss, options_=entry.options).findings
    for row, kept in zip(findings, KEPT[entry.key]["findings"], strict=True):
        assert (row.code, row.severity) == (kept["code"], kept["severity"])
        assert row.value == pytest.approx(kept["value"], rel=0.05, abs=0.02)
