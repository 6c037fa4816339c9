"""``ncfbench sweep --launcher slurm``: the cells of a sweep that are not finished as an array
job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from ncfbench.cli.output import print_json, print_views, say
from ncfbench.errors import DataError

if TYPE_CHECKING:
    from ncfbench.config import Locations, RunConfig
    from ncfbench.sweeps.grid import Grid, Sweep
    from ncfbench.sweeps.queued import Queue
    from ncfbench.sweeps.slurm import Job, Submission
    from ncfbench.sweeps.status import Survey


def launch(
    wanted: Sweep,
    grid: Grid,
    places: Locations,
    assignments: Sequence[str],
    tell: Callable[[str], None],
    *,
    dry_run: bool,
    json_: bool,
) -> None:
    """Submit the cells that are neither over nor in the queue; or print what would be submitted.

    Args:
        assignments: options of ``sbatch``.
        tell: shows messages of progress, or not.
    """
    from ncfbench.data import open_dataset
    from ncfbench.storage import locks
    from ncfbench.sweeps import queued, slurm
    from ncfbench.sweeps.status import survey

    given = slurm.options_of(assignments)
    slurm.require_plain(wanted.name, places)
    slurm.require_alike(grid.cells)
    names = dict.fromkeys(config.dataset for config in grid.cells)
    fingerprints = {
        dataset: open_dataset(places.data_dir, dataset, tell).fingerprint for dataset in names
    }
    # Two commands at once would both find the queue empty.
    with (
        nullcontext()
        if dry_run
        else locks.held(places.runs_dir / slurm.FOLDER, "submitting jobs from")
    ):
        # In this order: a task that ends in between is seen in the queue, and not taken for one
        # that never was.
        queue = queued.find(places.runs_dir, grid.cells)
        plan = _Plan(survey(places.runs_dir, grid.cells, fingerprints), queue)
        for problem in (*queue.problems, *plan.survey.problems):
            say(f"Warning: {problem}")
        job = slurm.Job(wanted.name, plan.left, places, given) if plan.left else None
        submission = None if job is None or dry_run else _submit(job)
    if json_:
        head = {
            "sweep": wanted.name,
            "title": wanted.title,
            **_described(job, submission, dry_run=dry_run),
        }
        left_out = [
            {"reason": each.reason, "combinations": each.combinations} for each in grid.left_out
        ]
        problems = [*queue.problems, *plan.survey.problems]
        print_json(head | plan.described() | {"left_out": left_out, "problems": problems})
    elif not plan.waiting and job is None:
        print_views(
            f"All {len(grid.cells)} cells are done. To compare them: ncfbench report --runs-dir"
            f" {places.runs_dir}"
        )
    elif job is None:
        print_views(f"{plan.note} Nothing is left to submit.")
    elif dry_run:
        if plan.waiting:
            tell(plan.note)
        typer.echo(job.script, nl=False)  # as it is, whatever a console makes of its paths
    else:
        what = "Submitted" if submission is None else f"Submitted batch job {submission.id}"
        where = f"script, settings and outputs: {job.folder}"
        print_views(
            *([plan.note] if plan.waiting else []),
            f"{what}: {len(plan.left)} of {len(grid.cells)} cells; {where}",
        )


@dataclass(frozen=True)
class _Plan:
    """What becomes of each cell."""

    survey: Survey
    queue: Queue

    @property
    def waiting(self) -> dict[RunConfig, str]:
        """Cells that are in the queue, and their tasks."""
        return {
            config: task
            for config, task in self.queue.tasks.items()
            if not self.survey.states[config].is_over
        }

    @property
    def left(self) -> list[RunConfig]:
        """Cells to submit."""
        return [
            config
            for config, state in self.survey.states.items()
            if not state.is_over and config not in self.queue.tasks
        ]

    @property
    def note(self) -> str:
        """What is left alone."""
        jobs = list(dict.fromkeys(task.partition("_")[0] for task in self.waiting.values()))
        which = f"job{'s' if len(jobs) > 1 else ''} {', '.join(jobs)}"
        count, of = len(self.waiting), len(self.survey.states)
        return (
            f"{count} of {of} cells {'is' if count == 1 else 'are'} in the queue already ({which}):"
            " left alone."
        )

    def described(self) -> dict[str, Any]:
        """The cells as JSON."""
        from ncfbench.sweeps.grid import labels

        names = labels(tuple(self.survey.states))

        def row(config: RunConfig) -> dict[str, Any]:
            state = self.survey.states[config]
            folder = None if state.folder is None else str(state.folder)
            return {
                "cell": names[config],
                "status": state.status,
                "folder": folder,
                "config": config.to_dict(),
            }

        return {
            "cells": [row(config) for config in self.left],
            "in_queue": [row(config) | {"task": task} for config, task in self.waiting.items()],
            "done": [row(config) for config, state in self.survey.states.items() if state.is_over],
        }


def _described(job: Job | None, submission: Submission | None, *, dry_run: bool) -> dict[str, Any]:
    """The job as JSON."""
    found = {
        "job": submission.id if submission else None,
        "cluster": submission.cluster if submission else None,
        "folder": str(job.folder) if job else None,
        "script": str(job.script_path) if job else None,
    }
    return found | ({"text": job.script if job else None} if dry_run else {})


def _submit(job: Job) -> Submission | None:
    """Write a job, hand it to Slurm, and keep what Slurm calls it."""
    from ncfbench.sweeps import queued, slurm

    submission = slurm.submit(job.write())
    if submission is None:
        say(
            f"Warning: {slurm.SUBMIT} did not say what it calls the job: while it waits, the same"
            " command submits it again."
        )
        return None
    try:
        queued.note(job.folder, submission)
    except DataError as error:
        raise DataError(
            f"Job {submission.id} is submitted, and to know of it later failed: {error}"
        ) from error
    return submission
