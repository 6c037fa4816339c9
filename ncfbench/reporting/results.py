"""Results: everything that a folder of runs has to report, and the reading of it."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from ncfbench.config import Folder, Locations
from ncfbench.data.store import read_manifest
from ncfbench.errors import DataError, UsageError, nearest, shown
from ncfbench.reporting import frames
from ncfbench.reporting.answers import Answer, find_answers
from ncfbench.reporting.claims import judge_claims
from ncfbench.reporting.floors import TITLES, FloorResult, find_floors
from ncfbench.reporting.frames import Run, group
from ncfbench.reporting.profiles import with_profile_times
from ncfbench.reporting.rows import Comparison, compare
from ncfbench.reporting.selection import free_name, left_out, select, wanted_values
from ncfbench.reporting.table import Table
from ncfbench.reporting.views.answers import answer_frame, answer_tables, as_rows, detail_tables
from ncfbench.reporting.views.paper import beside_tables, claims_table
from ncfbench.reporting.views.results import recall_tables, speedup_tables
from ncfbench.reporting.views.sentences import deployed_table
from ncfbench.runs.folder import RunRecord, export, read_all
from ncfbench.storage import schemas, tables

FILE = "datasets.json"
"""File beside the runs that says what their data sets were prepared from."""
Manifest: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = list[dict[str, Any]]


@dataclass(frozen=True)
class Results:
    """Runs of a folder, compared.

    Attributes:
        comparisons: the runs, those together that compare, with their rows.
        profiled: the same with the times of profiles, where some were asked for.
        manifests: of the data sets that are known, by fingerprint.
        floors: of the data sets that are here or whose floors are kept, by fingerprint.
        races: answers of the races below the folder that say what to deploy, by name.
        problems: messages about what cannot be read and was left out.
        left_out: messages about runs that are not over, or that a newer one replaces.
        locations: ``--data-dir`` and ``--runs-dir`` to repeat in commands.
        is_filtered: True if some runs were left out on purpose, or another baseline was asked for:
            then nothing is written beside the runs.
    """

    runs_dir: Path
    comparisons: Sequence[Comparison]
    profiled: Sequence[Comparison]
    manifests: Mapping[str, Manifest]
    floors: Mapping[str, Sequence[FloorResult]]
    races: Mapping[str, Manifest]
    problems: Sequence[str]
    left_out: Sequence[str]
    locations: Mapping[str, str]
    is_filtered: bool = False

    @property
    def groups(self) -> list[Sequence[Run]]:
        """Rows of the frame ``arms``, those together that compare."""
        return [each.runs for each in self.comparisons]

    @cached_property
    def runs(self) -> list[Run]:
        """The compared runs."""
        return [run for runs in self.groups for run in runs]

    @cached_property
    def arms(self) -> pa.Table:
        """The frame ``arms``: a row for each run (:data:`ncfbench.storage.schemas.ARMS`)."""
        return frames.arms_table(self.runs)

    @cached_property
    def probes(self) -> pa.Table:
        """The frame ``probes``: a row for each run and probe."""
        return frames.probes_table(self.runs)

    @property
    def speedup(self) -> Rows:
        """Rows of ``speedup.parquet``."""
        return [row for each in self.comparisons for row in each.speedups]

    @property
    def recall(self) -> Rows:
        """Rows of ``recall.parquet``."""
        return [row for each in self.comparisons for row in each.recalls]

    @cached_property
    def tables(self) -> list[Table]:
        """All tables of the runs, each with its section: ``answer``, ``main``, ``detail`` or
        ``paper``.
        """
        deployed = [(row["dataset"], row["deploy"]) for row in self.answer_rows if row["deploy"]]
        deployed += [(name, race["deploy"]) for name, race in self.races.items()]
        has_several, compared = len(deployed) > 1 or bool(self.races), self.comparisons
        answers = [deployed_table(deployed)] * has_several
        sections = {
            "answer": answers + answer_tables(self.answers, self.locations),
            "main": speedup_tables([*compared, *self.profiled]) + recall_tables(compared),
            "detail": detail_tables(self.answers),
            "paper": [claims_table(self.claims)] * bool(self.claims) + self.beside_paper,
        }
        found: dict[str, Table] = {}
        for section, own in sections.items():
            for table in own:
                name = free_name(table.name, found)
                found[name] = replace(table, name=name, section=section)
        return list(found.values())

    @cached_property
    def answers(self) -> list[Answer]:
        """The answer of each data set whose runs have recall."""
        return find_answers(self.runs, self.floors)

    @cached_property
    def answer_rows(self) -> Rows:
        """The answers as plain objects."""
        return as_rows(self.answers, self.locations)

    @property
    def unfitted(self) -> list[str]:
        """Names of the data sets that are here and have no floors."""
        digests = {digest for digest, floors in self.floors.items() if not floors}
        runs = (run for run in self.runs if run.data_fingerprint in digests)
        return [*dict.fromkeys(run.config.dataset for run in runs)]

    @property
    def document(self) -> dict[str, Any]:
        """The answers and the rows of tables as plain objects, for JSON."""
        rows = {name: rows for name, rows in self.frames().items() if name != "answers"}
        return {"answers": self.answer_rows, **rows}

    def frames(self, *, full: bool = False) -> dict[str, Rows]:
        """Return rows of numbers by name: those of answers, of the paper's tables and of claims.

        Args:
            full: with those of runs and of probes.
        """
        found: dict[str, Rows] = {
            "answers": answer_frame(self.answers),
            "speedup": self.speedup,
            "recall": self.recall,
            "claims": self.claims,
        }
        timed = [
            row | {"settings": ", ".join(filter(None, (row["settings"], each.timed_by)))}
            for each in self.profiled
            for row in each.speedups
        ]
        found |= {"profiled": timed} if timed else {}
        more = {"runs": self.arms, "probes": self.probes} if full else {}
        return found | {name: table.to_pylist() for name, table in more.items()}

    @cached_property
    def claims(self) -> Rows:
        """The paper's claims that do not depend on its hardware, judged by these runs."""
        if any(runs[0].chosen_baseline for runs in self.groups):
            return []
        return judge_claims([*self.comparisons, *self.profiled])

    @cached_property
    def beside_paper(self) -> list[Table]:
        """Our speedups and recalls beside those that the paper printed."""
        return beside_tables(self.comparisons, self.manifests)

    def write(self, folder: Path | None = None) -> list[Path]:
        """Write the speedup and the recall table, the data sets' manifests and their floors; return
        the paths.

        A table that has these rows already is left alone: looking at results does not change them.
        Nothing is written beside the runs where only some of them were wanted.

        Args:
            folder: the runs' folder by default.

        Raises:
            DataError: the folder cannot be written.
        """
        if not self.comparisons or (self.is_filtered and folder is None):
            return []
        folder = folder or self.runs_dir
        floors = [
            dict(floor.row)
            for of_data in self.floors.values()
            for floor in sorted(of_data, key=lambda floor: [*TITLES].index(floor.row["floor"]))
        ]
        paths = [_keep_rows(folder / "speedup.parquet", self.speedup, schemas.SPEEDUP)]
        paths.append(_keep_rows(folder / "recall.parquet", self.recall, schemas.RECALL))
        if floors:
            paths.append(_keep_rows(folder / "floors.parquet", floors, schemas.FLOOR))
        if self.manifests:
            paths.append(folder / FILE)
            tables.write_json(paths[-1], dict(self.manifests))
        return paths

    def export(self, folder: Path) -> int:
        """Copy the tables, those of audits and profiles, and the compared runs without checkpoints;
        return the number of runs.

        Raises:
            DataError: the folder cannot be written.
        """
        names = (*schemas.AUDIT_TABLES, *schemas.PROFILE_TABLES)
        with tables.storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for path in (self.runs_dir / f"{name}.parquet" for name in names):
                if path.exists():
                    shutil.copyfile(path, folder / path.name)
        export(self.runs, folder)
        self.write(folder)
        return len(self.runs)


