"""Whether there is room for a data set of a given size, in memory and on the disk, asked before it
is made.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from ncfbench.errors import UsageError


def require(what: str, folder: Path, *, memory_bytes: int, disk_bytes: int) -> None:
    """Refuse sizes that cannot fit.

    Args:
        what: what is to be made, for the message.
        folder: where it is to be stored; there already.

    Raises:
        UsageError: more is needed than there is; where the system does not say what there is,
            nothing is refused.
    """
    memory = available_memory()
    if memory is not None and memory_bytes > memory:
        raise UsageError(
            f"{what}: making these takes some {_gib(memory_bytes)} of memory, and {_gib(memory)}"
            " are free. Ask for fewer, or use a machine with more memory."
        )
    disk = shutil.disk_usage(folder).free
    if disk_bytes > disk:
        raise UsageError(
            f"{what}: these take some {_gib(disk_bytes)} on the disk, and {_gib(disk)} are free"
            f" below {folder}. Ask for fewer, or choose another folder with --data-dir."
        )


def available_memory() -> int | None:
    """Bytes that a process can take before the system has to push others out, or its control group
    forbids it.

    None where the system does not say.
    """
    known = [_meminfo(Path("/proc/meminfo")), _left(Path("/sys/fs/cgroup"))]
    return min((size for size in known if size is not None), default=None)


def _meminfo(path: Path) -> int | None:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next(
        (1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None
    )


def _left(group: Path) -> int | None:
    """What a control group (version 2) leaves; files that it keeps in memory can go, so they do not
    count as taken.
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
    files = next(
        (int(line.split()[1]) for line in statistics if line.startswith("inactive_file ")), 0
    )
    return max(int(limit) - int(used) + files, 0)


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
