"""Refused commands: their messages, and that they need no JAX; nor does a run that is finished."""

import json
import os
import re
import shlex
import subprocess
import sys

import bench_start
import pytest

SCRIPT = """
import json, shlex, sys
from typer.testing import CliRunner
from ncfbench.cli import app
from ncfbench.timing.contention import OtherPrograms
OtherPrograms.cores = lambda self: 0.0
for line in sys.stdin:
    done = CliRunner().invoke(app, shlex.split(line))
    heavy = [name for name in ("jax", "flax", "optax") if name in sys.modules]
    print(json.dumps([done.exit_code, done.output, heavy]))
"""


def answers(folder, commands):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment["COLUMNS"] = "100"
    words, given = [sys.executable, "-c", SCRIPT], "\n".join(commands)
    process = subprocess.run(
        words, input=given, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return dict(zip(commands, map(json.loads, process.stdout.splitlines()), strict=True))


def message_of(output, folder):
    """Return a message without what surrounds it: frames, the usage, folders and long lists."""
    lines = output.replace(str(folder), "FOLDER").splitlines()
    lines = [line.strip("│ ") for line in lines if line and line[0] not in "╭╰"]
    if lines[0].startswith("Usage: "):
        lines = [" ".join(lines[2:]).partition(" (")[0]]  # Typer's versions differ in what follows
    return re.sub(r"Valid: dataset, sampler, .*", "Valid: SETTINGS.", "\n".join(lines))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("mistakes")
    bench_start.prepare(home)
    return home


@pytest.fixture(scope="module")
def refused(folder):
    return answers(folder, [*bench_start.mistakes(), *bench_start.ANSWERS])


def test_no_refusal_waits_for_jax(folder, refused):
    assert {command: heavy for command, (_, _, heavy) in refused.items() if heavy} == {}
    assert {shlex.split(command)[0] for command in refused} > {"run", "advise", "sweep", "race"}
    assert not (folder / "runs").exists()
    codes = {code for command in bench_start.ANSWERS for code in refused[command][:1]}
    assert codes == {0}
    left = {path.name for path in folder.iterdir()} - {"__pycache__"}  # of plugin.py
    assert left == {*bench_start.FILES, "data"}


def test_refusals_are_the_golden_ones(folder, refused, request):
    head = bench_start.REFUSALS.read_text("utf-8").partition("\n$ ")[0]
    blocks = [
        f"\n$ ncfbench {command}\nexit code {code}\n{message_of(output, folder)}\n"
        for command, (code, output, _) in refused.items()
        if command not in bench_start.ANSWERS
    ]
    text = head + "".join(blocks)
    if request.config.getoption("update_golden"):
        bench_start.REFUSALS.write_text(text, "utf-8")
    assert text.splitlines() == bench_start.REFUSALS.read_text("utf-8").splitlines()


def test_a_finished_run_does_not_wait_for_jax(folder):
    run = "run --dataset tiny --encoder mf --sampler ns --batch-size 64 --epochs 1 --runs-dir done"
    done = subprocess.run([sys.executable, "-m", "ncfbench", *run.split()], cwd=folder)
    assert done.returncode == 0
    again = answers(folder, [run, "sweep odd.toml --set loss=sg --runs-dir done --dry-run"])
    assert [(code, heavy) for code, _, heavy in again.values()] == [(0, [])] * 2