def collect(
    runs_dir: Folder = None,
    data_dir: Folder = None,
    *,
    only: Mapping[str, Iterable[Any]] | None = None,
    baseline: str | None = None,
    profiles: Path | None = None,
    locations: Mapping[str, str] | None = None,
) -> Results:
    """Compare the runs of a folder; the tables are ``results.tables``, rows ``results.speedup``.

    Args:
        data_dir: prepared data sets, whose manifests name their source.
        only: values by setting of the runs to compare, such as ``{"sampler": ["iid", "ns"]}``.
        baseline: the sampler that speedups are measured against; by default the loss's own, whose
            figures alone stand beside the paper's.
        profiles: where ``ncfbench profile`` wrote its tables, for speedups with their times.
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
    present = dict.fromkeys(run.config.sampler for run in runs)
    if baseline is not None and present and baseline not in present:
        text = f"No run has the sampler {baseline!r}{nearest(baseline, present)}"
        raise UsageError(f"{text} The runs have: {', '.join(present)}.")
    manifests, unknown = _manifests(runs, folders.runs_dir, folders.data_dir)
    floors, damaged = find_floors(runs, folders.runs_dir, folders.data_dir)
    comparisons = compare(grouped)
    races, torn = ({}, []) if wanted else _races(folders.runs_dir)
    profiled = []
    if profiles is not None:
        path = profiles / "costmodel.parquet"
        rows = tables.read_rows(path, schemas.COSTMODEL) if path.exists() else []
        profiled = with_profile_times(comparisons, rows)
        if rows and comparisons and not profiled:
            problems.append(f"No profile in {shown(profiles)} fits these runs, or gives a ratio.")
        if not rows:
            command = shlex.join(["ncfbench", "profile", "--runs-dir", str(profiles)])
            raise UsageError(f"No profile in {shown(profiles)}. Measure one: {command}")
    return Results(
        runs_dir=folders.runs_dir,
        comparisons=comparisons,
        profiled=profiled,
        manifests=manifests,
        floors=floors,
        races=races,
        problems=[*problems, *unknown, *damaged, *torn],
        left_out=left_out(records, runs, locations),
        locations=locations,
        is_filtered=bool(wanted) or baseline is not None,
    )


def _races(runs_dir: Path) -> tuple[dict[str, Manifest], list[str]]:
    """Return the answers of the race of a folder and those below it that say what to deploy, by
    their folders' names, and messages about what cannot be read.
    """
    races: dict[str, Manifest] = {}
    problems = []
    for path in [*runs_dir.glob("answer.json"), *sorted(runs_dir.glob("*/*/answer.json"))]:
        try:
            answer = tables.read_json(path)
        except DataError as error:
            problems.append(f"Skipped {path.parent.name}: {error}")
            continue
        if isinstance(answer, dict) and answer.get("deploy"):
            races[path.resolve().parent.name] = answer | {"folder": shown(path.parent)}
    return races, problems


def _manifests(
    runs: Sequence[RunRecord], runs_dir: Path, data_dir: Path
) -> tuple[dict[str, Manifest], list[str]]:
    """Return the known manifests by fingerprint, and messages about what cannot be read."""
    manifests: dict[str, Manifest] = {}
    problems = []
    path = runs_dir / FILE
    try:
        kept = tables.read_json(path) if path.exists() else {}
        entries = kept.items() if isinstance(kept, dict) else [("", None)]
        if not all(
            isinstance(of, dict) and of.get("fingerprint") == digits for digits, of in entries
        ):
            raise DataError(f"{path} is damaged: it does not describe data sets.")
    except DataError as error:
        kept = {}
        problems.append(f"Skipped {FILE}: {error}")
    for fingerprint, name in dict.fromkeys(
        (run.data_fingerprint, run.config.dataset) for run in runs
    ):
        prepared = read_manifest(data_dir, name)
        if prepared is not None and prepared.get("fingerprint") == fingerprint:
            manifests[fingerprint] = prepared
        elif fingerprint in kept:
            manifests[fingerprint] = kept[fingerprint]
    return manifests, problems


def _keep_rows(path: Path, rows: Rows, schema: pa.Schema) -> Path:
    """Write a table, unless it is there with these rows.

    Raises:
        DataError: the folder cannot be written.
    """
    fresh = [{name: row.get(name) for name in schema.names} for row in rows]
    try:
        kept = tables.read_table(path, schema).select(schema.names).to_pylist()
    except DataError:
        kept = None
    if kept != fresh:
        tables.write_rows(path, rows, schema)
    return path
