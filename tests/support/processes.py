"""Runs of several processes or devices, and races of commands that print lines."""

import json
import os
import socket
import subprocess
import sys
from collections import deque
from threading import Event, Lock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncfbench.auditing.gradients import flat
from ncfbench.distributed import FLAG
from ncfbench.models.dropout import Dropout, rates_of
from ncfbench.racing.process import LAST_LINES, Process
from ncfbench.sampling import plan_capacity
from support import training
from support.cli import check, invoke

WIDTHS = ("dimension", "word_dimension", "filters", "lstm_units", "gru_units", "width")
SMALL = {"dataset": "tiny", "batch_size": 64, "negatives": 3, "layers": 1, "user_l2": 0.01}
SMALL |= dict.fromkeys((*WIDTHS, "feed_forward"), 8)
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
    """Start the processes of one run, with flags of all and last ones of the last; JAX detects them
    by the variables that Slurm sets for the tasks of a job, or is told of each.
    """
    settings = SMALL | {"sampler": "strat-ns", "encoder": "mf"} | more
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    words += ["--data-dir", str(data_dir), "--runs-dir", str(runs_dir)]
    variables = os.environ | compiled_once() | {"XLA_FLAGS": os.environ["XLA_FLAGS"].split(FLAG)[0]}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes, port = [], free_port(slurm=slurm)
    for index in range(count):
        if slurm:
            job = {"JOB_ID": port - SLURM_PORTS.start, "STEP_NODELIST": "localhost"}
            job |= {"STEP_NUM_NODES": 1, "NTASKS": count, "PROCID": index, "LOCALID": index}
            task, where = {f"SLURM_{name}": str(value) for name, value in job.items()}, ["auto"]
        else:
            where = [f"127.0.0.1:{port}", f"--processes={count}", f"--process-id={index}"]
            task = {}
        command = [sys.executable, "-c", script, "run", *words, "--coordinator", *where, *flags]
        command += last if index == count - 1 else ()
        processes.append(subprocess.Popen(command, env=variables | task, **pipes))
    return processes


def ends(processes):
    result = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=LIMIT_SECONDS)
            result.append((process.returncode, out, err))
    finally:
        for process in processes:
            process.kill()
    return result


def compiled_once():
    return {
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.values["jax_compilation_cache_dir"]),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }


def check_devices(dataset, settings):
    """Assert that loss and gradient of the third batch, dropout on, are those of one device."""
    results = []
    for devices in (settings["devices"], 1):
        trial = training.Trial(dataset, settings | {"devices": devices})
        layout, slots = trial.trainer.layout, plan_capacity(trial.graph, trial.config)
        batch = layout.put(trial.sampler.assemble(next(trial.sampler.draws(2, 3)), slots))
        trial.content = layout.replicate(trial.content)
        dropout = Dropout(jnp.uint32(0), jnp.uint32(2), rates_of(trial.config))
        value, gradient = trial.gradient(batch, dropout)
        results.append((value, flat(layout.to_host(gradient))))
    (value, gradient), (expected, whole) = results
    assert value == pytest.approx(expected, rel=1e-5)
    assert np.linalg.norm(gradient - whole) < 1e-5 * np.linalg.norm(whole)


def train(data_dir, runs_dir, *, progress=None, **more):
    settings = SMALL | {"encoder": "cnn", "epochs": 2, "sampler": "strat-ns"} | more
    return training.train(data_dir, runs_dir, progress=progress, **settings)


def assert_same_curve(one, other):
    """Up to summation order: dropout on, Adam at the paper's learning rate."""
    for row, expected in zip(one.curve, other.curve, strict=True):
        assert (row["iteration"], row["epoch"]) == (expected["iteration"], expected["epoch"])
        for name in ("probe_loss", "batch_loss", "test_recall_at_50"):
            value = row[name]
            assert expected[name] == (None if value is None else pytest.approx(value, rel=2e-4))


COUNT = "n=0; while [ $n -lt {count} ]; do n=$((n+1)); echo v=$n; sleep 0.01; done"
ENDLESS = "n=0; while :; do n=$((n+1)); echo v=$n; sleep 0.0{pace}; done"
V = ("--metric", "v=([0-9.]+)")
RACE_LIMIT_SECONDS = 30


def race(*words, code=0):
    done = invoke("race", "--json", "--quiet", *words)
    check(done, code)
    return json.loads(done.stdout)


def by_name(answer):
    return {arm["arm"]: arm for arm in answer["arms"]}


class FakeProcess(Process):
    MEMORY = 2000

    def __init__(self, world, script, metric):
        self.world, self.script = world, deque(script)
        self.readings, self.last_lines = [], deque(maxlen=LAST_LINES)
        self.code = self.error = self.diverged = None
        self._metric, self._lock, self._not_finite, self._counts = metric, Lock(), 0, True
        self._known, self.group = [], 0
        self._running, self._since, self.is_paused = 0.0, world.now, False

    @property
    def is_alive(self):
        return bool(self.script)

    def play(self):
        """Do what is due: print a text, call a function, or end with a code."""
        while self.script and not self.is_paused:
            seconds, deed = self.script[0]
            due = self._since + seconds - self._running
            if due > self.world.now:
                break
            self.script.popleft()
            if callable(deed):
                deed()
            elif isinstance(deed, str):
                self._take([deed.encode()], due)
            else:
                self.code = deed
            if not self.script:
                self._running, self.is_paused = self._clock(due), True
                self.code = self.code or 0

    def end(self, deadline=0.0):
        self.script.clear()

    def memory_bytes(self):
        return self.MEMORY

    def _descendants(self):
        return []


class World(Event):
    """Virtual time, in which commands that begin do what their scripts say, each after some seconds
    of running: the event that the arms of a race wait for.
    """

    def __init__(self):
        super().__init__()
        self.now, self.scripts, self.begun, self.processes = 100.0, {}, [], []

    def start(self, command, metric, log, ends):
        self.begun.append(command)
        self.processes.append(FakeProcess(self, self.scripts[command], metric))
        return self.processes[-1]

    def wait(self, timeout=None):
        """Let the time pass; a wait of no seconds, too, takes a moment."""
        self.now += max(timeout, 1e-6)
        for process in self.processes:
            process.play()


def counted(count, pace=0.01, text="v={}", first=1):
    """Return the script of a command that counts in even steps of time, and ends."""
    return [(pace * n, text.format(first + n - 1)) for n in range(1, count + 1)]
