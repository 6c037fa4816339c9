"""An allocator that keeps what was freed for this process, and the one that really serves it.

An iteration needs large arrays for milliseconds. glibc returns each to the system and asks for it
again, page by page, zeroed. jemalloc with :data:`SETTINGS` keeps what was freed; where it is not
installed, glibc does with :data:`TUNABLES`, though programs of different sizes still slow each
other down. Both are read when a process starts, so the process starts itself again.

``NCFBENCH_ALLOCATOR`` is ``jemalloc``, which must then be installed, or ``none``, which leaves the
process as it is. So does an allocator in ``LD_PRELOAD``; other libraries there stay in front of
jemalloc, so that one that wraps ``malloc`` wraps jemalloc's. ``MALLOC_CONF`` replaces our settings,
and so does a ``GLIBC_TUNABLES`` that is empty or sets something of ``glibc.malloc``.
After the restart the variables are as the user had them: programs that this one starts run with
their usual allocator.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

VARIABLE = "NCFBENCH_ALLOCATOR"
CHOICES = ("jemalloc", "none")
LIBRARY = "libjemalloc.so.2"
SETTINGS = ",".join(
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
"""jemalloc's settings, the variable ``MALLOC_CONF``."""
TUNABLES = ":".join(
    (
        "glibc.malloc.hugetlb=1",  # large pages, as above, since glibc 2.35
        # Large arrays come from the heap as well, and the heap does not shrink.
        "glibc.malloc.mmap_max=0",
        f"glibc.malloc.trim_threshold={2**40}",
        f"glibc.malloc.top_pad={2**26}",
    )
)
"""glibc's settings, the variable ``GLIBC_TUNABLES``."""
FIRST_TUNED = (2, 35)
"""First version of glibc whose settings have large pages."""
KEEPS = "dirty_decay_ms:-1"
"""Setting of jemalloc without which it returns memory to the system, which takes time."""
PACKAGES = (
    "apt install libjemalloc2 (Debian, Ubuntu), dnf install jemalloc (Fedora), or conda install -c"
    " conda-forge jemalloc"
)
ALLOCATORS = (
    *("jemalloc", "tcmalloc", "mimalloc", "hoard"),
    *("snmalloc", "rpmalloc", "tbbmalloc", "scalloc"),
)
"""Words that name an allocator in the file name of its library."""
RESTARTED = "NCFBENCH_RESTARTED"
"""Tells a process that it restarted itself: its id, and the variables as they were."""

loaded_with: dict[str, str] = {}
"""Variables that this process was restarted with, which it no longer has."""


def restart() -> None:
    """Start this process again with the variables of :func:`variables`, once.

    It keeps its id, arguments and open files. Call it before anything else is done.

    Raises:
        UsageError: ``NCFBENCH_ALLOCATOR`` names nothing that can be loaded.
    """
    import json

    process, before = json.loads(os.environ.pop(RESTARTED, "[0, {}]"))
    if process == os.getpid():
        for name, value in before.items():
            loaded_with[name] = os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        return
    ours = variables(os.environ)
    if ours and sys.executable:
        before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        os.environ[RESTARTED] = json.dumps([os.getpid(), before])
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to start again with, none where there is nothing to do.

    Args:
        environment: the variables that the user has set.

    Raises:
        UsageError: ``NCFBENCH_ALLOCATOR`` names nothing that can be loaded.
    """
    wanted = environment.get(VARIABLE, "")
    if wanted not in ("", *CHOICES):
        raise _error(wanted, f"use {' or '.join(CHOICES)}")
    if wanted == "none":
        return {}
    preloaded = preloaded_by(environment)
    theirs = next(filter(None, map(kind_of, preloaded)), None)
    if theirs:
        if wanted not in ("", theirs):
            raise _error(wanted, f"LD_PRELOAD loads {theirs} already; unset one of the two")
        return {}
    library = find_library()
    if library is None:
        if wanted:
            raise _error(wanted, f"no {LIBRARY} is installed that this system can preload")
        return _tuned(environment.get("GLIBC_TUNABLES"))
    ours = {"LD_PRELOAD": ":".join([*preloaded, library])}
    return ours if "MALLOC_CONF" in environment else ours | {"MALLOC_CONF": SETTINGS}


def _tuned(tunables: str | None) -> dict[str, str]:
    """Return the variable that tunes glibc, with those tunables of the user that do not."""
    version = tuple(int(digits) for digits in glibc_version().split(".") if digits.isdigit())
    is_theirs = tunables is not None and (not tunables or "glibc.malloc." in tunables)
    if is_theirs or version < FIRST_TUNED:
        return {}
    return {"GLIBC_TUNABLES": f"{tunables}:{TUNABLES}" if tunables else TUNABLES}


def find_library() -> str | None:
    """Return jemalloc's library as the dynamic loader finds it, None if it cannot preload it.

    The loader only prints an error about a library that it cannot preload, and goes on without it.
    So the library is loaded here first.
    """
    if not glibc_version():
        return None
    import ctypes

    for path in (f"{sys.prefix}/lib/{LIBRARY}", f"{sys.base_prefix}/lib/{LIBRARY}", LIBRARY):
        if " " in path or ":" in path:  # they separate the libraries of LD_PRELOAD
            continue
        try:
            ctypes.CDLL(path)
        except OSError as error:
            # jemalloc can be loaded only at a start: the loader finds that out last.
            if "static TLS" not in str(error):
                continue
        return path
    return None


def preloaded_by(environment: Mapping[str, str]) -> list[str]:
    """Return the libraries of ``LD_PRELOAD``, which spaces or colons separate."""
    return environment.get("LD_PRELOAD", "").replace(":", " ").split()


def kind_of(library: str) -> str | None:
    """Return which allocator a library is by its file name, None if it is none."""
    file = library.rpartition("/")[2]
    return next((name for name in ALLOCATORS if name in file), None)


def glibc_version() -> str:
    """Return the C library's version, empty if it is not glibc."""
    name, version = platform.libc_ver()
    return version if name == "glibc" else ""


