"""Free memory, checked before something large is made."""

from __future__ import annotations

import re
from pathlib import Path

import psutil

from ncfbench.errors import UsageError

CONTROL_GROUP = Path("/sys/fs/cgroup")
"""This process's control group (version 2), as containers mount it."""


def require_memory(what: str, needed: int) -> None:
    """Refuse to make what cannot fit into memory: a UsageError where fewer bytes are free."""
    free = available_memory()
    if needed > free:
        raise UsageError(
            f"{what}: making these takes about {needed / 2**30:,.1f} GiB of memory, and"
            f" {free / 2**30:,.1f} GiB are free. Ask for fewer, or use a machine with more memory."
        )


def memory_limit() -> int:
    """Return the bytes of the machine's memory, or of its control group's limit if that is less."""
    total, limit = int(psutil.virtual_memory().total), _of_group("memory.max")
    return min(total, int(limit)) if limit.isdigit() else total


def available_memory() -> int:
    """Return the bytes that this process can still take without swapping or hitting its control
    group's limit; cached files count as free, since the kernel drops them when memory is short.
    """
    available = int(psutil.virtual_memory().available)
    limit, used, statistics = map(_of_group, ("memory.max", "memory.current", "memory.stat"))
    if not (limit.isdigit() and used.isdigit()):
        return available
    cached = re.search(r"^inactive_file (\d+)", statistics, re.MULTILINE)
    return min(available, max(int(limit) - int(used) + int(cached[1] if cached else 0), 0))


def _of_group(name: str) -> str:
    try:
        return (CONTROL_GROUP / name).read_text(encoding="ascii").strip()
    except OSError:
        return ""
