"""Free memory, checked before something large is made."""

from __future__ import annotations

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
            f"{what}: making these takes about {_gib(needed)} of memory, and {_gib(free)} are free."
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
        limit, used = (
            (group / name).read_text(encoding="ascii").strip()
            for name in ("memory.max", "memory.current")
        )
        statistics = (group / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    if limit == "max":
        return None
    cached = next(
        (int(line.split()[1]) for line in statistics if line.startswith("inactive_file ")), 0
    )
    return max(int(limit) - int(used) + cached, 0)


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
