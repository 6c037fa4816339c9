"""Races below a folder of runs as a table, and the answer of a race of commands in words."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ncfbench.reporting.beside import Race
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.table import Col, Table


def race_tables(races: Sequence[Race]) -> list[Table]:
    """Return the table of the races, with the commands that show their answers; none without."""
    cols = [
        Col("race", lambda race: f"{race.command} {race.folder.name}"),
        Col("recommended", lambda race: race.answer.get("recommended"), wraps=True),
        Col("tied with it", lambda race: ", ".join(race.answer.get("tied") or ()), wraps=True),
        Col("s spent", "spent_seconds", three_digits),
        Col("", lambda race: "over" if race.is_over else "stopped", align="left"),
    ]
    notes = [show_command(race) for race in races]
    if not all(race.is_over for race in races):
        notes.insert(0, "stopped: its own command, repeated, begins again.")
    title = "Races below this folder, with the commands that show their answers"
    return [Table.of(title, cols, races, notes, name="races")] if races else []


def as_rows(races: Sequence[Race]) -> list[dict[str, Any]]:
    """Return races as plain objects, for JSON."""
    return [
        {
            "command": race.command,
            "folder": str(race.folder),
            "recommended": race.answer.get("recommended"),
            "tied": race.answer.get("tied") or [],
            "spent_seconds": race.spent_seconds,
            "is_over": race.is_over,
            "show": show_command(race),
        }
        for race in races
    ]


def show_command(race: Race) -> str:
    """Return the command that shows the answer of a race."""
    return shlex.join(["ncfbench", "report", str(race.folder)])


def describe_commands(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of a race of commands with what is printed of one: a headline, and the
    command of the recommended arm.

    Args:
        found: the answer as ``ncfbench race`` keeps it.
    """
    best = next((arm for arm in found["arms"] if arm["status"] == "recommended"), None)
    if best is None or found["level"] is None:
        return {"headline": "No arm is recommended.", "trust": [], "next": [], **found}
    metric, level = found["metric"], three_digits(found["level"])
    when = "" if best["seconds"] is None else f" in {three_digits(best['seconds'])} s"
    said = f"Use {best['arm']}: it reaches {metric} {level}{when}."
    if found["tied"]:
        said += f" Statistically tied with it: {', '.join(found['tied'])}."
    steps = [{"purpose": "To train it", "command": best["command"]}]
    return {"headline": said, "trust": [], "next": steps, **found}


def command_tables(found: Mapping[str, Any]) -> list[Table]:
    """Return the arms of a race of commands as a table; none of another race."""
    cols = [
        Col("", "arm"),
        Col("s to the level", "seconds", three_digits),
        Col("best", "best", three_digits),
        Col("s trained", "trained_seconds", three_digits),
        Col("", "status", align="left"),
    ]
    return [Table.of("Arms", cols, found["arms"], name="arms")] if "arms" in found else []
