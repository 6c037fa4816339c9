"""jemalloc, where it is installed: an allocator that keeps what was freed for the next iteration.

An iteration needs large arrays for milliseconds, which glibc returns to the system and asks for
again, page by page, zeroed. A library is preloaded when a process starts, so commands start
themselves again. ``NCFBENCH_ALLOCATOR=none`` and a ``LD_PRELOAD`` or ``MALLOC_CONF`` of the user
leave the process as it is.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys

VARIABLE = "NCFBENCH_ALLOCATOR"
LIBRARY = "libjemalloc.so.2"
SETTINGS = "dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always,narenas:2"
"""Freed memory stays, in large pages, in few arenas, so that it is reused soon."""
RESTARTED = "NCFBENCH_RESTARTED"
"""Holds the id of a process that restarted itself."""
OURS = ("LD_PRELOAD", "MALLOC_CONF")


def restart() -> None:
    """Start this process again with jemalloc, once; call it before anything else is done.

    It keeps its id, arguments and open files. Programs that it starts run without jemalloc.
    """
    if os.environ.pop(RESTARTED, "") == str(os.getpid()):
        for name in OURS:
            del os.environ[name]
        return
    is_left = os.environ.get(VARIABLE) == "none" or any(name in os.environ for name in OURS)
    library = None if is_left else find_library()
    if library is not None and sys.executable:
        more = dict(zip((*OURS, RESTARTED), (library, SETTINGS, str(os.getpid())), strict=True))
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | more)


def find_library() -> str | None:
    """Return jemalloc's library as the dynamic loader finds it; None where it cannot load it."""
    for path in (f"{sys.prefix}/lib/{LIBRARY}", LIBRARY):
        try:
            ctypes.CDLL(path)
        except OSError as error:
            # jemalloc can be loaded only at a start: the loader finds that out last.
            if "static TLS" not in str(error):
                continue
        return path
    return None


def describe() -> str:
    """Return the name of the allocator that serves this process, such as ``jemalloc``."""
    if hasattr(ctypes.pythonapi, "mallctl"):
        return "jemalloc"
    return platform.libc_ver()[0] or "system"
