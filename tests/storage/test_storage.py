"""Files, whole or absent, and checked when they are read; free memory; locks between processes."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from support.cli import check, invoke

from ncfbench.data import store
from ncfbench.errors import DataError, UsageError, reason, shown
from ncfbench.storage import free_space, locks, schemas, tables

IMPORTS = "import pathlib; from ncfbench.storage import tables"


def test_flipped_bits_are_noticed(tmp_path):
    """A bit flip anywhere in a table is an error or changes nothing; it is never a traceback or
    another value.
    """
    path = tmp_path / "t.parquet"
    rows = [{"iteration": n, "epoch": n / 7, "probe_loss": 3.0 / (n + 1)} for n in range(50)]
    tables.write_rows(path, rows, schemas.CURVE)
    good, content = tables.read_rows(path, schemas.CURVE), path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(100):
        damaged = bytearray(content)
        damaged[rng.integers(len(content) - 1000)] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            rows_read = tables.read_rows(path, schemas.CURVE)
        except DataError:
            refused += 1
        else:
            assert rows_read == good
    assert refused > 30


def test_files_are_on_the_disk_before_their_names(tmp_path, monkeypatch):
    """A power cut leaves the old file or the whole new one."""
    rename, events = os.replace, []

    def replace(source, target):
        events.append(("name", source.stat().st_ino))
        rename(source, target)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "fsync", lambda file: events.append(("sync", os.fstat(file).st_ino)))
    tables.write_json(tmp_path / "a.json", {})
    file, folder = (path.stat().st_ino for path in (tmp_path / "a.json", tmp_path))
    assert events == [("sync", file), ("name", file), ("sync", folder)]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_to_a_link_stays_and_its_file_is_written(tmp_path, is_there):
    kept, folder = tmp_path / "kept.json", tmp_path / "elsewhere"
    folder.mkdir()
    if is_there:
        kept.write_text("old")
    link = folder / "second.json"
    link.symlink_to("link.json")
    (folder / "link.json").symlink_to("../kept.json")
    tables.write_json(link, {"new": 1})
    assert link.is_symlink()
    assert not kept.is_symlink()
    assert tables.read_json(kept) == {"new": 1}
    names = {path.name for path in tmp_path.rglob("*")}
    assert names == {"kept.json", "elsewhere", "link.json", "second.json"}


def test_a_link_into_no_folder_or_to_itself_is_refused(tmp_path):
    link, loop = tmp_path / "a", tmp_path / "b"
    link.symlink_to(tmp_path / "no such" / "x")
    loop.symlink_to(loop)
    advice = r"No such file.*Make the folder first: mkdir -p '.*such'"
    for path, words in ((link, "No such"), (loop, "Cannot"), (tmp_path / "no such" / "x", advice)):
        with pytest.raises(DataError, match=words):
            tables.write_text(path, "new")
    assert link.is_symlink()
    assert loop.is_symlink()


def test_a_link_to_a_folder_stays(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "old").touch()
    (tmp_path / "near").symlink_to("far")
    with tables.atomic_folder(tmp_path / "near") as new:
        (new / "new").touch()
    assert (tmp_path / "near").is_symlink()
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["new"]


def test_a_pipe_gets_the_content(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_text)
        tables.write_text(pipe, "content")
        assert read.result(timeout=60) == "content"
    assert pipe.is_fifo()
    assert [*tmp_path.iterdir()] == [pipe]


def test_a_device_stays_a_device(tmp_path):
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    tables.write_text(link, "content")
    assert link.is_symlink()
    with pytest.raises(DataError, match="No space left on device. Free some space, or"):
        tables.write_text(Path("/dev/full"), "content")
    assert Path("/dev/null").is_char_device()
    assert Path("/dev/full").is_char_device()


def test_standard_output_is_written_where_it_stands(tmp_path):
    """What a log holds already stays, and what is printed later follows."""
    log = tmp_path / "log"
    log.write_text("before\n")
    names = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"]
    script = f"for name in {names}: tables.write_text(pathlib.Path(name), name + '\\n')"
    with log.open("a") as file:
        command = [sys.executable, "-c", f"{IMPORTS}\n{script}\nprint('after')"]
        subprocess.run(command, stdout=file, check=True)
    assert log.read_text().split() == ["before", *names, "after"]


def test_a_full_disk_is_named_for_arrays(tmp_path):
    """A limit on the size of a file ends as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(DataError, match="File too large. Free some space, or"):
            tables.write_array(tmp_path / "a.npy", np.zeros(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not any(tmp_path.iterdir())


def test_tables_of_other_versions_are_refused(tmp_path, monkeypatch):
    """So is one that lacks a column."""
    path, rows = tmp_path / "t.parquet", [{"iteration": 1, "epoch": 0.5}]
    lacking = pa.table({"iteration": [1]})
    tables.write_table(path, [lacking], lacking.schema)
    with pytest.raises(DataError, match="lacks the column 'epoch'"):
        tables.read_rows(path, schemas.CURVE)
    for version in (1, 99, "new"):
        monkeypatch.setattr(tables, "SCHEMA_VERSION", version)
        tables.write_rows(path, rows, schemas.CURVE)
        monkeypatch.setattr(tables, "SCHEMA_VERSION", schemas.SCHEMA_VERSION)
        with pytest.raises(DataError, match=f"version {version}; this program reads version "):
            tables.read_rows(path, schemas.CURVE)


def test_no_sentence_ends_with_two_full_stops(tmp_path, monkeypatch):
    """A folder called ``.`` at the end of a sentence is named by its absolute path."""
    for error, text in (
        (OSError(2, "No such file or directory", "x"), "No such file or directory"),
        (ValueError("ends with a stop."), "ends with a stop"),
        (ValueError("two lines:\nthe second.\n"), "two lines:"),
        (EOFError(), "EOFError"),
    ):
        assert reason(error) == text
    monkeypatch.chdir(tmp_path)
    check(invoke("report", "--runs-dir", "."), 7, f"No finished run in {tmp_path}. ")
    assert shown(Path("runs")) == "runs"


# --- free memory: what is refused, and where the numbers come from


def test_what_cannot_fit_is_refused(monkeypatch):
    monkeypatch.setattr(free_space, "available_memory", lambda: 2**30)
    free_space.require_memory("x", 2**30)
    words = "seven links: making these takes about 2.0 GiB of memory, and 1.0 GiB are"
    with pytest.raises(UsageError, match=words):
        free_space.require_memory("seven links", 2**31)


def test_a_control_group_limits_the_memory(tmp_path, monkeypatch):
    machine = SimpleNamespace(available=600, total=2000)
    monkeypatch.setattr(free_space, "CONTROL_GROUP", tmp_path)
    monkeypatch.setattr(free_space.psutil, "virtual_memory", lambda: machine)
    assert free_space.available_memory() == 600
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 200\n")
    for limit, free, available, total in (
        ("1000\n", 600, 1000 - 700 + 200, 1000),
        ("1000\n", 400, 400, 1000),
        ("max\n", 600, 600, 2000),
    ):
        (tmp_path / "memory.max").write_text(limit)
        machine.available = free
        assert free_space.available_memory() == available
        assert free_space.memory_limit() == total


# --- locks


OPEN = """
import sys
from ncfbench.data import open_dataset
from ncfbench.data.sources import synthetic
make = synthetic.make
def slowly(options):
    print("making", flush=True)
    sys.stdin.readline()
    return make(options)
synthetic.make = slowly
say = lambda text: print(text, flush=True)
dataset = open_dataset("synthetic", data_dir=sys.argv[1], say=say)
print("fingerprint", dataset.fingerprint, flush=True)
"""


@contextmanager
def opening(folder):
    """Start a process that opens the synthetic data set; it makes it when it is sent a line."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-c", OPEN, str(folder)]
    process = subprocess.Popen(command, **pipes, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_with(process, words):
    for line in process.stdout:
        if words in line:
            return line
    raise AssertionError(f"it ended without saying {words!r}: {process.communicate()[1]}")


def test_a_second_process_waits_and_then_loads(tmp_path):
    """One of two that wait is interrupted; the other loads what the first one made."""
    with opening(tmp_path) as first:
        line_with(first, "making")
        with opening(tmp_path) as second, opening(tmp_path) as third:
            waiting = line_with(second, "waiting")
            assert f"preparing {tmp_path / 'synthetic'}: waiting until it ends" in waiting
            line_with(third, "waiting")
            third.send_signal(signal.SIGINT)
            assert "KeyboardInterrupt" in third.communicate()[1]
            assert second.poll() is None
            out, _ = first.communicate("\n")
            output = second.communicate()[0]
    assert "making" not in output
    assert out.splitlines()[-1] == output.splitlines()[-1]
    assert store.load(tmp_path, "synthetic").fingerprint in output


def test_a_killed_process_leaves_no_lock(tmp_path):
    with opening(tmp_path) as process:
        line_with(process, "making")
        with (
            pytest.raises(UsageError, match="Another process is testing .*Wait until it ends"),
            locks.held(tmp_path / "synthetic", "testing"),
        ):
            pytest.fail("held twice")
        process.kill()
        process.wait()
        with locks.held(tmp_path / "synthetic", "testing"):
            pass


def test_threads_hold_one_folder_in_turn(tmp_path, monkeypatch):
    """It is made with the folders above it, and stays."""
    monkeypatch.setattr(locks, "PATIENCE_SECONDS", 0.0)
    folder, waits, order = tmp_path / "a" / "b", threading.Event(), []

    def work():
        with locks.held(folder, "testing", wait=lambda text: waits.set()):
            order.append("second")

    worker = threading.Thread(target=work)
    with locks.held(folder, "testing"):
        worker.start()
        assert waits.wait(60)
        order.append("first")
    worker.join()
    assert order == ["first", "second"]
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_a_folder_that_vanished_is_released(tmp_path):
    """Also with the error of the work in it, not one of its own."""
    folder = tmp_path / "new"
    with pytest.raises(KeyError), locks.held(folder, "testing"):
        shutil.rmtree(folder)
        raise KeyError
    with locks.held(folder, "testing"):
        (folder / "content").touch()
