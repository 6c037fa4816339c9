"""Which allocator is chosen, and the process that starts itself again with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from ncfbench.errors import UsageError
from ncfbench.timing import allocator, heap

LINUX = sys.platform == "linux" and bool(allocator.glibc_version())
TUNABLE = allocator.glibc_version() >= allocator.FIRST_GLIBC
INSTALLED = next(allocator.installed(allocator.LIBRARIES["jemalloc"], {}), None) if LINUX else None
FAULT_OF = allocator.fault_of
linux = pytest.mark.skipif(not LINUX, reason="allocators are chosen on Linux with glibc")
OURS = {
    "MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always,narenas:2",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0"
    ":glibc.malloc.trim_threshold=1099511627776:glibc.malloc.top_pad=67108864",
}
CHILD = """
import json, os, subprocess, sys
from ncfbench.timing import allocator, heap
allocator.restart()
script = "import sys; sys.path.insert(0, sys.argv[1]); from ncfbench.timing import heap"
child = [sys.executable, "-c", script + "; print(heap.describe()['name'])", sys.argv[1]]
def ask():
    return subprocess.run(child, capture_output=True, text=True, check=True).stdout.strip()
names = [ask()]
with allocator.inherited():
    names.append(ask())
seen = {name: os.environ.get(name) for name in ("LD_PRELOAD", "MALLOC_CONF", "GLIBC_TUNABLES")}
print(json.dumps([os.getpid(), sys.argv[1:], seen, heap.describe(), names]))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of libraries, with names that no system has; all of them can be loaded."""
    names = {"jemalloc": ("libjemalloc.test",), "tcmalloc": ("libtcmalloc.test",)}
    monkeypatch.setattr(allocator, "LIBRARIES", names)
    monkeypatch.setattr(allocator, "fault_of", lambda library: None)
    monkeypatch.setattr(allocator, "glibc_version", lambda: (2, 36))
    return tmp_path


def add(folder: Path, name: str, *, byte: int = 18, change: int = 0) -> str:
    """Add a library for this processor, or with one byte of its header changed."""
    with Path("/proc/self/exe").open("rb") as program:
        header = bytearray(program.read(64))
    header[byte] ^= change
    path = folder / f"lib{name}.test"
    path.write_bytes(header)
    return str(path)


def chosen(folder: Path, **variables: str) -> dict[str, str]:
    return allocator.variables({"LD_LIBRARY_PATH": f"relative:{folder}", **variables})


@linux
def test_jemalloc_is_chosen_if_it_is_installed(folder: Path) -> None:
    tunables = {"GLIBC_TUNABLES": OURS["GLIBC_TUNABLES"]}
    assert chosen(folder) == tunables
    tcmalloc = add(folder, "tcmalloc")
    assert chosen(folder) == tunables
    jemalloc = add(folder, "jemalloc")
    ours = {"LD_PRELOAD": jemalloc, "MALLOC_CONF": OURS["MALLOC_CONF"]}
    for word in ("auto", "", "jemalloc"):
        assert chosen(folder, NCFBENCH_ALLOCATOR=word) == ours
    assert chosen(folder, NCFBENCH_ALLOCATOR="tcmalloc") == {"LD_PRELOAD": tcmalloc}
    assert chosen(folder, NCFBENCH_ALLOCATOR=jemalloc) == ours
    assert chosen(folder, NCFBENCH_ALLOCATOR="glibc") == tunables
    assert chosen(folder, NCFBENCH_ALLOCATOR="none") == {}


@linux
@pytest.mark.parametrize("byte", [4, 5, 18])
def test_another_processors_library_is_passed_over(folder: Path, byte: int) -> None:
    """Class, byte order and machine of the ELF header must be this program's."""
    jemalloc = add(folder, "jemalloc")
    assert chosen(folder)["LD_PRELOAD"] == jemalloc
    add(folder, "jemalloc", byte=byte, change=3)
    assert list(chosen(folder)) == ["GLIBC_TUNABLES"]
    (folder / "libjemalloc.test").write_bytes(b"INPUT(libjemalloc.so.2)")
    assert list(chosen(folder)) == ["GLIBC_TUNABLES"]


@linux
def test_a_library_that_cannot_load_is_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header is not enough: the loader would print an error and go on without the library."""
    monkeypatch.setattr(allocator, "fault_of", FAULT_OF)
    broken = add(folder, "jemalloc")
    assert "LD_PRELOAD" not in chosen(folder)
    with pytest.raises(UsageError, match="installed that can be loaded"):
        chosen(folder, NCFBENCH_ALLOCATOR="jemalloc")
    with pytest.raises(UsageError, match=f"^NCFBENCH_ALLOCATOR={broken}: cannot read file data.$"):
        chosen(folder, NCFBENCH_ALLOCATOR=broken)


@linux
def test_what_the_user_has_set_stands(folder: Path) -> None:
    jemalloc = add(folder, "jemalloc")
    assert chosen(folder, MALLOC_CONF="narenas:7") == {"LD_PRELOAD": jemalloc}
    for value in ("", "glibc.malloc.mmap_max=7"):
        assert chosen(folder, GLIBC_TUNABLES=value) == {}
        assert chosen(folder, GLIBC_TUNABLES=value, NCFBENCH_ALLOCATOR="glibc") == {}
        explicit = chosen(folder, GLIBC_TUNABLES=value, NCFBENCH_ALLOCATOR="jemalloc")
        assert sorted(explicit) == ["LD_PRELOAD", "MALLOC_CONF"]
    others = {"GLIBC_TUNABLES": "glibc.rtld.nns=9"}
    assert chosen(folder, **others)["LD_PRELOAD"] == jemalloc
    assert chosen(folder, **others, NCFBENCH_ALLOCATOR="glibc") == {
        "GLIBC_TUNABLES": f"glibc.rtld.nns=9:{OURS['GLIBC_TUNABLES']}"
    }
    assert chosen(folder, LD_PRELOAD="/a/libx.so libm.so")["LD_PRELOAD"] == (
        f"/a/libx.so:libm.so:{jemalloc}"
    )
    for library in ("/a/libtcmalloc.so.4", "libx.so libmimalloc.so.2", "libx.so:libhoard.so"):
        assert chosen(folder, LD_PRELOAD=library) == {}


@linux
@pytest.mark.parametrize(
    ("word", "more", "message"),
    [
        ("jemallok", {}, "use auto, jemalloc, tcmalloc, glibc, none, or the path"),
        ("tcmalloc", {}, "no libtcmalloc.test is installed"),
        ("/no/such.so", {}, "there is no library that can be read"),
        ("/with space.so", {}, "a space or a colon"),
        ("jemalloc", {"LD_PRELOAD": "libtcmalloc.so"}, "LD_PRELOAD loads tcmalloc already"),
        ("glibc", {"LD_PRELOAD": "libtcmalloc.so"}, "LD_PRELOAD loads tcmalloc already"),
    ],
)
def test_wrong_values_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, word: str, more: dict[str, str], message: str
) -> None:
    monkeypatch.setattr(allocator, "fault_of", FAULT_OF)
    with pytest.raises(UsageError, match=message) as caught:
        chosen(folder, NCFBENCH_ALLOCATOR=word, **more)
    assert str(caught.value).startswith(f"NCFBENCH_ALLOCATOR={word}: ")


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("musl 1.2", "", "glibc x"):
        monkeypatch.setattr(os, "confstr", lambda name, version=version: version, raising=False)
        assert allocator.variables({}) == {}
        with pytest.raises(UsageError, match="only Linux with glibc"):
            allocator.variables({"NCFBENCH_ALLOCATOR": "jemalloc"})
    monkeypatch.setattr(os, "confstr", lambda name: "glibc 2.34")
    assert allocator.variables({"NCFBENCH_ALLOCATOR": "glibc"}) == {}


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    wrong = {**os.environ, "NCFBENCH_ALLOCATOR": "x"}
    words = [sys.executable, "-m", "ncfbench", "run"]
    done = subprocess.run(words, capture_output=True, text=True, env=wrong, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("Error: NCFBENCH_ALLOCATOR=x: use auto, ")


def start(tmp_path: Path, *more: str, **variables: str) -> tuple[list[Any], bool]:
    """Run the child; return what it prints, and whether it kept its process id."""
    script = tmp_path / "child.py"
    script.write_text(CHILD, encoding="utf-8")
    root = str(Path(allocator.__file__).parents[2])
    names = ("LD_PRELOAD", "MALLOC_CONF", "GLIBC_TUNABLES", "NCFBENCH_ALLOCATOR")
    base = {name: value for name, value in os.environ.items() if name not in names}
    process = subprocess.Popen(
        [sys.executable, "-X", "utf8", str(script), root, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=base | {"PYTHONPATH": root} | variables,
    )
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, ""), errors
    found: list[Any] = json.loads(output)
    return found, found[0] == process.pid


@pytest.mark.skipif(INSTALLED is None, reason="jemalloc is not installed")
def test_jemalloc_is_loaded_by_one_restart(tmp_path: Path) -> None:
    """Same id and arguments, no message, and the user's variables are back; children do not inherit
    the allocator unless they shall.
    """
    user = {"LD_PRELOAD": "libm.so.6", "NCFBENCH_ALLOCATOR": "jemalloc"}
    found, same_process = start(tmp_path, "run", "--loss", "a b", "ä", **user)
    _, arguments, seen, described, children = found
    assert same_process
    assert arguments[1:] == ["run", "--loss", "a b", "ä"]
    assert seen == {"LD_PRELOAD": "libm.so.6", "MALLOC_CONF": None, "GLIBC_TUNABLES": None}
    assert (described["name"], described["settings"]) == ("jemalloc", OURS["MALLOC_CONF"])
    assert described["version"].startswith("5.")
    assert Path(described["library"]).samefile(INSTALLED or "")
    assert children == ["glibc", "jemalloc"]


@pytest.mark.skipif(not TUNABLE, reason="another C library, or an older one")
def test_glibc_is_started_with_its_settings(tmp_path: Path) -> None:
    found, same_process = start(tmp_path, NCFBENCH_ALLOCATOR="glibc")
    assert same_process
    assert set(found[2].values()) == {None}
    assert (found[3]["name"], found[3]["settings"]) == ("glibc", OURS["GLIBC_TUNABLES"])


def test_python_programs_are_warned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the words that start Python with jemalloc; or what to install, if it is not there."""
    serving = {"name": "glibc", "version": "2.36", "settings": "", "library": "libc.so.6"}
    monkeypatch.setattr(heap, "describe", lambda: serving)
    monkeypatch.setattr(allocator, "installed", lambda files, environment: iter(["/l/libj.so"]))
    prefix = f"env LD_PRELOAD=/l/libj.so MALLOC_CONF={OURS['MALLOC_CONF']}"
    heap.warn_once.cache_clear()
    with pytest.warns(UserWarning, match="predictions") as caught:
        heap.warn_once()
    assert str(caught.pop().message).endswith(f"Put this before the command: {prefix}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        heap.warn_once()
    monkeypatch.setattr(allocator, "installed", lambda files, environment: iter(()))
    assert heap.remedy().startswith("Install it: apt install libjemalloc2 (Debian, Ubuntu), dnf")
    heap.warn_once.cache_clear()
    serving |= {"name": "jemalloc", "settings": OURS["MALLOC_CONF"]}
    heap.warn_once()
    assert heap.lack(serving | {"settings": "dirty_decay_ms:10000"})
    assert heap.lack(serving | {"name": "system", "settings": ""}) is None


@linux
def test_this_process_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    found = heap.describe()
    assert Path(found["library"]).is_file()
    assert list(found) == ["name", "version", "settings", "library"]
    monkeypatch.setattr(heap, "_library_of_malloc", lambda: "/opt/libnew.so.3")
    unknown = {
        "name": "libnew.so.3",
        "version": None,
        "settings": "",
        "library": "/opt/libnew.so.3",
    }
    assert heap.describe() == unknown
    monkeypatch.setattr(heap, "_library_of_malloc", lambda: "/opt/libmimalloc.so.2")
    monkeypatch.setenv("MIMALLOC_PAGE_RESET", "0")
    assert heap.describe()["settings"] == "MIMALLOC_PAGE_RESET=0"
    monkeypatch.setattr(heap, "_library_of_malloc", lambda: None)
    monkeypatch.setattr(allocator, "glibc_version", lambda: ())
    assert heap.describe()["name"] == "system"
