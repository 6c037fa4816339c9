"""Selection of runs by their settings, and of tables and figures by their names."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ncfbench.config import RunConfig, all_settings, identity_of
from ncfbench.errors import UsageError, nearest, refusal
from ncfbench.reporting.frames import compared_by, grouped
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.labels import SHORT, run_command

T = TypeVar("T")
LETTERS = {letter: name for name, letter in SHORT.items()} | {"rate": "learning_rate"}
"""Settings by their short names."""
Wanted = Mapping[str, Sequence[Any]]
"""Wanted values by setting."""


def wanted_values(given: Mapping[str, Iterable[Any]], records: Sequence[RunRecord]) -> Wanted:
    """Return the wanted values of settings, such as ``{"sampler": ["iid", "ns"]}``.

    Args:
        given: values as a user gives them, by names of settings or :data:`LETTERS`.
        records: the runs to choose among.

    Raises:
        UsageError: no such setting, a malformed value, or one that no run has.
    """
    known = dict(all_settings())
    for record in records:
        known |= record.config.settings
    wanted: dict[str, list[Any]] = {}
    for word, values in given.items():
        name = LETTERS.get(word, word.replace("-", "_").rstrip("_"))
        if name not in known:
            raise UsageError(refusal("Unknown setting", word, known))
        present = dict.fromkeys(_value(record.config, name) for record in records)
        for value in map(known[name].convert, values):
            if present and value not in present:
                names = [str(other) for other in present if other is not None] or ["none"]
                text = f"No run has {name} = {value}{nearest(str(value), names)}"
                raise UsageError(f"{text} The runs have: {', '.join(names)}.")
            wanted.setdefault(name, []).append(value)
    return wanted


def select(records: Sequence[RunRecord], wanted: Wanted) -> list[RunRecord]:
    """Return the wanted runs.

    A run that does not use a setting is kept whatever is wanted of it: a baseline without strata
    stays beside strata of one size. Runs that are compared with each other are all left out if some
    of them use a setting and none has a wanted value.
    """
    kept = set()
    for group in grouped(records, compared_by).values():
        used = {name: {_value(record.config, name) for record in group} - {None} for name in wanted}
        if not any(used[name] and used[name].isdisjoint(wanted[name]) for name in wanted):
            kept |= {id(record) for record in group}
    return [
        record
        for record in records
        if id(record) in kept
        and all(_value(record.config, name) in (None, *wanted[name]) for name in wanted)
    ]


def _value(config: RunConfig, name: str) -> Any:
    """Return a run's value of a setting; None where it is not used."""
    setting = config.settings.get(name)
    is_shared = setting is not None and not setting.used_by
    return (config.to_dict() if is_shared else identity_of(config)).get(name)


def free_name(name: str, taken: Container[str]) -> str:
    """Return a name, with a number added to one that is taken."""
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return name if name not in taken else next(one for one in numbered if one not in taken)


def choose(parts: Mapping[str, T], wanted: Sequence[str]) -> dict[str, T]:
    """Return the parts that are wanted: those of a given name, or whose names begin with it.

    Args:
        wanted: such as ``speedup-sg``, or ``speedup`` for all whose name begins so; all where there
            is none.

    Raises:
        UsageError: there is none of a name.
    """
    found = set() if wanted else {*parts}
    for name in wanted:
        own = {name} & {*parts} or {one for one in parts if one.startswith(f"{name}-")}
        if not own:
            raise UsageError(refusal("There is no table", name, parts))
        found |= own
    return {name: part for name, part in parts.items() if name in found}


def left_out(
    records: Sequence[RunRecord], runs: Sequence[RunRecord], locations: Mapping[str, str]
) -> list[str]:
    """Return a message about each run that is not compared, with the command to go on with."""
    compared = {run.name for run in runs}
    messages = []
    for record in records:
        status, config = record.summary["status"], record.config
        reason = "a newer run has its settings, data and seed."
        if status not in ("finished", "diverged"):
            command = run_command(config, locations)
            if any(record.environment.get("interleaved") or ()):
                command = "the command of its sweep (a race begins anew)"
            at = f"{record.summary['iterations']:,}"
            reason = f"it is {status} at iteration {at}. To continue it: {command}"
        if record.name not in compared:
            messages.append(f"{record.name} is left out: {reason}")
    return messages
