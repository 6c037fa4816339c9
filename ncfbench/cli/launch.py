"""``ncfbench sweep --launcher slurm``: submit the cells of a sweep as an array job."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ncfbench.cli.output import print_json, print_views, say
from ncfbench.errors import UsageError

if TYPE_CHECKING:
    from ncfbench.config import Locations
    from ncfbench.sweeps.files import Sweep
    from ncfbench.sweeps.slurm import Launch


OWN_OPTIONS = [
    "array",
    "error",
    "job-name",
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "open-mode",
    "output",
    "signal",
]
"""Options of ``sbatch`` that submitit or this module sets."""
SAVING_SECONDS = 120
"""Slurm warns a task this long before its time limit."""
SHORTEST_MINUTES = 5
"""A shorter time limit leaves no time to train between the start and the warning."""


def launch(
    sweep: Sweep,
    locations: Locations,
    assignments: Sequence[str],
    tell: Callable[[str], None],
    *,
    dry_run: bool,
    json_: bool,
) -> None:
    """Submit the cells that are neither over nor in the queue; or print what would be submitted.

    Args:
        assignments: options of ``sbatch``.
        tell: shows a message of progress, or nothing.
    """
    from ncfbench.sweeps import slurm
    from ncfbench.sweeps.table import cells_table

    parameters = slurm_parameters(assignments)
    found = slurm.launch(sweep, locations, parameters, dry_run=dry_run, tell=tell)
    for problem in (*found.queue.problems, *found.status.problems):
        say(f"Warning: {problem}")
    rows = _rows(found)
    if json_:
        print_json(_described(sweep, found, rows, parameters))
        return
    counts = f"{len(found.left)} of {len(rows)} cells"
    waiting = sum(row["status"] == "in queue" for row in rows)
    if dry_run:
        options = "".join(f" {key}={value}" for key, value in parameters.items())
        print_views(cells_table(sweep.title, rows), f"To submit: {counts}, with{options}.")
    elif found.folder is not None:
        jobs = ", ".join(dict.fromkeys(job.partition("_")[0] for job in found.submitted.values()))
        queued = f" {waiting} were in the queue already." if waiting else ""
        print_views(f"Submitted job {jobs}: {counts}.{queued} Logs: {found.folder}")
    elif waiting:
        print_views(f"Nothing to submit: {waiting} of {len(rows)} cells are in the queue already.")
    else:
        print_views(
            f"All {len(rows)} cells are over. To compare them:"
            f" {shlex.join(['ncfbench', 'report', '--runs-dir', str(locations.runs_dir)])}"
        )


def _rows(found: Launch) -> list[dict[str, Any]]:
    """Return a row for each cell, with its job where it is in the queue."""
    from ncfbench.sweeps.table import cell_rows

    result = cell_rows(found.status, failed=found.queue.failures)
    for config, row in zip(found.status.states, result, strict=True):
        row["job"] = found.queue.jobs.get(config) or found.submitted.get(config)
        if found.status.states[config].is_over:
            row["status"], row["message"] = found.status.states[config].status, None
        elif config in found.queue.jobs:
            row["status"] = "in queue"
    return result


def _described(
    sweep: Sweep, found: Launch, rows: Sequence[Mapping[str, Any]], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "sweep": sweep.name,
        "title": sweep.title,
        "file": found.file,
        "folder": found.folder,
        "parameters": parameters,
        "submitted": list(found.submitted.values()),
        "cells": rows,
        "left_out": [
            {"reason": each.reason, "combinations": each.combinations}
            for each in found.grid.left_out
        ],
        "problems": [*found.queue.problems, *found.status.problems],
    }


def slurm_parameters(assignments: Sequence[str]) -> dict[str, Any]:
    """Return submitit's parameters for ``KEY=VALUE`` and ``KEY`` options of ``sbatch``.

    ``array_parallelism`` (tasks at once) and ``signal_delay_s`` (seconds between the warning and
    the time limit) are submitit's own.

    Raises:
        UsageError: an option is malformed, not the user's to set, or the time limit is missing.
    """
    own: dict[str, int] = {"signal_delay_s": SAVING_SECONDS}
    more: dict[str, str | bool] = {}
    for text in assignments:
        key, equals, value = text.strip().removeprefix("--").partition("=")
        name = key.replace("-", "_")
        if not re.fullmatch(r"[a-z][a-z_-]*", key) or re.search(r"[\x00-\x1f\x7f]", value):
            raise UsageError(
                f"--slurm {text!r} is not of the form KEY=VALUE or KEY, for example --slurm"
                " partition=gpu."
            )
        if name.replace("_", "-") in OWN_OPTIONS:
            raise UsageError(f"--slurm {key}: the sweep sets that itself.")
        if name in ("array_parallelism", "signal_delay_s"):
            if not re.fullmatch("[1-9][0-9]*", value):
                raise UsageError(f"--slurm {text}: it must be a whole number above 0.")
            own[name] = int(value)
        else:
            more[name] = value if equals else True
    time = str(more.pop("time", ""))
    minutes = _minutes(time)
    if minutes is None or minutes < SHORTEST_MINUTES:
        raise UsageError(
            f"--launcher slurm needs the time limit of a task, of {SHORTEST_MINUTES} minutes or"
            f" more, for example --slurm time=2:00:00{f', not time={time}' if time else ''}. A task"
            " that needs longer is requeued and resumes."
        )
    specific = {f"slurm_{name}": value for name, value in own.items()}
    return {"timeout_min": minutes, "slurm_additional_parameters": more, **specific}


def _minutes(text: str) -> int | None:
    """Return a time limit as ``sbatch`` reads it, in whole minutes; None if it is none.

    The forms are minutes, minutes:seconds, hours:minutes:seconds, and days-hours with the same
    smaller units behind.
    """
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", text):
        return None
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    seconds = sum(unit * part for unit, part in zip(units, parts, strict=False))
    return math.ceil((86400 * int(days or 0) + seconds) / 60)
