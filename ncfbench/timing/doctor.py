"""The doctor: faults of an environment that make its times wrong, or longer than they need be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ncfbench.errors import install_command

BUSY_LOAD = 0.3
"""Load per core over the last minute from which a machine counts as busy."""
LITTLE_MEMORY = 2 * 2**30
SLOW_FLAGS = (
    "--xla_cpu_multi_thread_eigen=false",
    "intra_op_parallelism_threads=1",
    "--xla_backend_optimization_level=0",
)
SLOW_VARIABLES = {
    "JAX_DISABLE_JIT": "compiles nothing",
    "JAX_DEBUG_NANS": "checks every result",
    "JAX_ENABLE_X64": "computes in double precision",
}
"""Variables that slow JAX down, and what it does with them."""


def warnings(environment: Mapping[str, Any], others: str | None = None) -> Iterator[str]:
    """Yield each fault of an environment, and what to do about it.

    Args:
        environment: the result of :func:`ncfbench.timing.environment.describe`.
        others: what other programs use now, by :meth:`~contention.OtherPrograms.describe`.
    """
    variables, cores = environment["variables"], environment["cores"]
    on_cpu = all(device["platform"] == "cpu" for device in environment["devices"])
    if environment["accelerators"] and on_cpu:
        unset = ", and unset JAX_PLATFORMS." if "JAX_PLATFORMS" in variables else "."
        yield (
            f"There is {environment['accelerators'][0]}, and JAX does not use it. Install the"
            f" extra: {install_command('cuda13')} (or cuda12){unset}"
        )
    load = environment["load_average"][0]
    if others is not None:
        yield (
            f"The machine is busy: other programs use {others}. Times will be too long and will"
            " vary. Wait until they end, or stop them."
        )
    elif load > BUSY_LOAD * cores:
        yield (
            f"The machine was busy: a load of {load:.1f} on {cores} cores over the last minute,"
            " though no program that this one can see is busy now. Wait a minute."
        )
    if cores < (environment["machine_cores"] or cores):
        yield (
            f"This process may use only {cores} of {environment['machine_cores']} cores. Start it"
            " without taskset."
        )
    quota = environment["core_quota"]
    if quota is not None and quota < cores:
        yield (
            f"The container may use {quota:g} cores' worth of time and sees {cores} cores: its"
            " threads will be stopped in bursts. Raise its limit, or bind it to whole cores."
        )
    threads = variables.get("NPROC", "")
    if threads.isdigit() and int(threads) < cores:
        yield (f"NPROC={threads} keeps JAX from {cores - int(threads)} of {cores} cores. Unset it.")
    for flag in SLOW_FLAGS:
        if flag in variables.get("XLA_FLAGS", ""):
            yield f"XLA_FLAGS holds {flag}, which slows JAX down. Remove it."
    for name, effect in SLOW_VARIABLES.items():
        if variables.get(name, "").lower() not in ("", "0", "false"):
            yield f"{name}={variables[name]}: JAX {effect}. Unset it before measuring."
    if on_cpu and environment["allocator"] == "glibc":
        # Measured by `ncfbench profile` on made texts of 300 words (CNN, 2 cores).
        yield (
            "The memory allocator is glibc's, so a time depends on what else ran in the process:"
            " predictions for texts of 300 words were up to 59 % off, with jemalloc 9 %. Install"
            " it (apt install libjemalloc2, dnf install jemalloc)."
        )
    available = environment["memory_available_bytes"]
    if available < LITTLE_MEMORY:
        yield (
            f"Only {available / 2**30:.1f} GiB of memory are free: the system may swap, or kill the"
            " process. Free some."
        )
    if environment["governor"] == "powersave":
        yield (
            "The processor's frequency governor is powersave, which raises the clock late. Set it"
            " to performance."
        )
