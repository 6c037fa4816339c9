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
    "entry", [pytest.param(each, id=f"{each.framework}-{each.key}") for each in ENTRIES]
)
def test_package_is_judged_as_kept(entry, monkeypatch):
    """Findings are those of the record, and the numbers about its own."""
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")  # which TensorFlow Recommenders asks for
    if not audit_frameworks.is_installed(entry):
        pytest.skip(f"{entry.package} is not installed")
    found = audit_frameworks.judge(entry)
    kept = KEPT[entry.key]["findings"]
    assert [(each.code, each.severity) for each in found.findings] == [
        (each["code"], each["severity"]) for each in kept
    ]
    for each, of_record in zip(found.findings, kept, strict=True):
        assert each.value == pytest.approx(of_record["value"], rel=0.05, abs=0.02)


@packages
@pytest.mark.long
def test_tensorflow_is_judged():
    tf = pytest.importorskip("tensorflow")

    def softmax(users, items, probability):
        logits = 5 * tf.matmul(users, items, transpose_b=True) - tf.math.log(probability)[None, :]
        own = tf.range(tf.shape(users)[0])
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(own, logits))

    found = lint_loss(softmax)
    assert (found.framework, found.errors) == ("TensorFlow", [])
    assert found.facts is not None
    assert found.facts.scale is not None
    assert found.facts.scale.value == pytest.approx(5, rel=0.01)
