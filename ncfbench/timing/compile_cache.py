"""JAX's persistent compilation cache: programs compiled once are read back in later runs."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ncfbench.config import cache_dir
from ncfbench.errors import reason
from ncfbench.timing.environment import processor

FOLDER = "compiled"
"""Name of the folder inside the cache folder."""
MOST_BYTES = 2**27
"""Bytes of all kept programs: some 15,000, of which a run has about 50."""
LEAST_SECONDS_VARIABLE = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def keep_compiled(say: Callable[[str], None]) -> Path | None:
    """Keep compiled programs in ``<cache folder>/compiled``; call it before anything is compiled.
    Starts JAX. Where all take more than :data:`MOST_BYTES`, those read longest ago are deleted.

    It changes nothing where ``JAX_ENABLE_COMPILATION_CACHE=0`` switches the cache off, or where
    JAX has a folder already (``JAX_COMPILATION_CACHE_DIR``). A folder that cannot be written is
    reported and does no harm.

    Returns:
        The folder; None where nothing was changed.
    """
    import jax

    if (
        jax.config.values["jax_compilation_cache_dir"]
        or not jax.config.values["jax_enable_compilation_cache"]
    ):
        return None
    # Machines that share a home folder must not share machine code.
    machine = f"{platform.system()} {platform.machine()} {processor()[1]}"
    digest = hashlib.sha256(machine.encode()).hexdigest()[:12]
    folder = cache_dir() / FOLDER / digest
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        _delete_oldest(folder)
    except OSError as error:
        say(
            f"Compiled programs are not kept for the next run: {folder} cannot be written"
            f" ({reason(error)})."
        )
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    if LEAST_SECONDS_VARIABLE not in os.environ:
        # JAX's default of one second leaves out all of the many small programs of a start.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return folder


def _delete_oldest(folder: Path) -> None:
    """Delete the programs that were read longest ago, until the others take three quarters of
    :data:`MOST_BYTES`; nothing where all take no more than that.
    """
    with suppress(FileNotFoundError):  # another process deletes them too
        known = {path: path.stat() for path in folder.iterdir()}
        left = sum(one.st_size for one in known.values())
        most = left if left <= MOST_BYTES else 3 * MOST_BYTES // 4
        for path in sorted(known, key=lambda path: max(known[path][7:9])):  # last read or written
            if left <= most:
                return
            left -= known[path].st_size
            path.unlink()
