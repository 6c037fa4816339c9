"""Checks: written values beside those that they must have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncfbench.reporting.verify.statistics import COUNTED_SEEDS

Value = float | str | bool | None


@dataclass(frozen=True)
class Mismatch:
    """A value that differs, or a row or run that is wrong; ``column`` is empty for a whole row."""

    table: str
    cell: str
    column: str = ""
    written: Value = None
    recomputed: Value = None
    note: str = ""


@dataclass(frozen=True)
class Check:
    """A written row, the values that it must have, and what else is wrong with it."""

    table: str
    cell: str
    written: Mapping[str, Any]
    values: Mapping[str, Any]
    notes: Sequence[str] = ()

    def run(self) -> tuple[int, list[Mismatch]]:
        """Return how many written values were compared, and what is wrong. Nulls do not count."""
        wrong = [Mismatch(self.table, self.cell, note=note) for note in self.notes]
        for column, value in self.values.items():
            if isinstance(value, list):
                for note in _wrong_runs(column, self.written[column] or (), value):
                    wrong.append(Mismatch(self.table, self.cell, column, note=note))
        # Numbers of other runs would repeat the same mismatch.
        compared = {
            column: value
            for column, value in self.values.items()
            if not isinstance(value, list) and (not wrong or isinstance(value, str | bool))
        }
        for column, value in compared.items():
            written = self.written[column]
            if not self._is_equal(column, written, value):
                known = None if isinstance(value, float) and math.isnan(value) else value
                wrong.append(Mismatch(self.table, self.cell, column, written, known))
        return sum(self.written[column] is not None for column in compared), wrong

    def _is_equal(self, column: str, written: Value, value: Value) -> bool:
        if value is None or isinstance(value, str | bool):
            return written == value
        if written is None or math.isnan(value):
            return written is None and math.isnan(value)
        tolerance = 1e-9
        if column.endswith(("_lower", "_upper")):
            # Of more seeds both computations draw their resamples.
            tolerance = 1e-7 if self.values["seeds"] <= COUNTED_SEEDS else 0.02
        return math.isclose(float(written), value, rel_tol=tolerance, abs_tol=1e-12)


def _wrong_runs(column: str, listed: Sequence[str], wanted: Sequence[str]) -> Iterator[str]:
    for name in dict.fromkeys(listed):
        if name not in wanted:
            yield f"run {name} does not belong in {column}, or is not there"
        elif listed.count(name) > 1:
            yield f"run {name} is there {listed.count(name)} times in {column}"
    for name in wanted:
        if name not in listed:
            yield f"run {name} is not in {column}: run `ncfbench report` again"
