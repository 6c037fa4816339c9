"""The machine of a run: what the doctor warns of, other programs, and jemalloc, with which a
process starts itself again.
"""

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from numpy._core import _multiarray_umath
from support.cli import check, invoke
from support.training import Said, train

from ncfbench.timing import allocator, contention, doctor, environment
from ncfbench.timing.contention import OtherPrograms

HEALTHY = {
    **{"key": "abc", "time": "2026-01-01", "commit": None, "cpu": "A processor"},
    **{"cores": 4, "machine_cores": 4, "core_quota": None, "memory_bytes": 16 * 2**30},
    **{"accelerators": [], "devices": [{"kind": "cpu", "platform": "cpu"}], "variables": {}},
    **{"system": "Linux 6", "python": "3.11.7", "packages": {"jax": "0.10.2"}},
    **{"allocator": "jemalloc", "ncfbench": "0.1.0"},
}
GPU = {"devices": [{"kind": "NVIDIA H100", "platform": "gpu"}], "accelerators": ["NVIDIA H100"]}
UNUSED = {"accelerators": ["an AMD GPU"], "variables": {"JAX_PLATFORMS": "cpu"}}
FAULTS = [
    ({"accelerators": ["NVIDIA H100, 580.1"]}, "JAX does not use it"),
    (UNUSED, "unset JAX_PLATFORMS"),
    ({"machine_cores": 8}, "only 4 of 8 cores"),
    ({"core_quota": 1.5}, "1.5 cores' worth"),
    ({"allocator": "glibc"}, "is glibc's"),
]


@pytest.mark.parametrize(("fault", "text"), FAULTS)
def test_each_fault_gives_one_warning(fault, text):
    assert not [*doctor.warnings(HEALTHY), *doctor.warnings(HEALTHY | GPU | {"allocator": "glibc"})]
    (warning,) = doctor.warnings(HEALTHY | fault)
    assert text in warning


def test_from_the_command_line(monkeypatch):
    monkeypatch.setattr(environment, "describe", lambda: HEALTHY)
    check(invoke("doctor"), 0, "No warnings.", "A processor")
    faults = HEALTHY | {"core_quota": 1.5, "allocator": "glibc"}
    monkeypatch.setattr(environment, "describe", lambda: faults)
    bad = invoke("doctor", "--json")
    assert bad.exit_code == 6
    assert len(json.loads(bad.stdout)["warnings"]) == 2
    assert len(re.findall(r"^Warning: ", bad.stderr, re.M)) == 2
    assert "Error" not in bad.stderr


def test_an_environment_is_its_machine_and_allocator():
    """What only informs makes no other one, nor does an allocator of the system."""
    described = environment.describe()
    assert set(HEALTHY) <= set(json.loads(json.dumps(described)))
    assert described["cpu"]
    for more, is_same in (({"time": "later", "memory_bytes": 1}, True), ({"cores": 99}, False)):
        assert (environment.key(described | more) == described["key"]) == is_same
    keys = [environment.key(HEALTHY | {"allocator": name}) for name in ("glibc", "system")]
    assert keys[0] == keys[1] != environment.key(HEALTHY)


