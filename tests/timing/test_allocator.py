"""jemalloc, a tuned glibc or neither, and the process that starts itself again."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from numpy._core import _multiarray_umath

from ncfbench.errors import UsageError
from ncfbench.timing import allocator

LINUX = sys.platform == "linux" and bool(allocator.glibc_version())
INSTALLED = allocator.find_library()
linux = pytest.mark.skipif(not LINUX, reason="an allocator is chosen on Linux with glibc")
OURS = "dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always,narenas:2"
TUNED = (
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0"
    ":glibc.malloc.trim_threshold=1099511627776:glibc.malloc.top_pad=67108864"
)
CHILD = """
import json, os, sys
from ncfbench.timing import allocator
allocator.restart()
seen = {name: os.environ.get(name) for name in ("LD_PRELOAD", "MALLOC_CONF", "GLIBC_TUNABLES")}
from ncfbench.timing import environment
recorded = environment._variables()
state = [allocator.describe(), allocator.loaded_with, recorded]
print(json.dumps([os.getpid(), sys.argv[1:], seen, *state]))
"""


def chosen(monkeypatch: pytest.MonkeyPatch, library: str | None, **set_: str) -> dict[str, str]:
    monkeypatch.setattr(allocator, "find_library", lambda: library)
    return allocator.variables(set_)


def test_jemalloc_is_loaded_if_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the user has set an allocator; other libraries and settings of the user stay."""
    for word in ("", "jemalloc"):
        ours = chosen(monkeypatch, "/l/libj.so", NCFBENCH_ALLOCATOR=word)
        assert ours == {"LD_PRELOAD": "/l/libj.so", "MALLOC_CONF": OURS}
    assert chosen(monkeypatch, "/l/libj.so", NCFBENCH_ALLOCATOR="none") == {}
    assert chosen(monkeypatch, "j", MALLOC_CONF="narenas:7") == {"LD_PRELOAD": "j"}
    others = chosen(monkeypatch, "j", LD_PRELOAD="/a/libx.so libm.so")
    assert others["LD_PRELOAD"] == "/a/libx.so:libm.so:j"
    for library in ("/a/libtcmalloc.so.4", "libx.so libmimalloc.so.2", "libx.so:libhoard.so"):
        assert chosen(monkeypatch, "j", LD_PRELOAD=library) == {}


@pytest.mark.parametrize(
    ("version", "tunables", "wanted"),
    [
        ("2.36", None, TUNED),
        ("2.36", "glibc.rtld.nns=4", f"glibc.rtld.nns=4:{TUNED}"),
        ("2.36", "", None),
        ("2.36", "glibc.malloc.perturb=1", None),
        ("2.34", None, None),
        ("", None, None),
    ],
)
def test_glibc_is_tuned_where_jemalloc_is_missing(
    monkeypatch: pytest.MonkeyPatch, version: str, tunables: str | None, wanted: str | None
) -> None:
    """Unless the user has tuned it, or it is too old."""
    monkeypatch.setattr(allocator, "glibc_version", lambda: version)
    set_ = {} if tunables is None else {"GLIBC_TUNABLES": tunables}
    assert chosen(monkeypatch, None, **set_) == (
        {} if wanted is None else {"GLIBC_TUNABLES": wanted}
    )
    assert chosen(monkeypatch, None, NCFBENCH_ALLOCATOR="none", **set_) == {}


@pytest.mark.parametrize(
    ("word", "more", "message"),
    [
        ("jemallok", {}, "use jemalloc or none."),
        ("jemalloc", {}, "no libjemalloc.so.2 is installed that this system can preload."),
        ("jemalloc", {"LD_PRELOAD": "libtcmalloc.so"}, "LD_PRELOAD loads tcmalloc already;"),
    ],
)
def test_wrong_values_are_refused(
    monkeypatch: pytest.MonkeyPatch, word: str, more: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=f"^NCFBENCH_ALLOCATOR={word}: {message}"):
        chosen(monkeypatch, None, NCFBENCH_ALLOCATOR=word, **more)


