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
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damage import CASES, DAMAGES, HARMLESS, MOST_BYTES

from ncfbench.data import prepare, store
from ncfbench.errors import DataError, NcfbenchError

FILES = [(source, name) for source, made in CASES.items() for name in made.files]
BINARY = {"r.parquet", "m.parquet", "r.csv.gz", "m.jsonl.gz"}
LIKE_OTHERS = "tsv|jsonl-m|gzip-m|parquet-m|raw-users|bag-users"
"""Files that a reader reads which others here meet as well."""
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


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short lines count as long."""
    for module in ("files", "rows", "parquet"):
        monkeypatch.setattr(f"ncfbench.data.readers.{module}.MOST_BYTES", MOST_BYTES)


def prepared(source: str, options: Any, data: Path) -> tuple[NcfbenchError | None, str]:
    """The error that refuses the files, if one does, and the messages before."""
    said: list[str] = []
    try:
        prepare(CASES[source].name, options, data, "x", replace=True, say=said.append)
    except NcfbenchError as error:
        return error, "\n".join(said)
    return None, "\n".join(said)


@pytest.mark.parametrize("source", CASES)
def test_undamaged_files_are_prepared(tmp_path: Path, source: str) -> None:
    error, _ = prepared(source, CASES[source].write(tmp_path / "files"), tmp_path / "data")
    assert error is None
    assert store.load(tmp_path / "data", "x").graph.n_links > 3


@pytest.mark.long_cases(LIKE_OTHERS)
@pytest.mark.parametrize(("source", "name"), FILES)
def test_damaged_files(tmp_path: Path, source: str, name: str) -> None:
    """All damages of one file."""
    options = CASES[source].write(tmp_path / "files")
    prepared(source, options, tmp_path / "good")
    good = store.load(tmp_path / "good", "x")
    refused = 0
    for number, (damage, damaged) in enumerate(DAMAGES.items()):
        rng = random.Random(zlib.crc32(f"{source} {name} {damage}".encode()))
        content = damaged(CASES[source].files[name], rng)
        (tmp_path / "files" / name).write_bytes(content)
        data = tmp_path / f"data{number}"
        error, said = prepared(source, options, data)
        case = f"{damage}: {error}\n{said}"
        if error is None:
            dataset = store.load(data, "x")
            assert len(dataset.users) == dataset.manifest["statistics"]["links"] > 0, case
            if name not in BINARY and damage in HARMLESS:
                assert dataset.fingerprint == good.fingerprint, case
            if source in ("csv", "tsv", "jsonl") and damage in STATED:
                assert re.search(r"Warning:|whatever its name|separated by", said), case
        else:
            refused += isinstance(error, DataError)
            refusal = str(error)
            assert error.exit_code in (2, 3, 4), case
            assert len(refusal) < 1500, case
            assert not re.search(r"\.\.(\s|$)", refusal), case
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
    assert len(DAMAGES) * len(FILES) >= 200
    assert refused


@pytest.mark.parametrize(("source", "name"), FILES)
def test_files_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, name: str
) -> None:
    """Permission is denied, or a folder has the name; both are errors, whoever runs this."""
    options = CASES[source].write(tmp_path / "files")
    refused, opened = tmp_path / "files" / name, Path.open

    def denied(path: Path, *arguments: object, **more: object) -> object:
        if path == refused:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **more)  # type: ignore[call-overload]

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", denied)
        error, _ = prepared(source, options, tmp_path / "data")
    assert isinstance(error, DataError)
    assert "Permission denied" in str(error)
    assert name in str(error)
    refused.unlink()
    refused.mkdir()
    for _ in range(2):
        error, _ = prepared(source, options, tmp_path / "data")
        assert isinstance(error, DataError)
        assert name in str(error)
        if refused.is_dir():
            refused.rmdir()


MEASURED = """
import resource, sys
from typer.testing import CliRunner
from ncfbench.cli import app
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
result = CliRunner().invoke(app, ["prepare", "custom", *sys.argv[1:]])
# Not ru_maxrss, which begins with what the parent had.
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(result.exit_code, int(peak) // 1024, result.stderr)
"""


def measured(files: Path, links: str, items: str, *more: str) -> tuple[int, int, str]:
    """Exit code, peak memory in MiB and messages of a process that prepares."""
    words = ["--links", str(files / links), "--items", str(files / items), *more]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *words, "--data-dir", str(files / "data")],
        capture_output=True,
        text=True,
        check=True,
    )
    code, peak, *message = done.stdout.split(maxsplit=2)
    return int(code), int(peak), " ".join(message)


@pytest.mark.long_cases(r"m.jsonl|r.csv.gz-user,item.n1")
@pytest.mark.parametrize(
    ("name", "head", "unit"),
    [
        ("r.csv.gz", b"user,item\n", b"0" * 2**16),
        ("m.jsonl.gz", b'{"movieId": "', b"0" * 2**16),
        ("r.csv.gz", b'user,item\n1,"', b"1,2\n" * 2**14),
    ],
)
def test_what_unpacks_to_half_a_gigabyte_stays_small(
    tmp_path: Path, name: str, head: bytes, unit: bytes
) -> None:
    CASES["gzip"].write(tmp_path)
    with gzip.open(tmp_path / name, "wb", compresslevel=1) as file:
        file.write(head)
        for _ in range(2**29 // len(unit)):
            file.write(unit)
    code, peak, message = measured(tmp_path, "r.csv.gz", "m.jsonl.gz")
    assert (code, name in message) == (3, True), message
    assert peak < 400, "MiB"


@pytest.mark.long
def test_parquet_that_repeats_a_long_text_stays_small(tmp_path: Path) -> None:
    """A gigabyte of text in a few kilobytes; every row of it is read."""
    CASES["parquet"].write(tmp_path)
    ids = list(range(1, 1001))
    table = pa.table({"movieId": ids, "title": ["x" * 2**20] * len(ids)})
    pq.write_table(table, tmp_path / "m.parquet")
    assert (tmp_path / "m.parquet").stat().st_size < 2**20
    code, peak, message = measured(tmp_path, "r.parquet", "m.parquet", "--min-item-links", "0")
    assert (code, "items without a link" in message) == (0, False), message
    assert peak < 400, "MiB"
