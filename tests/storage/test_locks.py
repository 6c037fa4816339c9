"""Locks between real processes: who waits, who is refused, and what a kill leaves behind."""

import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from ncfbench.data import store
from ncfbench.errors import UsageError
from ncfbench.storage import locks

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
