"""Judge losses of other frameworks by ``ncfbench lint``, and write their table.

    python benchmarks/audit_frameworks.py torch jax

``results/frameworks-cpu.json`` keeps the records of which the table of ``docs/audit.md`` is made.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import framework_losses as losses

from ncfbench.linting.findings import KINDS, SEVERITIES, short
from ncfbench.linting.lint import Lint, lint_loss

FOLDER = Path(__file__).resolve().parent
RECORDS = FOLDER / "results" / "frameworks-cpu.json"
PAGE = FOLDER.parent / "docs" / "audit.md"
BEGIN, END = "<!-- begin table -->", "<!-- end table -->"
ST = "sentence-transformers"
MNRL = "sentence_transformers.sentence_transformer.losses:MultipleNegativesRankingLoss"
CACHED = MNRL.replace(":", ":Cached")
MERLIN, HSTU = "Merlin 23.12, rewritten", "HSTU (generative-recommenders), rewritten"
METRIC = "pytorch-metric-learning"


class Entry(NamedTuple):
    """A loss to judge.

    Attributes:
        package: its distribution; of a rewrite in JAX, the source that it follows.
        loss: an import path, a function or a class.
        options: arguments of the loss that are not left at their defaults.
    """

    name: str
    package: str
    loss: Any
    framework: Literal["jax", "torch"] = "torch"
    options: Mapping[str, Any] = MappingProxyType({})

    @property
    def key(self) -> str:
        """The package and the name."""
        return f"{self.package}: {self.name}"

    @property
    def is_rewrite(self) -> bool:
        """Whether the package itself is not used."""
        return self.framework == "jax"


ENTRIES = (
    Entry("MultipleNegativesRankingLoss", ST, MNRL),
    Entry("CachedMultipleNegativesRankingLoss", ST, CACHED, options={"mini_batch_size": 4}),
    Entry("RecBole's loss_type: CE", "torch", "torch.nn:CrossEntropyLoss"),
    Entry("NTXentLoss", METRIC, losses.metric_learning),
    Entry("GradCache, SimpleContrastiveLoss", "gradcache", losses.grad_cache),
    Entry("in-batch", MERLIN, losses.merlin, "jax", {"reg_factor": 0.0, "temperature": 0.05}),
    Entry("corrected", MERLIN, losses.merlin, "jax", {"reg_factor": 1.0, "temperature": 0.05}),
    Entry("reg_factor=T", MERLIN, losses.merlin, "jax", {"reg_factor": 0.05, "temperature": 0.05}),
    Entry("in-batch negatives without duplicates", HSTU, losses.hstu, "jax"),
    Entry("shared negatives", "the paper's program, rewritten", losses.paper, "jax"),
    Entry("in-batch softmax with everything right", "reference", losses.reference, "jax"),
)


def is_installed(entry: Entry) -> bool:
    """Return whether an entry's package is there."""
    try:
        return entry.is_rewrite or bool(importlib.metadata.version(entry.package))
    except importlib.metadata.PackageNotFoundError:
        return False


def record(entry: Entry, found: Lint) -> dict[str, Any]:
    """Return what is kept of a judgement."""
    lint = found.as_json()
    version = "" if entry.is_rewrite else importlib.metadata.version(entry.package)
    facts = lint["facts"]
    shown = ("code", "severity", "detail", "value", "low", "high", "expected", "unit")
    return {
        "name": entry.name,
        "package": entry.package,
        "version": version.partition("+")[0],
        "loss": entry.loss if isinstance(entry.loss, str) else entry.loss.__name__,
        "options": dict(entry.options),
        "framework": lint["framework"],
        "findings": [{name: finding[name] for name in shown} for finding in lint["findings"]],
        "kind": facts and facts["kind"],
        "objective": facts and facts["objective"],
    }


def page_part(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of the page, the worst finding first."""

    def worst(row: Mapping[str, Any]) -> tuple[int, int]:
        ranks = (
            (SEVERITIES.index(finding["severity"]), [*KINDS].index(finding["code"]))
            for finding in row["findings"]
        )
        return min(ranks, default=(len(SEVERITIES), 0))

    rows = sorted(records.values(), key=worst)
    head = ["| package | loss | findings, worst first | objective |", "|---|---|---|---|"]
    return "\n".join([*head, *(f"| {' | '.join(_cells(row))} |" for row in rows)])


def _cells(row: Mapping[str, Any]) -> list[str]:
    shown: dict[str, str] = {}
    for finding in row["findings"]:
        if finding["severity"] != "note":  # a note is no fault
            right = f"{short(finding['value'])} for {short(finding['expected'])}"
            mark = "" if finding["severity"] == "error" else ", a warning"
            shown.setdefault(finding["code"], f"`{finding['code']}` ({right}{mark})")
    return [
        f"{row['package']} {row['version']}".strip(),
        row["name"],
        ", ".join(shown.values()) or "none",
        row["objective"] or "-",
    ]


def write_page(records: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace the table of the page."""
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{page_part(records)}\n{END}{after}", "utf-8")


def main() -> None:
    """Judge the entries of some frameworks, keep records, and write the page's table."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("frameworks", nargs="*", help="jax, torch; none: the page only")
    parser.add_argument("--only", default="", help="part of a package or name")
    arguments = parser.parse_args()
    kept = json.loads(RECORDS.read_text("utf-8"))
    for entry in ENTRIES:
        if entry.framework in arguments.frameworks and arguments.only in entry.key:
            lint = lint_loss(entry.loss, options_=entry.options)
            kept[entry.key] = record(entry, lint)
            codes = [f"{finding.code} ({finding.severity})" for finding in lint.findings]
            print(f"{entry.key}: {', '.join(codes) or 'none'}", flush=True)
    kept = {entry.key: kept[entry.key] for entry in ENTRIES if entry.key in kept}
    RECORDS.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    write_page(kept)


if __name__ == "__main__":
    main()
