"""Several devices on one CPU, for what several devices compute and send; what they take says
nothing of real ones.
"""

from __future__ import annotations

import os

VARIABLE = "XLA_FLAGS"
FLAG = "--xla_force_host_platform_device_count"


def simulate(devices: int) -> None:
    """See to it that a CPU shows itself as so many devices to this process; call it before JAX
    computes anything.

    XLA reads the setting when its CPU backend starts. Other backends do not heed it. A count that
    the user has set stays.
    """
    flags = os.environ.get(VARIABLE, "")
    if devices > 1 and FLAG not in flags:
        os.environ[VARIABLE] = f"{flags} {FLAG}={devices}".strip()


def is_simulated(devices: int) -> bool:
    """Whether a step on so many devices would lie on simulated ones. Starts JAX, where there is
    more than one.
    """
    if devices == 1:
        return False
    import jax

    return jax.default_backend() == "cpu"
