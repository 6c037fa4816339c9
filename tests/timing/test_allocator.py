"""jemalloc, and the process that starts itself again with it."""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from numpy._core import _multiarray_umath

from ncfbench.timing import allocator

INSTALLED = allocator.find_library()
CHILD = """
import json, os, sys
from ncfbench.timing import allocator
allocator.restart()
seen = [os.environ.get(name) for name in ("LD_PRELOAD", "MALLOC_CONF")]
print(json.dumps([os.getpid(), sys.argv[1:], seen, allocator.describe()]))
"""


@pytest.mark.parametrize(
    ("set_", "is_loaded"),
    [
        ({}, True),
        ({"NCFBENCH_ALLOCATOR": "none"}, False),
        ({"LD_PRELOAD": "libm.so.6"}, False),
        ({"MALLOC_CONF": "narenas:7"}, False),
    ],
)
def test_jemalloc_is_loaded_unless_the_user_chose(monkeypatch, set_, is_loaded):
    started = []
    monkeypatch.setattr(os, "environ", set_)
    monkeypatch.setattr(os, "execve", lambda *arguments: started.append(arguments[2]))
    monkeypatch.setattr(allocator, "find_library", lambda: "/l/libj.so")
    allocator.restart()
    ours = {"LD_PRELOAD": "/l/libj.so", "MALLOC_CONF": allocator.SETTINGS}
    assert started == ([ours | {"NCFBENCH_RESTARTED": str(os.getpid())}] if is_loaded else [])
    monkeypatch.setattr(allocator, "find_library", lambda: None)
    started.clear()
    allocator.restart()
    assert not started


def test_a_library_that_cannot_load_is_passed_over(tmp_path, monkeypatch):
    """The loader would print an error and go on without it. The environment's own goes first."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    path = tmp_path / "lib" / "libtest.so"
    path.parent.mkdir()
    monkeypatch.setattr(allocator, "LIBRARY", path.name)
    path.write_bytes(b"no library")
    assert allocator.find_library() is None
    path.unlink()
    path.symlink_to(_multiarray_umath.__file__)
    assert allocator.find_library() == str(path)


@pytest.mark.skipif(INSTALLED is None, reason="jemalloc is not installed")
def test_it_is_loaded_by_one_restart(tmp_path):
    """Same id and arguments, no message, and no variable is left."""
    script = tmp_path / "child.py"
    script.write_text(CHILD, encoding="utf-8")
    names = ("LD_PRELOAD", "MALLOC_CONF", "NCFBENCH_ALLOCATOR")
    variables = {name: value for name, value in os.environ.items() if name not in names}
    variables |= {"PYTHONPATH": str(Path(allocator.__file__).parents[2])}
    words = ["run", "--loss", "a b", "ä"]
    command = [sys.executable, "-X", "utf8", str(script), *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=variables, **pipes)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert json.loads(output) == [process.pid, words, [None, None], "jemalloc"]


def test_this_process_is_described(monkeypatch):
    monkeypatch.setattr(ctypes, "pythonapi", object())
    for library, name in (("glibc", "glibc"), ("", "system")):
        monkeypatch.setattr("platform.libc_ver", lambda library=library: (library, ""))
        assert allocator.describe() == name
