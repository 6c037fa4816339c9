"""The heap of this process: which allocator serves ``malloc``, and with what settings.

The dynamic loader and the allocator are asked, not the environment's variables: a library may have
failed to load, and settings may come from elsewhere.
"""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ncfbench.timing import allocator

C_LIBRARY = ("glibc", "system")
"""Names of the C library's own allocator."""
KEEPS = "dirty_decay_ms:-1"
"""Setting of jemalloc without which it returns memory to the system, which takes time."""
PACKAGES = (
    "apt install libjemalloc2 (Debian, Ubuntu), dnf install jemalloc (Fedora), or conda install -c"
    " conda-forge jemalloc"
)


class _Symbol(ctypes.Structure):
    """The library that a symbol comes from (``dladdr``)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def describe() -> dict[str, Any]:
    """Return the allocator's ``name``, ``version``, ``settings`` and ``library``.

    ``name`` is ``glibc``, or ``system`` on other systems, where nothing replaces the C library's
    allocator; for an unknown one it is the library's file name. ``version`` is None, and
    ``settings`` empty, for all but jemalloc and glibc.
    """
    library, version, settings = _library_of_malloc(), None, ""
    if library is None or Path(library).name.startswith(("libc.", "libc-", "libsystem")):
        version = allocator.glibc_version() or None
        name = "glibc" if version else "system"
        settings = os.environ.get("GLIBC_TUNABLES", "") if version else ""
    else:
        name = allocator.kind_of(library) or Path(library).name
    if name == "jemalloc":
        version = str(_jemalloc("version", ctypes.c_char_p)).partition("-")[0]
        settings = _jemalloc_settings()
    return {"name": name, "version": version, "settings": settings, "library": library}


def lack(serving: Mapping[str, Any]) -> str | None:
    """Return what is lost with an allocator; None for jemalloc that keeps what was freed, and on
    systems where nothing else can be loaded.

    Args:
        serving: as :func:`describe` returns it.
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
    library = allocator.find_library()
    return library and f"env LD_PRELOAD={library} MALLOC_CONF={allocator.SETTINGS}"


@functools.cache
def warn_once() -> None:
    """Warn a Python program once if its allocator disturbs times.

    A command restarts itself with a better one; a library cannot.
    """
    lacks = lack(describe())
    if lacks:
        warnings.warn(f"{lacks} {remedy()}", stacklevel=3)


def _library_of_malloc() -> str | None:
    """Return the path of the library whose ``malloc`` this process calls."""
    try:
        program, found = ctypes.CDLL(None), _Symbol()
        if not program.dladdr(ctypes.cast(program.malloc, ctypes.c_void_p), ctypes.byref(found)):
            return None
    except (AttributeError, OSError, TypeError):  # other systems
        return None
    return os.fsdecode(found.file)


def _jemalloc_settings() -> str:
    """Return the settings that :data:`allocator.SETTINGS` names, as they are."""
    number, text = ctypes.c_ssize_t, ctypes.c_char_p
    kinds = {
        "dirty_decay_ms": number,
        "muzzy_decay_ms": number,
        "thp": text,
        "narenas": ctypes.c_uint,
    }
    return ",".join(f"{name}:{_jemalloc(f'opt.{name}', kind)}" for name, kind in kinds.items())


def _jemalloc(name: str, kind: Any) -> str | int | None:
    """Return what jemalloc says of itself, None if it has no such setting."""
    value, size = kind(), ctypes.c_size_t(ctypes.sizeof(kind))
    control = ctypes.CDLL(None).mallctl
    if control(name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t()):
        return None
    known: str | int = value.value.decode() if isinstance(value.value, bytes) else value.value
    return known
