"""Several real processes of one run, started by tests; and what processes that tests start share
with them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax

from ncfbench.distributed.simulation import FLAG

SMALL: dict[str, Any] = {
    "dataset": "tiny",
    "batch_size": 64,
    "negatives": 3,
    "dimension": 8,
    "word_dimension": 8,
    "filters": 8,
    "lstm_units": 8,
    "user_l2": 0.01,
}
SCRIPT = (
    "from ncfbench import cli; from ncfbench.training import session;"
    " session.CHECKPOINT_SECONDS = 0.0; cli.main()"
)
SLOW = """
import time
from ncfbench import cli
from ncfbench.runs import recorder
write = recorder.RunRecorder.write
def slow(self, status, *arguments):
    write(self, status, *arguments)
    if status == "finished":
        time.sleep(8)
recorder.RunRecorder.write = slow
cli.main()
"""
"""A first process that takes long to write its tables at the end."""
TELLING = """
import sys
import jax
from ncfbench import cli
initialize = jax.distributed.initialize
def telling(*arguments, **more):
    print("joining", file=sys.stderr, flush=True)
    initialize(*arguments, **more)
jax.distributed.initialize = telling
cli.main()
"""
"""A process that says when it begins to wait for the others."""


SLURM_PORTS = range(61440, 65536)
"""One of which JAX chooses by the number of the job."""


def free_port(*, slurm: bool = False) -> int:
    offset = os.getpid() % len(SLURM_PORTS)
    for port in [*SLURM_PORTS[offset:], *SLURM_PORTS[:offset]] if slurm else [0]:
        try:
            with socket.create_server(("127.0.0.1", port)) as server:
                return int(server.getsockname()[1])
        except OSError:
            continue
    raise AssertionError("no port is free")


def start(
    data_dir: Path,
    runs_dir: Path,
    count: int,
    *flags: str,
    of: int | None = None,
    slurm: bool = False,
    last: tuple[str, ...] = (),
    script: str = SCRIPT,
    **more: Any,
) -> list[subprocess.Popen[str]]:
    """``count`` of ``of`` processes of one run, which the program gives their devices; the last has
    flags of its own.

    With ``slurm`` they are told of each other by nothing but the variables that Slurm gives the
    tasks of a job.
    """
    settings = SMALL | {"sampler": "strat-ns", "encoder": "mf"} | more
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    variables = os.environ | compiled_once() | {"XLA_FLAGS": os.environ["XLA_FLAGS"].split(FLAG)[0]}
    port = free_port(slurm=slurm)
    found = []
    for index in range(count):
        if slurm:
            # JAX makes the coordinator's port from the number of the job.
            job = {
                "JOB_ID": port - SLURM_PORTS.start,
                "STEP_NODELIST": "localhost",
                "STEP_NUM_NODES": 1,
                "NTASKS": count,
                "PROCID": index,
                "LOCALID": index,
            }
            told, own = ["auto"], {f"SLURM_{name}": str(value) for name, value in job.items()}
        else:
            told, own = (
                [f"127.0.0.1:{port}", "--processes", str(of or count), "--process-id", str(index)],
                {},
            )
        command = [
            sys.executable,
            "-c",
            script,
            "run",
            *words,
            "--data-dir",
            str(data_dir),
            "--runs-dir",
            str(runs_dir),
            "--coordinator",
            *told,
            *flags,
            *(last if index == count - 1 else ()),
        ]
        found.append(
            subprocess.Popen(
                command,
                env=variables | own,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return found


def ends(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Exit code, standard output and standard error of each."""
    found = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=120)
            found.append((process.returncode, out, err))
    finally:
        for process in processes:
            process.kill()
    return found


def compiled_once() -> dict[str, str]:
    """Variables for a process that is to keep its compiled programs where the tests keep theirs."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.values["jax_compilation_cache_dir"]),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }
