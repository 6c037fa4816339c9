"""Hundreds of damaged files: each is read with a warning, or refused in one paragraph that names
the file; nothing else happens.
"""

import random
import re
import zlib
from pathlib import Path

import pytest
from damage import CASES, DAMAGES, HARMLESS, MOST_BYTES

from ncfbench.data import prepare, store
from ncfbench.errors import DataError, NcfbenchError

FILES = [(source, name) for source, made in CASES.items() for name in made.files]
BINARY = {"r.parquet", "m.parquet", "r.csv.gz", "m.jsonl.gz"}
LIKE_OTHERS = "tsv|jsonl-m|gzip-m|parquet-m|raw-users"
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
def _quick(monkeypatch):
    """Short lines count as long."""
    monkeypatch.setattr("ncfbench.data.csv_rows.MOST_BYTES", MOST_BYTES)


def prepared(source, options, data):
    """The error that refuses the files, if one does, and the messages before."""
    said: list[str] = []
    try:
        prepare(CASES[source].name, options, data, "x", replace=True, say=said.append)
    except NcfbenchError as error:
        return error, "\n".join(said)
    return None, "\n".join(said)


@pytest.mark.parametrize("source", CASES)
def test_undamaged_files_are_prepared(tmp_path, source):
    error, _ = prepared(source, CASES[source].write(tmp_path / "files"), tmp_path / "data")
    assert error is None
    assert store.load(tmp_path / "data", "x").graph.n_links > 3


@pytest.mark.long_cases(LIKE_OTHERS)
@pytest.mark.parametrize(("source", "name"), FILES)
def test_damaged_files(tmp_path, source, name):
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
                assert re.search(r"Warning:|separated by", said), case
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
def test_files_that_cannot_be_read(tmp_path, monkeypatch, source, name):
    """Permission is denied, or a folder has the name; both are errors, whoever runs this."""
    options = CASES[source].write(tmp_path / "files")
    refused, opened = tmp_path / "files" / name, Path.open

    def denied(path, *arguments, **more):
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
