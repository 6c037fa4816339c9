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
from ncfbench.reporting.frames import Run, group
from ncfbench.reporting.labels import run_command
from ncfbench.reporting.manifests import find_manifests
from ncfbench.reporting.results import SWEEPS, Results, Rows
from ncfbench.reporting.rows import recall_rows, speedup_rows
from ncfbench.reporting.selection import Wanted, keeps_row, select, wanted_values
from ncfbench.runs.arms import Variant
from ncfbench.runs.folder import RunRecord, read_all
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
    folders, locations = Locations.of(data_dir, runs_dir), locations or {}
    records, problems = read_all(folders.runs_dir)
    wanted = wanted_values(only or {}, records)
    records = select(records, wanted)
    grouped = group(records, baseline)
    runs = [run for compared in grouped for run in compared]
    if baseline is not None:
        _check_baseline(baseline, runs)
    manifests, unknown = find_manifests(runs, folders.runs_dir, folders.data_dir)
    labels = {digits: manifest.get("label", "") for digits, manifest in manifests.items()}
    comparisons = [
        [replace(run, data_label=labels.get(run.data_fingerprint, "")) for run in compared]
        for compared in grouped
    ]
    beside, unreadable = _tables_beside(folders.runs_dir, profiles or folders.runs_dir, wanted)
    if profiles is not None and not beside.keys() & schemas.PROFILE_TABLES.keys():
        raise UsageError(
            f"No profile in {shown(profiles)} that fits. Measure one with: ncfbench profile"
            f" --runs-dir {shlex.quote(str(profiles))}"
        )
    sweeps, broken = _sweeps(folders.runs_dir)
    speedups = [
        speedup_rows(each, allow_mixed=allow_mixed, locations=locations) for each in comparisons
    ]
    recalls = [recall_rows(each, locations=locations) for each in comparisons]
    if wanted:  # what was left out on purpose is not missing
        speedups, recalls = (
            [[row for row in rows if row["status"] != "missing"] for rows in by_comparison]
            for by_comparison in (speedups, recalls)
        )
    return Results(
        runs_dir=folders.runs_dir,
        comparisons=comparisons,
        speedups=speedups,
        recalls=recalls,
        verdicts=[] if baseline else judge_cells(speedups, recalls, manifests),
        manifests=manifests,
        beside=beside,
        sweeps=sweeps,
        problems=[*problems, *unknown, *unreadable, *broken],
        left_out=_left_out(records, runs, locations),
        allow_mixed=allow_mixed,
        locations=locations,
        is_filtered=bool(wanted) or baseline is not None,
    )


def _tables_beside(
    audits: Path, profiles: Path, wanted: Wanted
) -> tuple[dict[str, Rows], list[str]]:
    """Return the wanted rows of the tables that audits and profiles left in their folders, and
    messages about what cannot be read.
    """
    beside, problems = {}, []
    for folder, kinds in ((audits, schemas.AUDIT_TABLES), (profiles, schemas.PROFILE_TABLES)):
        for name, schema in kinds.items():
            path = folder / f"{name}.parquet"
            try:
                rows = tables.read_rows(path, schema) if path.exists() else []
            except DataError as error:
                problems.append(str(error))
                continue
            if kept := [row for row in rows if keeps_row(row, wanted)]:
                beside[name] = kept
    return beside, problems


def _check_baseline(baseline: str, runs: Sequence[Run]) -> None:
    present = dict.fromkeys(run.config.sampler for run in runs)
    if present and baseline not in present:
        raise UsageError(
            f"No run has the sampler {baseline!r}{nearest(baseline, present)} The runs have:"
            f" {', '.join(present)}."
        )


def _left_out(
    records: Sequence[RunRecord], runs: Sequence[Run], locations: Mapping[str, str]
) -> list[str]:
    """Return a message about each run that is not compared, with the command to go on with."""
    compared = {run.name for run in runs}
    messages = []
    for record in records:
        status, config = record.summary["status"], record.config
        if record.name in compared:
            continue
        if status in ("finished", "diverged"):
            reason = "a newer run has its settings, data and seed."
            messages.append(f"{record.name} is left out: {reason}")
            continue
        command = run_command(config, Variant.of(config), config.seed, locations) + " --resume"
        if config.tuned or any(record.environment.get("interleaved") or ()):
            command = "the command of its sweep or race"
        messages.append(
            f"{record.name} is {status} at iteration {record.summary['iterations']:,}, and left"
            f" out. To continue it: {command}"
        )
    return messages


def _sweeps(runs_dir: Path) -> tuple[dict[str, str], list[str]]:
    texts, problems = {}, []
    for path in sorted((runs_dir / SWEEPS).glob("*.toml")):
        try:
            text = path.read_text(encoding="utf-8")
            tomllib.loads(text)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            problems.append(f"Skipped {path.name}: {error}")
            continue
        texts[path.stem] = text
    return texts, problems
