"""Mistakes are answered before JAX is imported, and so is a run that is finished."""

import os
import shlex
import subprocess
import sys

import bench_start
import pytest

SCRIPT = """
import shlex, sys
from typer.testing import CliRunner
from ncfbench.cli import app
for line in sys.stdin:
    code, *words = shlex.split(line)
    done = CliRunner().invoke(app, words)
    wrong = [name for name in ("jax", "flax", "optax") if name in sys.modules]
    wrong += [] if str(done.exit_code) == code else [f"exit code {done.exit_code}", done.output]
    if wrong:
        print(line, *wrong)
        break
"""


def answer(folder, lines):
    """Give lines of a code and a command to one process; return what it says is wrong."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words, shown = [sys.executable, "-c", SCRIPT], {"capture_output": True, "text": True}
    done = subprocess.run(words, input=lines, cwd=folder, env=environment, **shown)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with what the mistakes name."""
    home = tmp_path_factory.mktemp("mistakes")
    bench_start.prepare(home)
    return home


def test_no_mistake_waits_for_jax(folder):
    assert answer(folder, bench_start.MISTAKES) == ""
    commands = {shlex.split(line)[1] for line in bench_start.MISTAKES.splitlines()}
    assert len(commands) > 14
    assert not (folder / "runs").exists()
    left = {path.name for path in folder.iterdir()} - {"__pycache__"}  # of plugin.py
    assert left == {*bench_start.FILES, "data"}


def test_a_finished_run_does_not_wait_for_jax(folder):
    """Its table is printed again from its records."""
    run = "run --dataset tiny --encoder mf --sampler ns --batch-size 64 --epochs 1 --runs-dir done"
    done = subprocess.run([sys.executable, "-m", "ncfbench", *run.split()], cwd=folder)
    assert done.returncode == 0
    assert (
        answer(folder, f"0 {run}\n0 sweep odd.toml --set loss=sg --runs-dir done --dry-run\n") == ""
    )
