"""What a run's times depend on besides its settings: hardware, versions, thread settings; and what
produced them.
"""

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
VARIABLES = (
    "XLA_FLAGS",
    "JAX_PLATFORMS",
    "JAX_ENABLE_X64",
    "JAX_DISABLE_JIT",
    "JAX_DEBUG_NANS",
    "JAX_DEFAULT_MATMUL_PRECISION",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NPROC",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
)
"""Settings of threads, memory and debugging that change times."""
COMPARED = (
    "cpu",
    "cores",
    "core_quota",
    "accelerators",
    "devices",
    "packages",
    "variables",
    "precision",
    "python",
    "ncfbench",
)
"""What must agree before the times of two runs are divided."""


def describe(mesh: dict[str, Any] | None = None) -> dict[str, Any]:
    """The environment as ``environment.json`` records it. Starts JAX, to ask for its devices.

    Args:
        mesh: the devices that a step is spread over; None for one.
    """
    import jax

    devices = [
        {"kind": device.device_kind, "platform": device.platform} for device in jax.devices()
    ]
    environment = {
        "cpu": _cpu_model(),
        "cores": (
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        ),
        "machine_cores": os.cpu_count(),
        "core_quota": _core_quota(),
        "governor": _first_line(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        "memory_bytes": _memory("SC_PHYS_PAGES"),
        "memory_available_bytes": _memory("SC_AVPHYS_PAGES"),
        "accelerators": accelerators(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "devices": devices,
        "precision": str(jax.config.values["jax_default_matmul_precision"] or "default"),
        "ncfbench": __version__,
        "commit": _commit(),
        "load_average": load_average(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    environment |= {} if mesh is None else {"mesh": mesh}
    return environment | {"key": key(environment)}


def key(environment: dict[str, Any]) -> str:
    """Twelve hexadecimal digits of everything that times depend on (:data:`COMPARED`)."""
    compared = (*COMPARED, "mesh") if "mesh" in environment else COMPARED
    text = json.dumps({name: environment[name] for name in compared}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def load_average() -> list[float] | None:
    """Processes that ran or wanted to, over the last 1, 5 and 15 minutes; None where the system
    does not say.
    """
    return list(os.getloadavg()) if hasattr(os, "getloadavg") else None


def accelerators() -> list[str]:
    """Accelerators that the system has, whether JAX uses them or not: model and driver of each, as
    far as they are known.
    """
    try:
        asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True)
        return [line.strip() for line in done.stdout.splitlines() if line.strip()]
    except (OSError, subprocess.SubprocessError):
        pass
    devices = {
        "/dev/nvidia0": "an NVIDIA GPU",
        "/dev/kfd": "an AMD GPU",
        "/dev/accel0": "an accelerator",
    }
    return [name for path, name in devices.items() if Path(path).exists()]


def _memory(pages: str) -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf(pages)
    except (ValueError, OSError, AttributeError):
        return None


def _core_quota() -> float | None:
    """Cores' worth of time that the control group may use; None where it has no limit."""
    words = (_first_line(Path("/sys/fs/cgroup/cpu.max")) or "max").split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0] != "max" else None


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").splitlines()[0].strip()
    except (OSError, IndexError):
        return None


def _commit() -> dict[str, Any] | None:
    """The git commit of this program's source, and whether it was changed since; None where it is
    not a checkout.
    """
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return None
    try:
        outputs = [
            subprocess.run(
                ["git", "-C", str(folder), *arguments],
                capture_output=True,
                text=True,
                timeout=10,
                check=True,
            )
            for arguments in (
                ("rev-parse", "HEAD"),
                ("status", "--porcelain", "--untracked-files=no"),
            )
        ]
    except (OSError, subprocess.SubprocessError):
        return None
    return {"id": outputs[0].stdout.strip(), "dirty": bool(outputs[1].stdout.strip())}
