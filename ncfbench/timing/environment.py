"""The environment that a run's times depend on: hardware, versions, thread settings.

``other_programs_cores`` is how many cores other programs used on average during the session; null
where several processes train together.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil

from ncfbench import __version__
from ncfbench.storage.free_space import CONTROL_GROUP
from ncfbench.timing import allocator
from ncfbench.timing.contention import own_cores

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "pyarrow")
VARIABLES = (
    *("XLA_FLAGS", "JAX_PLATFORMS", "JAX_ENABLE_X64", "JAX_DISABLE_JIT", "JAX_DEBUG_NANS"),
    *("JAX_DEFAULT_MATMUL_PRECISION",),
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *("MKL_NUM_THREADS", "NPROC", "XLA_PYTHON_CLIENT_PREALLOCATE"),
    *("XLA_PYTHON_CLIENT_MEM_FRACTION", "GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_CONF"),
)
"""Settings of threads, memory and debugging that change times."""
COMPARED = (
    *("cpu", "cores", "core_quota", "accelerators", "devices"),
    *("packages", "variables", "python", "ncfbench"),
)
"""Parts of an environment that must agree before the times of two runs are divided."""


def describe(mesh: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the environment as ``environment.json`` records it; starts JAX to list its devices.

    Args:
        mesh: the devices that a step is spread over; None for one.
    """
    import jax

    environment: dict[str, Any] = {
        "cpu": processor()[0],
        "cores": len(own_cores()),
        "machine_cores": psutil.cpu_count(),
        "core_quota": _core_quota(),
        "memory_bytes": int(psutil.virtual_memory().total),
        "accelerators": accelerators(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "variables": _variables(),
        "allocator": allocator.describe(),
        "devices": [
            {"kind": device.device_kind, "platform": device.platform} for device in jax.devices()
        ],
        "ncfbench": __version__,
        "commit": _commit(),
        "host_key": host_key(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    if mesh is not None:
        environment["mesh"] = mesh
    return environment | {"key": key(environment)}


def key(environment: dict[str, Any]) -> str:
    """Return twelve hexadecimal digits of everything that times depend on (:data:`COMPARED`)."""
    compared = {name: environment[name] for name in COMPARED}
    if "mesh" in environment:
        compared["mesh"] = environment["mesh"]
    if environment["allocator"] == "jemalloc":
        compared["allocator"] = "jemalloc"
    text = json.dumps(compared, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def host_key() -> str:
    """Return twelve hexadecimal digits of what times of computations without JAX depend on, except
    the allocator, which commands choose by themselves.
    """
    described = {
        "cpu": processor()[0],
        "cores": len(own_cores()),
        "core_quota": _core_quota(),
        "packages": {name: importlib.metadata.version(name) for name in ("numpy", "scipy")},
        "variables": {
            name: value
            for name, value in _variables().items()
            if not name.startswith(("JAX_", "XLA_", "GLIBC_", "LD_", "MALLOC_"))
        },
        "ncfbench": __version__,
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:12]


@functools.cache
def processor() -> tuple[str, str]:
    """Return the processor's name, else its kind, and its instruction set extensions as one text,
    which Linux lists for x86.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    pairs = (line.partition(":") for line in lines)
    facts = {name.strip(): value.strip() for name, _, value in pairs}
    name = facts.get("model name") or platform.processor() or platform.machine()
    return name, facts.get("flags", "")


def accelerators() -> list[str]:
    """Return the accelerators that the system has, whether JAX uses them or not."""
    devices = {
        "/dev/nvidia0": "an NVIDIA GPU",
        "/dev/kfd": "an AMD GPU",
        "/dev/accel0": "an accelerator",
    }
    return [name for path, name in devices.items() if Path(path).exists()]


def _variables() -> dict[str, str]:
    """Return the variables that the user set and that change times."""
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


def _core_quota() -> float | None:
    """Return the cores' worth of time that the control group may use; None without a limit."""
    try:
        quota, period = (CONTROL_GROUP / "cpu.max").read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


def _commit() -> dict[str, Any] | None:
    """Return the git commit of this program's source and whether it has changes; None where it is
    not a checkout.
    """
    package = Path(__file__).parents[1]
    folder = package.parent
    if not (folder / ".git").exists():
        return None
    asked = ("status", "--porcelain=v2", "--branch", "--untracked-files=no", "--", package.name)
    command = ("git", "-C", str(folder), *asked)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    oid, *lines = done.stdout.splitlines()
    is_dirty = any(not line.startswith("#") for line in lines)
    return {"id": oid.removeprefix("# branch.oid "), "dirty": is_dirty}
