"""The doctor: one warning for each thing that is wrong, and none where nothing is."""

import json
import re
from typing import Any

import pytest
from support.cli import check, invoke

from ncfbench.timing import doctor, environment

HEALTHY: dict[str, Any] = {"key": "abc", "time": "2026-01-01", "commit": None}
HEALTHY |= {"cpu": "A processor", "cores": 4, "machine_cores": 4, "core_quota": None}
HEALTHY |= {"memory_bytes": 16 * 2**30, "accelerators": []}
HEALTHY |= {"devices": [{"kind": "cpu", "platform": "cpu"}]}
HEALTHY |= {"system": "Linux 6", "python": "3.11.7", "packages": {"jax": "0.10.2"}}
HEALTHY |= {"variables": {}, "allocator": "jemalloc", "ncfbench": "0.1.0"}
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


def test_a_healthy_machine_has_no_warning():
    assert not list(doctor.warnings(HEALTHY))
    used: dict[str, Any] = {"devices": [{"kind": "NVIDIA H100", "platform": "gpu"}]}
    used |= {"accelerators": ["NVIDIA H100"], "allocator": "glibc"}
    assert not list(doctor.warnings(HEALTHY | used))


@pytest.mark.parametrize(("fault", "text"), FAULTS)
def test_each_fault_gives_one_warning(fault, text):
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


def test_this_machine_is_described():
    described = environment.describe()
    assert set(HEALTHY) <= set(described)
    json.dumps(described)
    assert described["key"] == environment.key(described)
    assert described["cpu"]
    # What only informs does not make another environment of the same machine.
    assert environment.key(described | {"time": "later", "memory_bytes": 1}) == described["key"]
    assert environment.key(described | {"cores": 99}) != described["key"]


def test_jemalloc_is_another_environment():
    """Those of the system have no part in a key."""
    keys = [environment.key(HEALTHY | {"allocator": name}) for name in ("glibc", "system")]
    assert keys[0] == keys[1] != environment.key(HEALTHY)
