"""What a run's times depend on besides its settings: hardware, versions, thread settings; and what produced them."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

from ncfbench import __version__

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "pyarrow")
VARIABLES = ("XLA_FLAGS", "JAX_PLATFORMS", "JAX_ENABLE_X64", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC")
COMPARED = ("cpu", "cores", "devices", "packages", "variables", "precision", "python", "ncfbench")
"""What must agree before the times of two runs are divided."""


def describe() -> dict[str, Any]:
    """The environment as ``environment.json`` records it. Starts JAX, to ask for its devices."""
    import jax

    devices = [{"kind": device.device_kind, "platform": device.platform} for device in jax.devices()]
    environment = {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "devices": devices,
        "precision": str(jax.config.values["jax_default_matmul_precision"] or "default"),
        "ncfbench": __version__,
        "commit": _commit(),
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    return environment | {"key": key(environment)}


def key(environment: dict[str, Any]) -> str:
    """Twelve hexadecimal digits of everything that times depend on (:data:`COMPARED`)."""
    text = json.dumps({name: environment[name] for name in COMPARED}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _commit() -> dict[str, Any] | None:
    """The git commit of this program's source, and whether it was changed since; None where it is not a checkout."""
    folder = Path(__file__).parent.parent
    if not (folder / ".git").exists():
        return None
    try:
        outputs = [
            subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True)
            for arguments in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        ]
    except (OSError, subprocess.SubprocessError):
        return None
    return {"id": outputs[0].stdout.strip(), "dirty": bool(outputs[1].stdout.strip())}