def describe() -> dict[str, Any]:
    """Return the ``name``, ``version`` and ``settings`` of the allocator that serves this process.

    jemalloc itself is asked, not the variables: it may have failed to load, and settings may come
    from elsewhere. The C library's own allocator is ``glibc``, or ``system`` on other systems.
    ``version`` is None and ``settings`` empty for others.
    """
    import ctypes

    if hasattr(ctypes.pythonapi, "mallctl"):
        number, text = ctypes.c_ssize_t, ctypes.c_char_p
        kinds = {
            "dirty_decay_ms": number,
            "muzzy_decay_ms": number,
            "thp": text,
            "narenas": ctypes.c_uint,
        }
        settings = [f"{name}:{_jemalloc(f'opt.{name}', kind)}" for name, kind in kinds.items()]
        version = str(_jemalloc("version", text)).partition("-")[0]
        return {"name": "jemalloc", "version": version, "settings": ",".join(settings)}
    preloaded = next(filter(None, map(kind_of, preloaded_by(os.environ))), None)
    if preloaded and preloaded != "jemalloc":
        return {"name": preloaded, "version": None, "settings": ""}
    if version := glibc_version():
        tunables = (os.environ | loaded_with).get("GLIBC_TUNABLES", "")
        return {"name": "glibc", "version": version, "settings": tunables}
    return {"name": "system", "version": None, "settings": ""}


def _jemalloc(name: str, kind: Any) -> str | int | None:
    """Return what jemalloc says of itself, None if it has no such setting."""
    import ctypes

    value, size = kind(), ctypes.c_size_t(ctypes.sizeof(kind))
    control = ctypes.pythonapi.mallctl
    if control(name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t()):
        return None
    known: str | int = value.value.decode() if isinstance(value.value, bytes) else value.value
    return known


def lack(serving: Mapping[str, Any]) -> str | None:
    """Return what is lost with an allocator that :func:`describe` returned; None for jemalloc that
    keeps what was freed, and on systems where nothing else can be loaded.
    """
    if serving["name"] == "system" or KEEPS in serving["settings"]:
        return None
    # Measured by `ncfbench profile` on made texts of 300 words (CNN, 2 cores).
    return (
        f"The memory allocator is {serving['name']}, not jemalloc with our settings, so a time"
        " depends on what else ran in the process: predictions for texts of 300 words were up to"
        " 59 % off with glibc's, 9 % with jemalloc."
    )


def remedy() -> str:
    """Return how to get jemalloc with our settings."""
    prefix = command_prefix()
    return f"Put this before the command: {prefix}" if prefix else f"Install it: {PACKAGES}."


def command_prefix() -> str | None:
    """Return what to put before a command so that it starts with jemalloc and our settings; None
    where jemalloc is not installed.
    """
    library = find_library()
    return library and f"env LD_PRELOAD={library} MALLOC_CONF={SETTINGS}"


@cache
def warn_once() -> None:
    """Warn a Python program once if its allocator disturbs times.

    A command restarts itself with a better one; a library cannot.
    """
    import warnings

    lacks = lack(describe())
    if lacks:
        warnings.warn(f"{lacks} {remedy()}", stacklevel=3)


def _error(wanted: str, reason: str) -> Exception:
    from ncfbench.errors import UsageError

    return UsageError(f"{VARIABLE}={wanted}: {reason}.")
