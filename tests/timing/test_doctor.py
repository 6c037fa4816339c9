"""The doctor: one warning for each thing that is wrong, and none where nothing is."""

import json
import re
import subprocess

import pytest
from support.cli import check, invoke

from ncfbench.timing import doctor, environment

HEALTHY = {
    **{"key": "abc", "time": "2026-01-01", "commit": None, "cpu": "A processor"},
    **{"cores": 4, "machine_cores": 4, "core_quota": None, "memory_bytes": 16 * 2**30},
    **{"accelerators": [], "devices": [{"kind": "cpu", "platform": "cpu"}], "variables": {}},
    **{"system": "Linux 6", "python": "3.11.7", "packages": {"jax": "0.10.2"}},
    **{"allocator": "jemalloc", "ncfbench": "0.1.0"},
}
GPU = {"devices": [{"kind": "NVIDIA H100", "platform": "gpu"}], "accelerators": ["NVIDIA H100"]}
FAULTS = [
    ({"accelerators": ["NVIDIA H100, 580.1"]}, "JAX does not use it"),
    (
        {"accelerators": ["an AMD GPU"], "variables": {"JAX_PLATFORMS": "cpu"}},
        "unset JAX_PLATFORMS",
    ),
    ({"machine_cores": 8}, "only 4 of 8 cores"),
    ({"core_quota": 1.5}, "1.5 cores' worth"),
    ({"allocator": "glibc"}, "is glibc's"),
]


@pytest.mark.parametrize(("fault", "text"), FAULTS)
def test_each_fault_gives_one_warning(fault, text):
    assert not [*doctor.warnings(HEALTHY), *doctor.warnings(HEALTHY | GPU | {"allocator": "glibc"})]
    (warning,) = doctor.warnings(HEALTHY | fault)
    assert text in warning


def test_programs_at_work_are_a_fault():
    (warning,) = doctor.warnings(HEALTHY, "2.0 of 4 cores")
    assert warning.startswith("Other programs use 2.0 of 4 cores. Timings will be inflated")


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
    key = described["key"]
    for more, is_same in (
        ({}, True),
        ({"time": "later", "memory_bytes": 1}, True),
        ({"cores": 99}, False),
    ):
        assert (environment.key(described | more) == key) == is_same
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
