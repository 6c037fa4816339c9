"""Several devices and processes: layout of a step, process group."""

from __future__ import annotations

import os

VARIABLE = "XLA_FLAGS"
FLAG = "--xla_force_host_platform_device_count"


def simulate(devices: int) -> None:
    """Make a CPU show so many devices to this process; call it before JAX computes anything.

    Simulated devices compute and send what real ones do; times differ. XLA reads the setting when
    its CPU backend starts; other backends ignore it. A count that the user has set stays.
    """
    flags = os.environ.get(VARIABLE, "")
    if devices > 1 and FLAG not in flags:
        os.environ[VARIABLE] = f"{flags} {FLAG}={devices}".strip()
