"""The doctor: faults of an environment that make its times wrong, or longer than they need be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ncfbench.errors import install_command
from ncfbench.timing.contention import BUSY_REMEDY


def warnings(environment: Mapping[str, Any], used: str | None = None) -> Iterator[str]:
    """Yield each fault of an environment, and what to do about it.

    Args:
        environment: the result of :func:`ncfbench.timing.environment.describe`.
        used: what other programs use now, by :meth:`~contention.OtherPrograms.describe`.
    """
    cores, quota = environment["cores"], environment["core_quota"]
    on_cpu = all(device["platform"] == "cpu" for device in environment["devices"])
    if environment["accelerators"] and on_cpu:
        unset = ", and unset JAX_PLATFORMS." if "JAX_PLATFORMS" in environment["variables"] else "."
        yield (
            f"There is {environment['accelerators'][0]}, and JAX does not use it. Install the"
            f" extra: {install_command('cuda13')} (or cuda12){unset}"
        )
    if used is not None:
        yield f"Other programs use {used}. {BUSY_REMEDY}"
    if cores < (environment["machine_cores"] or cores):
        yield (
            f"This process may use only {cores} of {environment['machine_cores']} cores. Start it"
            " without taskset."
        )
    if quota is not None and quota < cores:
        yield (
            f"The container may use {quota:g} cores' worth of time and sees {cores} cores: its"
            " threads will be stopped in bursts. Raise its limit, or bind it to whole cores."
        )
    if on_cpu and environment["allocator"] == "glibc":
        # Measured by `ncfbench profile` on made texts of 300 words (CNN, 2 cores).
        yield (
            "The memory allocator is glibc's, so a time depends on what else ran in the process:"
            " predictions for texts of 300 words were up to 59 % off, with jemalloc 9 %. Install"
            " it (apt install libjemalloc2, dnf install jemalloc)."
        )
