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
VARIABLES = {"tcmalloc": "TCMALLOC_", "mimalloc": "MIMALLOC_"}
"""Beginnings of the variables that hold an allocator's settings."""


KEEPS = "dirty_decay_ms:-1"
"""Setting of jemalloc without which it returns memory to the system, which takes time."""
PACKAGES = (
    "apt install libjemalloc2 (Debian, Ubuntu), dnf install jemalloc (Fedora), or conda install -c"
    " conda-forge jemalloc"
)


class _Symbol(ctypes.Structure):
    """Where a symbol comes from (``dladdr``)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def describe() -> dict[str, Any]:
    """Return the allocator's ``name``, ``version``, ``settings`` and ``library``.

    ``name`` is ``glibc``, or ``system`` on other systems, where nothing replaces the C library's
    allocator; for an unknown one it is the library's file name. ``version`` is None if the library
    does not say it. ``settings`` is a text as its variable would hold it, empty for defaults.
    """
    variables = os.environ | allocator.restarted_with()
    library = _library_of_malloc()
    if library is None or Path(library).name.startswith(("libc.", "libc-", "libsystem")):
        glibc = ".".join(map(str, allocator.glibc_version()))
        return {
            "name": "glibc" if glibc else "system",
            "version": glibc or None,
            "settings": variables.get("GLIBC_TUNABLES", "") if glibc else "",
            "library": library,
        }
    name = allocator.kind_of(library) or Path(library).name
    prefix = VARIABLES.get(name)
    listed = sorted(each for each in variables if prefix and each.startswith(prefix))
    return {
        "name": name,
        "version": _version(name),
        "settings": (
            _jemalloc_settings()
            if name == "jemalloc"
            else ",".join(f"{each}={variables[each]}" for each in listed)
        ),
        "library": library,
    }


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
    library = next(allocator.installed(allocator.LIBRARIES["jemalloc"], os.environ), None)
    settings = allocator.SETTINGS["jemalloc"].items()
    variables = [f"{name}={value}" for name, value in settings]
    return " ".join(["env", f"LD_PRELOAD={library}", *variables]) if library else None


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


def _version(name: str) -> str | None:
    program = ctypes.CDLL(None)
    if name == "jemalloc":
        return str(_jemalloc("version", ctypes.c_char_p)).partition("-")[0]
    if name == "tcmalloc" and hasattr(program, "tc_version"):
        program.tc_version.restype = ctypes.c_char_p
        return str(program.tc_version(None, None, None).decode()).rpartition(" ")[2]
    if name == "mimalloc" and hasattr(program, "mi_version"):
        return str(program.mi_version())
    return None


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
    found = control(name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t())
    if found != 0:
        return None
    known: str | int = value.value.decode() if isinstance(value.value, bytes) else value.value
    return known
