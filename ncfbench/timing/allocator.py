"""Settings of the C library's memory allocator: large pages, kept for the next iteration.

An iteration needs its arrays for milliseconds. By default glibc returns every large array to the
system and asks for it again, page by page, zeroed: on CPU that took a third to a half of an
iteration with thousands of items (benchmarks/README.md). glibc reads its settings when a process
starts, so the process starts itself again with them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

VARIABLE = "GLIBC_TUNABLES"
TUNABLES = {
    # madvise(MADV_HUGEPAGE) for the heap; /sys/kernel/mm/transparent_hugepage/enabled must allow it
    "glibc.malloc.hugetlb": 1,
    # Large arrays come from the heap as well, and the heap does not shrink.
    "glibc.malloc.mmap_max": 0,
    "glibc.malloc.trim_threshold": 2**40,
    "glibc.malloc.top_pad": 2**26,
}
FIRST_GLIBC = (2, 35)
"""First version with large pages."""


def tunables(environment: Mapping[str, str]) -> str | None:
    """Return the ``GLIBC_TUNABLES`` to start again with; None where there is nothing to do.

    There is nothing to do on other systems and older versions, and where the user has set the
    variable (an empty value switches this off).
    """
    if VARIABLE in environment or _glibc_version() < FIRST_GLIBC:
        return None
    return ":".join(f"{name}={value}" for name, value in TUNABLES.items())


def reexec_with_tunables() -> None:
    """Start this process again with :data:`TUNABLES`, once; it keeps its id, arguments and open
    files.

    Call it before anything else is done.
    """
    value = tunables(os.environ)
    if value is None or not sys.executable:
        return
    os.environ[VARIABLE] = value
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _glibc_version() -> tuple[int, ...]:
    """Return the C library's version, (0,) if it is not glibc."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        return tuple(map(int, version.split("."))) if name == "glibc" else (0,)
    except (AttributeError, ValueError, OSError):
        return (0,)