@linux
def test_a_library_that_cannot_load_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loader would print an error and go on without it. The environment's own goes first."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    path = tmp_path / "lib" / "libtest.so"
    path.parent.mkdir()
    monkeypatch.setattr(allocator, "LIBRARY", path.name)
    path.write_bytes(Path("/proc/self/exe").read_bytes()[:64])
    assert allocator.find_library() is None
    path.unlink()
    path.symlink_to(_multiarray_umath.__file__)
    assert allocator.find_library() == str(path)
    moved = tmp_path.rename(tmp_path.with_name("a b"))
    monkeypatch.setattr(sys, "prefix", str(moved))
    assert allocator.find_library() is None, "LD_PRELOAD cannot hold a path with a space"


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("musl 1.2", ""):
        monkeypatch.setattr(os, "confstr", lambda name, version=version: version, raising=False)
        assert allocator.variables({}) == {}


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    wrong = {**os.environ, "NCFBENCH_ALLOCATOR": "x"}
    words = [sys.executable, "-m", "ncfbench", "run"]
    done = subprocess.run(words, capture_output=True, text=True, env=wrong, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: NCFBENCH_ALLOCATOR=x: use jemalloc or none.\n"


@linux
@pytest.mark.parametrize("hides_jemalloc", [False, True])
def test_an_allocator_is_loaded_by_one_restart(tmp_path: Path, hides_jemalloc: bool) -> None:
    """Same id and arguments, no message, and the user's variables are back."""
    if not hides_jemalloc and INSTALLED is None:
        pytest.skip("jemalloc is not installed")
    script = tmp_path / "child.py"
    hidden = "allocator.find_library = lambda: None\nallocator.restart()"
    script.write_text(
        CHILD.replace("allocator.restart()", hidden) if hides_jemalloc else CHILD, encoding="utf-8"
    )
    names = ("LD_PRELOAD", "MALLOC_CONF", "GLIBC_TUNABLES", "NCFBENCH_ALLOCATOR")
    variables = {name: value for name, value in os.environ.items() if name not in names}
    variables |= {"PYTHONPATH": str(Path(allocator.__file__).parents[2])}
    variables |= {"LD_PRELOAD": "libm.so.6"}
    words = ["run", "--loss", "a b", "ä"]
    process = subprocess.Popen(
        [sys.executable, "-X", "utf8", str(script), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=variables,
    )
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, ""), errors
    number, arguments, seen, described, loaded_with, recorded = json.loads(output)
    assert (number, arguments) == (process.pid, words)
    assert seen == {"LD_PRELOAD": "libm.so.6", "MALLOC_CONF": None, "GLIBC_TUNABLES": None}
    if hides_jemalloc:
        assert (described["name"], described["settings"]) == ("glibc", TUNED)
        assert loaded_with == {"GLIBC_TUNABLES": TUNED}
        assert recorded["GLIBC_TUNABLES"] == TUNED, "environments are compared by it"
        return
    assert (described["name"], described["settings"]) == ("jemalloc", OURS)
    assert described["version"].startswith("5.")
    assert recorded["LD_PRELOAD"] == "libm.so.6", "the allocator stands by itself"
    assert loaded_with == {"LD_PRELOAD": f"libm.so.6:{INSTALLED}", "MALLOC_CONF": OURS}


def test_python_programs_are_warned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the words that start Python with jemalloc; or what to install, if it is not there."""
    serving = {"name": "glibc", "version": "2.36", "settings": ""}
    monkeypatch.setattr(allocator, "describe", lambda: serving)
    monkeypatch.setattr(allocator, "find_library", lambda: "/l/libj.so")
    prefix = f"env LD_PRELOAD=/l/libj.so MALLOC_CONF={OURS}"
    allocator.warn_once.cache_clear()
    with pytest.warns(UserWarning, match="predictions") as caught:
        allocator.warn_once()
    assert str(caught.pop().message).endswith(f"Put this before the command: {prefix}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        allocator.warn_once()
    monkeypatch.setattr(allocator, "find_library", lambda: None)
    assert allocator.remedy().startswith("Install it: apt install libjemalloc2 (Debian, Ubuntu)")
    allocator.warn_once.cache_clear()
    serving |= {"name": "jemalloc", "settings": OURS}
    allocator.warn_once()
    assert allocator.lack(serving | {"settings": "dirty_decay_ms:10000"})
    assert allocator.lack(serving | {"name": "system", "settings": ""}) is None


def test_this_process_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without jemalloc: another that was preloaded, the C library's, or the system's."""
    monkeypatch.setattr(ctypes, "pythonapi", object())
    monkeypatch.setattr(allocator, "glibc_version", lambda: "2.36")
    monkeypatch.setenv("GLIBC_TUNABLES", "x=1")
    for preloaded, name, version, settings in (
        ("libm.so", "glibc", "2.36", "x=1"),
        ("/opt/libjemalloc.so.2", "glibc", "2.36", "x=1"),  # it failed to load
        ("libm.so /opt/libtcmalloc.so.4", "tcmalloc", None, ""),
    ):
        monkeypatch.setenv("LD_PRELOAD", preloaded)
        found = allocator.describe()
        assert found == {"name": name, "version": version, "settings": settings}
    monkeypatch.delenv("LD_PRELOAD")
    monkeypatch.setattr(allocator, "glibc_version", lambda: "")
    assert allocator.describe()["name"] == "system"
