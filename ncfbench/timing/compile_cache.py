"""JAX's persistent compilation cache: what was compiled once is read back in later runs, here and
in other processes.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

from ncfbench.config import cache_dir
from ncfbench.errors import reason

FOLDER = "compiled"
"""Below the cache folder."""
LEAST_SECONDS_VARIABLE = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def keep_compiled(say: Callable[[str], None]) -> Path | None:
    """Keep compiled programs in ``<cache folder>/compiled``; call it before anything is compiled.
    Starts JAX.

    Does nothing where ``JAX_ENABLE_COMPILATION_CACHE=0`` switches the cache off, or where
    ``JAX_COMPILATION_CACHE_DIR`` (or whoever set JAX up) names a folder already. A folder that
    cannot be written is said, and does no harm.

    Returns:
        The folder, or None where this changed nothing.
    """
    import jax

    if (
        jax.config.values["jax_compilation_cache_dir"]
        or not jax.config.values["jax_enable_compilation_cache"]
    ):
        return None
    folder = cache_dir() / FOLDER / _machine()
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
        # JAX's default, one second, leaves out every one of the many small programs that a start
        # consists of.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return folder


def _machine() -> str:
    """Twelve hexadecimal digits of the processor's instructions: machines that share a home must
    not share machine code.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    features = next(
        (line for line in lines if line.startswith(("flags", "Features"))), platform.processor()
    )
    return hashlib.sha256(
        f"{platform.system()} {platform.machine()} {features}".encode()
    ).hexdigest()[:12]
