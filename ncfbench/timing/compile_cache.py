"""JAX's persistent compilation cache: programs compiled once are read back in later runs."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

from ncfbench.config import cache_dir
from ncfbench.errors import reason
from ncfbench.timing.environment import processor

FOLDER = "compiled"
"""Name of the folder inside the cache folder."""
LEAST_SECONDS_VARIABLE = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def keep_compiled(say: Callable[[str], None]) -> Path | None:
    """Keep compiled programs in ``<cache folder>/compiled``; call it before anything is compiled.
    Starts JAX.

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
