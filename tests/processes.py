"""What processes that tests start share with them."""

from __future__ import annotations

import jax


def compiled_once() -> dict[str, str]:
    """Variables for a process that is to keep its compiled programs where the tests keep theirs."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.values["jax_compilation_cache_dir"]),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }
