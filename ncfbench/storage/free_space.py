"""Free memory, checked before something large is made."""

from __future__ import annotations

import re
from pathlib import Path

import psutil

from ncfbench.errors import UsageError

CONTROL_GROUP = Path("/sys/fs/cgroup")
"""This process's control group (version 2), as containers mount it."""


def require_memory(what: str, needed: int) -> None:
    """Refuse what cannot fit into memory.

    Args:
        what: the thing to be made, for the message.
        needed: bytes.

    Raises:
        UsageError: more memory is needed than is free.
    """
    free = available_memory()
    if needed > free:
        raise UsageError(
            f"{what}: making these takes about {needed / 2**30:,.1f} GiB of memory, and"
            f" {free / 2**30:,.1f} GiB are free."
            " Ask for fewer, or use a machine with more memory."
        )


def available_memory() -> int:
    """Return the bytes that this process can still take without swapping or hitting its control
    group's limit.
    """
    available = int(psutil.virtual_memory().available)
    left = left_in_group(CONTROL_GROUP)
    return available if left is None else min(available, left)


def left_in_group(group: Path) -> int | None:
    """Return the bytes that a control group's limit leaves; None without a limit.

    Cached files count as free, since the kernel drops them when memory is short.
    """
    try:
        limit, used, statistics = (
            (group / name).read_text(encoding="ascii").strip()
            for name in ("memory.max", "memory.current", "memory.stat")
        )
    except OSError:
        return None
    if limit == "max":
        return None
    cached = re.search(r"^inactive_file (\d+)", statistics, re.MULTILINE)
    return max(int(limit) - int(used) + (int(cached[1]) if cached else 0), 0)
