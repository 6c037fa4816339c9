"""Other programs at work: counted, warned of, and recorded."""

import os
import signal
import subprocess
from types import SimpleNamespace

import pytest
from support.training import Said, train

from ncfbench.timing import contention
from ncfbench.timing.contention import OtherPrograms

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
    """Two cores: from 0.4 on."""
    monkeypatch.setattr(contention, "own_cores", lambda: [0, 1])
    said = []
    for used in (0.39, 1.3):
        monkeypatch.setattr(OtherPrograms, "cores", lambda self, used=used: used)
        OtherPrograms().warn(said.append)
    (warning,) = said
    assert warning.startswith("Warning: other programs use 1.3 of 2 cores.")


def test_a_run_warns_and_records(data_dir, tmp_path, monkeypatch):
    """Before and after training; one that is finished already takes no times."""
    monkeypatch.setattr(OtherPrograms, "cores", lambda self: 64.0)
    for expected in (["Warning"] * 2, []):
        record = train(data_dir, tmp_path, encoder="mf", epochs=1, progress=(said := Said()))
        warnings = [text for text in said.texts if text.startswith("Warning: other programs use 6")]
        assert [text.partition(":")[0] for text in warnings] == expected
    assert record.environment["other_programs_cores"] == 64
