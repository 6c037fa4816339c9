"""Hundreds of damaged files: each is read with a warning, or refused in one paragraph that names
the file; nothing else happens.
"""

from __future__ import annotations

import gzip
import random
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damage import DAMAGES, HARMLESS, SOURCES
from typer.testing import CliRunner, Result

from ncfbench.cli import app
from ncfbench.data import store

CASES = [
    (source, name, damage)
    for source, made in SOURCES.items()
    for name in made.files
    for damage in DAMAGES
]
BINARY = {"r.parquet", "m.parquet", "r.csv.gz", "m.jsonl.gz"}
PLACED = (
    "latin-1 in the middle",
    "huge line",
    "open quote",
    "not a number",
    "infinite",
    "huge number",
)
"""Damages of one line of a text: where they are refused, the line is named."""

STATED = {
    "line twice",
    "everything twice",
    "compressed",
    "wrong delimiter",
    "last byte gone",
    "cut at random",
}
"""Damages that are told from what is left: where such a file is read, something is said."""


def prepare(words: list[str], data: Path) -> Result:
    return CliRunner().invoke(app, ["prepare", *words, "--data-dir", str(data), "--name", "x"])


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 200


@pytest.mark.parametrize("source", SOURCES)
def test_undamaged_files_are_prepared(tmp_path: Path, source: str) -> None:
    result = prepare(SOURCES[source].write(tmp_path / "files"), tmp_path / "data")
    assert result.exit_code == 0, result.stderr
    assert store.load(tmp_path / "data", "x").graph.n_links > 3


@pytest.mark.parametrize(("source", "name"), sorted({case[:2] for case in CASES}))
def test_damaged_files(tmp_path: Path, source: str, name: str) -> None:
    """All damages of one file."""
    words = SOURCES[source].write(tmp_path / "files")
    prepare(words, tmp_path / "good")
    good = store.load(tmp_path / "good", "x")
    outcomes = set()
    for number, (damage, damaged) in enumerate(DAMAGES.items()):
        rng = random.Random(zlib.crc32(f"{source} {name} {damage}".encode()))
        content = damaged(SOURCES[source].files[name], rng)
        (tmp_path / "files" / name).write_bytes(content)
        data = tmp_path / f"data{number}"
        result = prepare(words, data)
        case = f"{damage}: exit {result.exit_code}\n{result.stderr}"
        assert result.exception is None or isinstance(result.exception, SystemExit), case
        assert "Traceback" not in result.stderr, case
        outcomes.add(result.exit_code)
        if result.exit_code == 0:
            dataset = store.load(data, "x")
            assert len(dataset.users) == dataset.manifest["statistics"]["links"] > 0, case
            if name not in BINARY and damage in HARMLESS:
                assert dataset.fingerprint == good.fingerprint, case
            if source in ("csv", "tsv", "jsonl") and damage in STATED:
                assert re.search(r"Warning:|whatever its name|separated by", result.stderr), case
        else:
            assert result.exit_code in (2, 3, 4), case
            errors = [
                line
                for line in result.stderr.splitlines()
                if not re.match(r"Warning:|Links:|Items:", line)
            ]
            refusal = "\n".join(line for line in errors if line.startswith("Error: "))
            assert refusal.count("Error: ") == 1, case
            assert len(refusal) < 1500, case
            assert (
                name in refusal
                or "disagree" in refusal
                or "Is another file cut off" in refusal
                or "nothing to train on" in refusal
            ), case
            assert not (damage in HARMLESS and name not in BINARY), case
            if damage in PLACED and name not in BINARY and "nothing to train on" not in refusal:
                assert re.search(r"line \d|example", refusal), case
            assert not [path for path in data.rglob("*") if path.name not in ("x", ".lock")], (
                "something half written is left"
            )
    assert 3 in outcomes


@pytest.mark.parametrize(("source", "name"), sorted({case[:2] for case in CASES}))
def test_files_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, name: str
) -> None:
    """Where permission is denied, and where a folder has the name; both are errors, whoever runs
    this.
    """
    words = SOURCES[source].write(tmp_path / "files")
    refused, opened = tmp_path / "files" / name, Path.open

    def denied(path: Path, *arguments: object, **more: object) -> object:
        if path == refused:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **more)  # type: ignore[call-overload]

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", denied)
        result = prepare(words, tmp_path / "data")
    assert (result.exit_code, "Permission denied" in result.stderr, name in result.stderr) == (
        3,
        True,
        True,
    ), result.stderr
    refused.unlink()
    refused.mkdir()
    result = prepare(words, tmp_path / "data")
    assert (result.exit_code, name in result.stderr) == (3, True), result.stderr
    refused.rmdir()
    result = prepare(words, tmp_path / "data")
    assert (result.exit_code, name in result.stderr) == (3, True), result.stderr


MEASURED = """
import resource, sys
from typer.testing import CliRunner
from ncfbench.cli import app
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
result = CliRunner().invoke(app, ["prepare", *sys.argv[1:]])
# Not ru_maxrss, which begins with what the parent had.
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(result.exit_code, int(peak) // 1024, result.stderr)
"""


def measured(words: list[str], folder: Path) -> tuple[int, int, str]:
    """Exit code, peak memory in MiB and messages of a process that prepares."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *words, "--data-dir", str(folder / "data")],
        capture_output=True,
        text=True,
        check=True,
    )
    code, peak, *message = done.stdout.split(maxsplit=2)
    return int(code), int(peak), " ".join(message)


@pytest.mark.long_cases(r"gzip-(m|r.csv.gz-user,item.n-)")
@pytest.mark.parametrize(
    ("source", "name", "head", "unit"),
    [
        ("gzip", "r.csv.gz", b"user,item\n", b"0" * 2**16),
        ("gzip", "m.jsonl.gz", b'{"movieId": "', b"0" * 2**16),
        ("gzip", "r.csv.gz", b'user,item\n1,"', b"1,2\n" * 2**14),
    ],
)
def test_what_unpacks_to_half_a_gigabyte_stays_small(
    tmp_path: Path, source: str, name: str, head: bytes, unit: bytes
) -> None:
    words = SOURCES[source].write(tmp_path / "files")
    with gzip.open(tmp_path / "files" / name, "wb", compresslevel=1) as file:
        file.write(head)
        for _ in range(2**29 // len(unit)):
            file.write(unit)
    code, peak, message = measured(words, tmp_path)
    assert (code, name in message) == (3, True), message
    assert peak < 400, "MiB"


@pytest.mark.long
def test_parquet_that_repeats_a_long_text_stays_small(tmp_path: Path) -> None:
    """A gigabyte of text in a few kilobytes; every row of it is read."""
    words = SOURCES["parquet"].write(tmp_path / "files")
    ids = list(range(1, 1001))
    pq.write_table(
        pa.table({"movieId": ids, "title": ["x" * 2**20] * len(ids)}),
        tmp_path / "files" / "m.parquet",
    )
    assert (tmp_path / "files" / "m.parquet").stat().st_size < 2**20
    code, peak, message = measured([*words[:-2], "--min-item-links", "0"], tmp_path)
    assert (code, "items without a link" in message) == (0, False), message
    assert peak < 400, "MiB"
