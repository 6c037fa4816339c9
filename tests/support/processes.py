"""Runs of several processes or devices, and races of commands that print lines."""

import json
import os
import socket
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import pytest

from ncfbench.auditing.gradients import flat
from ncfbench.config import Locations, complete
from ncfbench.distributed import FLAG
from ncfbench.models.dropout import Dropout, rates_of
from ncfbench.runs.plan import RunPlan
from ncfbench.sampling import plan_capacity
from ncfbench.training import run as training
from support.cli import check, invoke
from support.training import Trial

SMALL = {
    "dataset": "tiny",
    "batch_size": 64,
    "negatives": 3,
    "dimension": 8,
    "word_dimension": 8,
    "filters": 8,
    "lstm_units": 8,
    "gru_units": 8,
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


def start(data_dir, runs_dir, count, *flags, slurm=False, last=(), script=SCRIPT, **more):
    """Start the processes of one run.

    Args:
        flags: of every process.
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
            where = [f"127.0.0.1:{port}", "--processes", str(count)]
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


def on_devices(dataset, config):
    """Loss and gradient of the third batch, dropout on, by the devices of the settings."""
    trial = Trial(dataset, config)
    layout, slots, made = trial.trainer.layout, plan_capacity(trial.graph, config), trial.sampler
    batch = layout.put(made.assemble(next(made.draws(2, 3)), slots))
    trial.content = layout.replicate(trial.content)
    dropout = Dropout(jnp.uint32(0), jnp.uint32(2), rates_of(trial.config))
    value, gradient = trial.gradient(batch, dropout)
    return value, flat(layout.to_host(gradient))


def train(data_dir, runs_dir, *, progress=None, **more):
    settings = SMALL | {"epochs": 2, "sampler": "strat-ns"} | more
    plan = RunPlan.of(complete(settings), Locations(data_dir, runs_dir))
    return training.run(plan, progress=progress)


def assert_same_curve(one, other):
    """Up to summation order: dropout on, Adam at the paper's learning rate."""
    names = ("iteration", "epoch", "probe_loss", "batch_loss", "test_recall_at_50")
    for row, expected in zip(one.curve, other.curve, strict=True):
        for name in names[:2]:
            assert row[name] == expected[name]
        for name in names[2:]:
            assert (row[name] is None) == (expected[name] is None)
            assert row[name] is None or row[name] == pytest.approx(expected[name], rel=2e-4)


COUNT = "n=0; while [ $n -lt {count} ]; do n=$((n+1)); echo v=$n; sleep 0.01; done"
ENDLESS = "n=0; while :; do n=$((n+1)); echo v=$n; sleep 0.0{pace}; done"
V = ("--metric", "v=([0-9.]+)")
RACE_LIMIT_SECONDS = 30


def race(*words, code=0):
    """Race, and return the answer."""
    done = invoke("race", "--json", "--quiet", *words)
    check(done, code)
    return json.loads(done.stdout)


def by_name(found):
    return {arm["arm"]: arm for arm in found["arms"]}


def wait(condition):
    deadline = time.monotonic() + RACE_LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.002)
