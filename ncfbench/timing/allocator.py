"""The memory allocator that times are taken with, and the restart that loads it.

An iteration needs large arrays for milliseconds. glibc returns each to the system and asks for it
again, page by page, zeroed. Its settings can stop that, but then programs of different sizes in
one process still slow each other down. jemalloc does neither, if it keeps what was freed
(``benchmarks/bench_allocators.py`` measures all of them). An allocator is loaded when a process
starts, so the process starts itself again.

``NCFBENCH_ALLOCATOR`` chooses: ``auto`` (the default: jemalloc if it is installed, else glibc, with
:data:`SETTINGS`), ``jemalloc``, ``tcmalloc``, ``glibc``, ``none`` (leave the process as it is), or
the path of a library.

What the user has set stands:

- ``LD_PRELOAD`` that names an allocator: nothing is changed. Any other library in it is kept, in
  front of ours: one that wraps ``malloc`` then wraps ours.
- ``MALLOC_CONF``: jemalloc gets it in place of our settings.
- ``GLIBC_TUNABLES`` that is empty or sets something of ``glibc.malloc``: nothing is changed, unless
  ``NCFBENCH_ALLOCATOR`` asks for another allocator. Tunables of anything else are kept.

After the restart the variables are as the user had them, so that other programs that this one
starts run with their usual allocator.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

VARIABLE = "NCFBENCH_ALLOCATOR"
CHOICES = ("auto", "jemalloc", "tcmalloc", "glibc", "none")
LIBRARIES = {
    "jemalloc": ("libjemalloc.so.2",),
    "tcmalloc": ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4"),
}
"""Names of an allocator's library, without those whose settings are named otherwise."""
ALLOCATORS = (*LIBRARIES, "mimalloc", "hoard", "snmalloc", "rpmalloc", "tbbmalloc", "scalloc")
"""Words that name an allocator in the file name of its library."""
SETTINGS = {
    "jemalloc": {
        "MALLOC_CONF": ",".join(
            (
                # What is freed is kept for the next iteration.
                "dirty_decay_ms:-1",
                "muzzy_decay_ms:-1",
                # madvise(MADV_HUGEPAGE): /sys/kernel/mm/transparent_hugepage/enabled must allow it
                "thp:always",
                # Not by cores: each arena keeps what was freed in it, so few are reused sooner.
                "narenas:2",
            )
        )
    },
    "tcmalloc": {},
    "glibc": {
        "GLIBC_TUNABLES": ":".join(
            (
                "glibc.malloc.hugetlb=1",  # large pages, as above
                # Large arrays come from the heap as well, and the heap does not shrink.
                "glibc.malloc.mmap_max=0",
                f"glibc.malloc.trim_threshold={2**40}",
                f"glibc.malloc.top_pad={2**26}",
            )
        )
    },
}
"""Environment variables of each allocator."""
FIRST_GLIBC = (2, 35)
"""First version whose settings have large pages."""
RESTARTED = "NCFBENCH_RESTARTED"
"""Tells a process that it restarted itself: its id, and the variables as they were."""

_ours: dict[str, str] = {}
"""Variables that this process was restarted with."""


def restart() -> None:
    """Start this process again with the allocator of :func:`variables`, once.

    It keeps its id, arguments and open files. Call it before anything else is done.

    Raises:
        UsageError: ``NCFBENCH_ALLOCATOR`` names nothing that can be loaded.
    """
    import json

    process, before = json.loads(os.environ.pop(RESTARTED, "[0, {}]"))
    if process == os.getpid():
        for name, value in before.items():
            _ours[name] = os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        return
    ours = variables(os.environ)
    if ours and sys.executable:
        before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        os.environ[RESTARTED] = json.dumps([os.getpid(), before])
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def restarted_with() -> dict[str, str]:
    """Return the variables that this process was restarted with, which it no longer has."""
    return dict(_ours)


@contextmanager
def inherited() -> Iterator[None]:
    """Let processes that are started meanwhile begin with this process's allocator."""
    before = dict(os.environ)
    os.environ.update(_ours)
    try:
        yield
    finally:
        for name in _ours:
            del os.environ[name]
            if name in before:
                os.environ[name] = before[name]


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to start again with, none where there is nothing to do.

    Args:
        environment: the variables that the user has set.

    Raises:
        UsageError: ``NCFBENCH_ALLOCATOR`` names nothing that can be loaded.
    """
    wanted = environment.get(VARIABLE) or "auto"
    is_path = os.sep in wanted
    if not is_path and wanted not in CHOICES:
        raise _error(wanted, f"use {', '.join(CHOICES)}, or the path of a library")
    glibc = glibc_version()
    if wanted == "none" or (not glibc and wanted in ("auto", "glibc")):
        return {}
    if not glibc:
        raise _error(wanted, "only Linux with glibc can load another allocator")
    preloaded = preloaded_by(environment)
    theirs = next(filter(None, map(kind_of, preloaded)), None)
    if theirs:
        if (kind_of(wanted) if is_path else wanted) not in ("auto", theirs):
            raise _error(wanted, f"LD_PRELOAD loads {theirs} already; unset one of the two")
        return {}
    tunables = environment.get("GLIBC_TUNABLES")
    is_tuned = tunables is not None and (not tunables or "glibc.malloc." in tunables)
    if wanted == "auto" and is_tuned:
        return {}
    library = _absolute(wanted) if is_path else _find(wanted, environment)
    if library:
        settings = SETTINGS.get(kind_of(library) or "", {})
        return {"LD_PRELOAD": ":".join([*preloaded, library])} | {
            name: value for name, value in settings.items() if name not in environment
        }
    if wanted in LIBRARIES:
        raise _error(wanted, f"no {' or '.join(LIBRARIES[wanted])} is installed that can be loaded")
    if is_tuned or glibc < FIRST_GLIBC:
        return {}
    return {
        name: f"{tunables}:{value}" if tunables else value
        for name, value in SETTINGS["glibc"].items()
    }


def _find(wanted: str, environment: Mapping[str, str]) -> str | None:
    """Return the library that can be loaded of the allocator that is wanted."""
    files = LIBRARIES.get("jemalloc" if wanted == "auto" else wanted, ())
    return next((path for path in installed(files, environment) if not fault_of(path)), None)


def installed(files: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths of libraries that are made for this processor.

    It looks in the user's folders, then in Python's, then in the system's.

    Args:
        files: names of an allocator's library, the best first.
        environment: with ``LD_LIBRARY_PATH``, if the user has set it.
    """
    machine = getattr(sys.implementation, "_multiarch", "") or f"{os.uname().machine}-linux-gnu"
    folders = [
        *environment.get("LD_LIBRARY_PATH", "").split(":"),
        f"{sys.prefix}/lib",
        f"{sys.base_prefix}/lib",
        "/usr/local/lib",
        f"/usr/lib/{machine}",
        f"/lib/{machine}",
        "/usr/lib64",
        "/lib64",
        "/usr/lib",
    ]
    this = _architecture("/proc/self/exe")
    for folder in folders:
        for file in files:
            path = f"{folder}/{file}"
            if folder.startswith("/") and this and _architecture(path) == this:
                yield path


def fault_of(library: str) -> str | None:
    """Return why a library cannot be preloaded, None if it can.

    The dynamic loader only prints an error about a library that it cannot preload, and goes on
    without it. So the library is loaded here first, by a process that is about to start again.
    """
    import ctypes

    if any(character in library for character in " :"):
        return "LD_PRELOAD cannot hold a path with a space or a colon"
    if not _architecture(library):
        return "there is no library that can be read"
    if _architecture(library) != _architecture("/proc/self/exe"):
        return "it is made for another processor"
    try:
        loaded = ctypes.CDLL(library)
    except OSError as error:
        # jemalloc can be loaded only at a start: the loader finds that out last.
        return None if "static TLS" in str(error) else str(error).removeprefix(f"{library}: ")
    loaded.malloc.restype = ctypes.c_void_p
    return None if loaded.malloc(64) else "it gives no memory"


def _absolute(library: str) -> str:
    """Return the whole path of a library that can be preloaded, or refuse it."""
    from pathlib import Path

    path = str(Path(library).absolute())
    reason = fault_of(path)
    if reason:
        raise _error(library, reason)
    return path


def preloaded_by(environment: Mapping[str, str]) -> list[str]:
    """Return the libraries of ``LD_PRELOAD``, which spaces or colons separate."""
    return environment.get("LD_PRELOAD", "").replace(":", " ").split()


def kind_of(library: str) -> str | None:
    """Return which allocator a library is by its file name, None if it is none."""
    file = library.rpartition("/")[2]
    return next((name for name in ALLOCATORS if name in file), None)


def _architecture(file: str) -> bytes:
    """Return the class, byte order and machine of an ELF file; empty if it is none."""
    try:
        with open(file, "rb") as opened:  # noqa: PTH123, for pathlib takes long to import
            header = opened.read(20)
    except OSError:
        return b""
    return header[4:6] + header[18:20] if header.startswith(b"\x7fELF") else b""


def glibc_version() -> tuple[int, ...]:
    """Return the C library's version, empty if it is not glibc."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        return tuple(map(int, version.split("."))) if name == "glibc" else ()
    except (AttributeError, ValueError, OSError):
        return ()


def _error(wanted: str, reason: str) -> Exception:
    from ncfbench.errors import UsageError

    return UsageError(f"{VARIABLE}={wanted}: {reason}.")