def test_a_commit_is_dirty_by_changes_of_the_code_alone(tmp_path, monkeypatch):
    """Not by those of pages or plans beside it, nor by new files."""
    code, page = tmp_path / "ncfbench" / "timing" / "environment.py", tmp_path / "README.md"
    code.parent.mkdir(parents=True)
    code.write_text("a = 1\n")
    page.write_text("page\n")
    git = ["git", "-C", tmp_path, "-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr(environment, "__file__", str(code))
    page.write_text("another\n")
    assert (of_page := environment._commit())["dirty"] is False
    code.write_text("a = 2\n")
    assert environment._commit() == of_page | {"dirty": True}


# Other programs


MEASURE = OtherPrograms.cores
"""The method itself, which other tests do without."""


@pytest.mark.long
def test_a_busy_program_is_measured(monkeypatch):
    """One that this process did not start: the shell between both has ended."""
    loop = "timeout --foreground 20 sh -c 'while :; do :; done' >/dev/null 2>&1 & echo $!"
    shell = subprocess.Popen(["sh", "-c", loop], stdout=subprocess.PIPE, start_new_session=True)
    shell.communicate()
    monkeypatch.setattr(contention, "LEAST_SECONDS", 2.0)
    try:
        assert MEASURE(OtherPrograms()) > 0.05
    finally:  # all of its session: timeout alone may end before it has learned to end the loop
        os.killpg(shell.pid, signal.SIGKILL)


def test_use_is_busy_seconds_less_own_ones(monkeypatch):
    """On core 1 of two; 0.5 s are of this process, 0.25 of its child, 1 of one that has ended."""
    cores = [SimpleNamespace(user=90.0, system=9.0), SimpleNamespace(user=5.0, system=3.0)]
    child = SimpleNamespace(cpu_times=lambda: SimpleNamespace(user=0.25, system=0.0))
    times = SimpleNamespace(user=0.25, system=0.25, children_user=0.75, children_system=0.25)
    process = SimpleNamespace(cpu_times=lambda: times, children=lambda recursive: [child])
    monkeypatch.setattr(contention.psutil, "cpu_times", lambda percpu: cores)
    monkeypatch.setattr(contention.psutil, "Process", lambda: process)
    monkeypatch.setattr(contention, "own_cores", lambda: [1])
    assert contention._busy_seconds() == 8 - 0.5 - 0.25 - 1


def test_cores_are_seconds_over_time(monkeypatch):
    """1.5 s in 2 s; own programs that end may be counted once too often."""
    seconds = iter([10.0, 11.5, 11.0])
    monkeypatch.setattr(contention, "_busy_seconds", lambda: next(seconds))
    monkeypatch.setattr(contention.time, "perf_counter", iter([0.0, 2.0, 2.0, 4.0, 4.0]).__next__)
    programs = OtherPrograms()
    assert [MEASURE(programs), MEASURE(programs)] == [0.75, 0.0]


def test_only_a_busy_machine_is_said(monkeypatch):
    """Two cores: from 0.4 on. The doctor says it too."""
    monkeypatch.setattr(contention, "own_cores", lambda: [0, 1])
    said = []
    for used in (0.39, 1.3):
        monkeypatch.setattr(OtherPrograms, "cores", lambda self, used=used: used)
        OtherPrograms().warn(said.append)
    (warning,) = said
    assert warning.startswith("Warning: other programs use 1.3 of 2 cores.")
    (warning,) = doctor.warnings(HEALTHY, OtherPrograms().describe())
    assert warning.startswith("Other programs use 1.3 of 2 cores. Timings will be inflated")


def test_a_run_warns_and_records(data_dir, tmp_path, monkeypatch):
    """Before and after training; one that is finished already takes no times."""
    monkeypatch.setattr(OtherPrograms, "cores", lambda self: 64.0)
    for expected in (["Warning"] * 2, []):
        record = train(data_dir, tmp_path, encoder="mf", epochs=1, progress=(said := Said()))
        warnings = [text for text in said.texts if text.startswith("Warning: other programs use 6")]
        assert [text.partition(":")[0] for text in warnings] == expected
    assert record.environment["other_programs_cores"] == 64


# jemalloc

INSTALLED = allocator.find_library()
CHILD = """
import json, os, sys
from ncfbench.timing import allocator
allocator.restart()
seen = [os.environ.get(name) for name in ("LD_PRELOAD", "MALLOC_CONF")]
print(json.dumps([os.getpid(), sys.argv[1:], seen, allocator.describe()]))
"""


def test_jemalloc_is_loaded_unless_the_user_chose(monkeypatch):
    library, started = "/l/libj.so", []
    ours = {"LD_PRELOAD": library, "MALLOC_CONF": allocator.SETTINGS}
    ours |= {"NCFBENCH_RESTARTED": str(os.getpid())}
    chosen = {"NCFBENCH_ALLOCATOR": "none", "LD_PRELOAD": "libm.so.6", "MALLOC_CONF": "narenas:7"}
    cases = [({}, library, [ours]), ({}, None, [])]
    cases += [({name: value}, library, []) for name, value in chosen.items()]
    monkeypatch.setattr(os, "execve", lambda *arguments: started.append(arguments[2]))
    for variables, path, expected in cases:
        started.clear()
        monkeypatch.setattr(os, "environ", variables)
        monkeypatch.setattr(allocator, "find_library", lambda path=path: path)
        allocator.restart()
        assert started == expected, variables


def test_a_library_that_cannot_load_is_passed_over(tmp_path, monkeypatch):
    """The loader would print an error and go on without it. The environment's own goes first."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    path = tmp_path / "lib" / "libtest.so"
    path.parent.mkdir()
    monkeypatch.setattr(allocator, "LIBRARY", path.name)
    path.write_bytes(b"no library")
    assert allocator.find_library() is None
    path.unlink()
    path.symlink_to(_multiarray_umath.__file__)
    assert allocator.find_library() == str(path)


@pytest.mark.skipif(INSTALLED is None, reason="jemalloc is not installed")
def test_it_is_loaded_by_one_restart(tmp_path):
    """Same id and arguments, no message, and no variable is left."""
    script = tmp_path / "child.py"
    script.write_text(CHILD, encoding="utf-8")
    names = ("LD_PRELOAD", "MALLOC_CONF", "NCFBENCH_ALLOCATOR")
    variables = {name: value for name, value in os.environ.items() if name not in names}
    variables |= {"PYTHONPATH": str(Path(allocator.__file__).parents[2])}
    words = ["run", "--loss", "a b", "ä"]
    command = [sys.executable, "-X", "utf8", str(script), *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=variables, **pipes)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert json.loads(output) == [process.pid, words, [None, None], "jemalloc"]


def test_this_process_is_described(monkeypatch):
    monkeypatch.setattr(ctypes, "pythonapi", object())
    for library, name in (("glibc", "glibc"), ("", "system")):
        monkeypatch.setattr("platform.libc_ver", lambda library=library: (library, ""))
        assert allocator.describe() == name
