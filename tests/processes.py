"""Several real processes of one run, and settings and variables that started processes share."""

import os
import socket
import subprocess
import sys

import jax

from ncfbench.distributed import FLAG

SMALL = {
    "dataset": "tiny",
    "batch_size": 64,
    "negatives": 3,
    "dimension": 8,
    "word_dimension": 8,
    "filters": 8,
    "lstm_units": 8,
    "width": 8,
    "layers": 1,
    "feed_forward": 8,
    "user_l2": 0.01,
}
CHILD = """
import os
from ncfbench import cli
from ncfbench.distributed import process_group
from ncfbench.training import train
process_group.HEARTBEAT_SECONDS, train.CHECKPOINT_SECONDS = 5, 0.0
"""
"""With a checkpoint at the end of every epoch."""
SCRIPT = f"{CHILD}cli.main()"
KILLED = """
import os, signal, sys
replace, left = os.replace, int(sys.argv[3])
def dying(*names):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*names)
os.replace = dying
"""
"""Begins a script that is killed when its file of some number is to take its name; 0: never."""

SLURM_PORTS = range(61440, 65536)
"""JAX derives the coordinator's port, one of these, from the number of the job."""


LIMIT_SECONDS = 300
"""A process that takes longer hangs, on a busy machine too."""


def free_port(*, slurm=False):
    offset = os.getpid() % len(SLURM_PORTS)
    for port in [*SLURM_PORTS[offset:], *SLURM_PORTS[:offset]] if slurm else [0]:
        try:
            with socket.create_server(("127.0.0.1", port)) as server:
                return int(server.getsockname()[1])
        except OSError:
            continue
    raise AssertionError("no port is free")


def start(data_dir, runs_dir, count, *flags, of=None, slurm=False, last=(), script=SCRIPT, **more):
    """Start the first ``count`` of ``of`` processes of one run.

    Args:
        flags: of every process.
        of: how many the run waits for; by default all that are started.
        slurm: let JAX detect the processes by the variables that Slurm sets for the tasks of a job.
        last: more flags of the last process.
        script: runs the program.
        more: settings.
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
            where, own = ["auto"], {f"SLURM_{name}": str(value) for name, value in job.items()}
        else:
            where = [f"127.0.0.1:{port}", "--processes", str(of or count)]
            where, own = [*where, "--process-id", str(index)], {}
        folders = ["--data-dir", str(data_dir), "--runs-dir", str(runs_dir)]
        command = [sys.executable, "-c", script, "run", *words, *folders, "--coordinator", *where]
        more_flags = [*flags, *(last if index == count - 1 else ())]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        found.append(subprocess.Popen([*command, *more_flags], env=variables | own, **pipes))
    return found


def ends(processes):
    """Return exit code, standard output and standard error of each."""
    found = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=LIMIT_SECONDS)
            found.append((process.returncode, out, err))
    finally:
        for process in processes:
            process.kill()
    return found


def compiled_once():
    """Return variables that let a process use the compilation cache of the tests."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.values["jax_compilation_cache_dir"]),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }
