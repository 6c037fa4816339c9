"""Reading a folder of runs: what belongs together, what lies beside it, and what is left out."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ncfbench.config import Folder, Locations
from ncfbench.errors import DataError, UsageError, nearest, shown
from ncfbench.paper.cells import judge_cells
from ncfbench.reporting.commands import run_command
from ncfbench.reporting.comparison import Comparison, group
from ncfbench.reporting.manifests import find_manifests, label_comparisons
from ncfbench.reporting.results import SWEEPS, Results, Rows
from ncfbench.reporting.rows import recall_rows, speedup_rows
from ncfbench.reporting.selection import Filter
from ncfbench.runs import folder as runs
from ncfbench.runs.arms import Variant
from ncfbench.runs.folder import RunRecord
from ncfbench.storage import schemas, tables


def collect(
    runs_dir: Folder = None,
    data_dir: Folder = None,
    *,
    allow_mixed: bool = False,
    only: Mapping[str, Iterable[Any]] | None = None,
    baseline: str | None = None,
    profiles: Path | None = None,
    locations: Mapping[str, str] | None = None,
) -> Results:
    """Compare the runs of a folder; the tables are ``results.tables``, rows ``results.speedup``.

    Args:
        data_dir: prepared data sets, whose manifests say whether their text is the paper's.
        allow_mixed: divide times of different environments too.
        only: values by setting of the runs to compare, such as ``{"sampler": ["iid", "ns"]}``.
        baseline: the sampler that speedups are measured against; by default the loss's own, whose
            figures alone stand beside the paper's.
        profiles: where ``ncfbench profile`` wrote its tables; by default beside the runs.
        locations: ``--data-dir`` and ``--runs-dir`` to repeat in commands.

    Raises:
        DataError: a table cannot be read.
        UsageError: ``only`` names a setting that there is not, or a value that no run has; no run
            has the baseline's sampler; the folder of profiles has none.
    """
    folders = Locations.of(data_dir, runs_dir)
    runs_dir, data_dir, locations = folders.runs_dir, folders.data_dir, locations or {}
    records, problems = runs.read_all(runs_dir)
    chosen = Filter(only or {}, records)
    records = chosen.choose(records)
    comparisons = [replace(each, chosen_baseline=baseline) for each in group(records)]
    if baseline is not None:
        _check_baseline(baseline, comparisons)
    left_out = _left_out(records, comparisons, locations)
    manifests, unknown = find_manifests(comparisons, runs_dir, data_dir)
    comparisons = label_comparisons(comparisons, manifests)
    problems += unknown
    beside: dict[str, Rows] = {}
    for place, wanted in (
        (runs_dir, schemas.AUDIT_TABLES),
        (profiles or runs_dir, schemas.PROFILE_TABLES),
    ):
        for name, schema in wanted.items():
            path = place / f"{name}.parquet"
            try:
                rows = tables.read_rows(path, schema) if path.exists() else []
            except DataError as error:
                problems.append(str(error))
                continue
            if rows := list(filter(chosen.keeps_row, rows)):
                beside[name] = rows
    if profiles is not None and not beside.keys() & schemas.PROFILE_TABLES.keys():
        raise UsageError(
            f"No profile in {shown(profiles)} that fits. Measure one with: ncfbench profile"
            f" --runs-dir {shlex.quote(str(profiles))}"
        )
    sweeps, unreadable = _sweeps(runs_dir)
    problems += unreadable
    speedups = [
        speedup_rows(each, allow_mixed=allow_mixed, locations=locations) for each in comparisons
    ]
    recalls = [recall_rows(each, locations=locations) for each in comparisons]
    if chosen:  # what was left out on purpose is not missing
        speedups, recalls = (
            [[row for row in rows if row["status"] != "missing"] for rows in each]
            for each in (speedups, recalls)
        )
    return Results(
        runs_dir=runs_dir,
        comparisons=comparisons,
        speedups=speedups,
        recalls=recalls,
        verdicts=[] if baseline else judge_cells(speedups, recalls, manifests),
        manifests=manifests,
        beside=beside,
        sweeps=sweeps,
        problems=problems,
        left_out=left_out,
        allow_mixed=allow_mixed,
        locations=locations,
        is_filtered=bool(chosen) or baseline is not None,
    )


def _check_baseline(baseline: str, comparisons: Sequence[Comparison]) -> None:
    present = dict.fromkeys(arm.sampler for each in comparisons for arm in each.arms)
    if present and baseline not in present:
        raise UsageError(
            f"No run has the sampler {baseline!r}{nearest(baseline, present)} The runs have:"
            f" {', '.join(present)}."
        )


def _left_out(
    records: Sequence[RunRecord], comparisons: Sequence[Comparison], locations: Mapping[str, str]
) -> list[str]:
    """Return a message about each run that is in no comparison, with the command to go on with."""
    compared = {
        run.name for each in comparisons for seeds in each.arms.values() for run in seeds.values()
    }
    found = []
    for record in records:
        status, config = record.summary["status"], record.config
        if record.name in compared:
            continue
        if status in ("finished", "diverged"):
            found.append(f"{record.name} is left out: a newer run has its settings, data and seed.")
            continue
        command = run_command(config, Variant.of(config), config.seed, locations) + " --resume"
        if config.tuned or any(record.environment.get("interleaved") or ()):
            command = "the command of its sweep or race"
        found.append(
            f"{record.name} is {status} at iteration {record.summary['iterations']:,}, and left"
            f" out. To continue it: {command}"
        )
    return found


def _sweeps(runs_dir: Path) -> tuple[dict[str, str], list[str]]:
    """Return the texts of the folder's sweep files by name, and messages about unreadable ones."""
    found, problems = {}, []
    for path in sorted((runs_dir / SWEEPS).glob("*.toml")):
        try:
            text = path.read_text(encoding="utf-8")
            tomllib.loads(text)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            problems.append(f"Skipped {path.name}: {error}")
            continue
        found[path.stem] = text
    return found, problems
