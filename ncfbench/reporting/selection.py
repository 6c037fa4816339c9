"""Selection of runs by their settings, and of tables and figures by their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ncfbench.config import RunConfig, all_settings, identity_of
from ncfbench.errors import UsageError, nearest
from ncfbench.reporting.table import Table
from ncfbench.runs.arms import shared_settings
from ncfbench.runs.folder import RunRecord

LETTERS = {
    "b": "batch_size",
    "s": "stratum_size",
    "k": "negatives",
    "rate": "learning_rate",
    "lr": "learning_rate",
}
"""Settings by their short names in labels."""


class Filter:
    """Keeps runs whose settings have one of the wanted values.

    A run whose sampler, encoder or loss does not use a setting is kept whatever is wanted of it: a
    baseline without strata stays beside strata of one size.

    Args:
        wanted: values by setting, such as ``{"sampler": ["iid", "ns"], "batch_size": [128]}``.
        records: the runs to choose among.

    Raises:
        UsageError: no such setting, a malformed value, or one that no run has.
    """

    def __init__(self, wanted: Mapping[str, Iterable[Any]], records: Sequence[RunRecord]) -> None:
        known = dict(all_settings())
        for record in records:
            known |= record.config.settings
        self._settings = known
        self._wanted: dict[str, list[Any]] = {}
        for given, values in wanted.items():
            name = LETTERS.get(given, given.replace("-", "_").rstrip("_"))
            if name not in known:
                raise UsageError(
                    f"Unknown setting {given!r}{nearest(name, known)} Valid: {', '.join(known)}."
                )
            found = [known[name].convert(value) for value in values]
            present = dict.fromkeys(self._value(record.config, name) for record in records)
            for value in found:
                if present and value not in present:
                    names = [str(one) for one in present if one is not None]
                    raise UsageError(
                        f"No run has {name} = {value}{nearest(str(value), names)} The runs have:"
                        f" {', '.join(names) or 'none'}."
                    )
            self._wanted.setdefault(name, []).extend(found)

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def choose(self, records: Sequence[RunRecord]) -> list[RunRecord]:
        """Return the wanted runs.

        Runs that are compared with each other are all left out if some of them use a setting and
        none has a wanted value.
        """
        groups: dict[tuple[str, ...], list[RunRecord]] = {}
        for record in records:
            groups.setdefault(_group(record), []).append(record)
        left_out = {
            key
            for key, own in groups.items()
            for name, values in self._wanted.items()
            if (found := {self._value(record.config, name) for record in own} - {None})
            and found.isdisjoint(values)
        }
        return [
            record
            for record in records
            if _group(record) not in left_out and self._keeps(record.config)
        ]

    def _keeps(self, config: RunConfig) -> bool:
        own = ((self._value(config, name), values) for name, values in self._wanted.items())
        return all(value is None or value in values for value, values in own)

    def keeps_row(self, row: Mapping[str, Any]) -> bool:
        """Return whether the columns that name settings have wanted values; null counts as such."""
        return all(row.get(name) in (None, *values) for name, values in self._wanted.items())

    def _value(self, config: RunConfig, name: str) -> Any:
        """Return a run's value of a setting; None where it is not used."""
        is_shared = not self._settings[name].used_by
        values = config.to_dict() if is_shared else identity_of(config)
        return values.get(name)


def _group(record: RunRecord) -> tuple[str, ...]:
    """Return what runs have in common that are compared with each other."""
    shared = shared_settings(record.config)
    return (record.data_fingerprint, *(f"{name}={shared[name]}" for name in sorted(shared)))


def parse_only(assignments: Sequence[str]) -> dict[str, list[str]]:
    """Return values by setting of ``--only KEY=VALUE[,VALUE]``; several of a key add up.

    Raises:
        UsageError: one is not of that form.
    """
    found: dict[str, list[str]] = {}
    for text in assignments:
        key, equals, values = text.partition("=")
        own = [value.strip() for value in values.split(",") if value.strip()]
        if not equals or not key.strip() or not own:
            raise UsageError(
                f"--only {text!r} is not of the form KEY=VALUE, for example --only sampler=iid,ns."
            )
        found.setdefault(key.strip(), []).extend(own)
    return found


def unique(tables: Iterable[Table]) -> list[Table]:
    """Return the tables, with a number added to names that are taken: ``accounts-2``."""
    found: dict[str, Table] = {}
    for table in tables:
        name, number = table.name, 2
        while name in found:
            name, number = f"{table.name}-{number}", number + 1
        found[name] = table.renamed(name)
    return list(found.values())


def choose(names: Iterable[str], wanted: Sequence[str], kind: str) -> list[str]:
    """Return the names that are wanted: those given, or all that begin with a given one.

    Args:
        wanted: such as ``speedup-sg``, or ``speedup`` for all whose name begins so; all where there
            is none.
        kind: ``table`` or ``figure``, for the message.

    Raises:
        UsageError: there is none of a name.
    """
    known = list(names)
    if not wanted:
        return known
    found: dict[str, None] = {}
    for name in wanted:
        own = [name] if name in known else [one for one in known if one.startswith(f"{name}-")]
        if not own:
            raise UsageError(
                f"There is no {kind} {name!r}{nearest(name, known)} --{kind} list names them all."
            )
        found |= dict.fromkeys(own)
    return [name for name in known if name in found]
