"""The doctor: one warning for each thing that is wrong, and none where nothing is."""

import json
import re
from typing import Any

import pytest
from invoked import check, invoke

from ncfbench.timing import doctor, environment

HEALTHY: dict[str, Any] = {"key": "abc", "time": "2026-01-01", "commit": None}
HEALTHY |= {"cpu": "A processor", "cores": 4, "machine_cores": 4, "core_quota": None}
HEALTHY |= {"governor": "performance", "load_average": [0.2, 0.1, 0.1], "accelerators": []}
HEALTHY |= {"memory_bytes": 16 * 2**30, "memory_available_bytes": 8 * 2**30}
HEALTHY |= {"devices": [{"kind": "cpu", "platform": "cpu"}]}
HEALTHY |= {"system": "Linux 6", "python": "3.11.7", "packages": {"jax": "0.10.2"}}
HEALTHY |= {"variables": {}, "allocator": "jemalloc", "ncfbench": "0.1.0"}
FAULTS = [
    ({"accelerators": ["NVIDIA H100, 580.1"]}, "JAX does not use it"),
    (
        {"accelerators": ["an AMD GPU"], "variables": {"JAX_PLATFORMS": "cpu"}},
        "unset JAX_PLATFORMS",
    ),
    ({"load_average": [3.1, 2, 1]}, "was busy: a load of 3.1 on 4 cores"),
    ({"machine_cores": 8}, "only 4 of 8 cores"),
    ({"core_quota": 1.5}, "1.5 cores' worth"),
    ({"variables": {"NPROC": "1"}}, "NPROC=1"),
    ({"variables": {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}}, "slows JAX down"),
    ({"variables": {"JAX_DISABLE_JIT": "1"}}, "compiles nothing"),
    ({"variables": {"JAX_DEBUG_NANS": "True"}}, "checks every result"),
    ({"variables": {"JAX_ENABLE_X64": "true"}}, "double precision"),
    ({"memory_available_bytes": 2**30}, "1.0 GiB"),
    ({"governor": "powersave"}, "powersave"),
    ({"allocator": "glibc"}, "is glibc's"),
]


def test_a_healthy_machine_has_no_warning():
    assert not list(doctor.warnings(HEALTHY))
    harmless = {"JAX_ENABLE_X64": "0", "JAX_DISABLE_JIT": "false", "NPROC": "4"}
    assert not list(doctor.warnings(HEALTHY | {"variables": harmless}))
    used: dict[str, Any] = {"devices": [{"kind": "NVIDIA H100", "platform": "gpu"}]}
    used |= {"accelerators": ["NVIDIA H100"], "allocator": "glibc"}
    assert not list(doctor.warnings(HEALTHY | used))


@pytest.mark.parametrize(("fault", "text"), FAULTS)
def test_each_fault_gives_one_warning(fault, text):
    (warning,) = doctor.warnings(HEALTHY | fault)
    assert text in warning


def test_programs_at_work_go_before_the_load():
    loaded = HEALTHY | {"load_average": [3, 2, 1]}
    (warning,) = doctor.warnings(loaded, "2.0 of 4 cores: a program")
    assert "other programs use 2.0 of 4 cores: a program. Times will be too long" in warning


def test_from_the_command_line(monkeypatch):
    monkeypatch.setattr(environment, "describe", lambda: HEALTHY)
    check(invoke("doctor"), 0, "No warnings.", "A processor")
    monkeypatch.setattr(
        environment, "describe", lambda: HEALTHY | {"core_quota": 1.5, "governor": "powersave"}
    )
    bad = invoke("doctor", "--json")
    assert bad.exit_code == 6
    assert len(json.loads(bad.stdout)["warnings"]) == 2
    assert len(re.findall(r"^Warning: ", bad.stderr, re.M)) == 2
    assert "Error" not in bad.stderr


def test_this_machine_is_described():
    found = environment.describe()
    assert set(HEALTHY) <= set(found)
    json.dumps(found)
    assert found["key"] == environment.key(found)
    assert found["cpu"]
    # What only informs does not make another environment of the same machine.
    assert (
        environment.key(found | {"load_average": [9, 9, 9], "memory_available_bytes": 1})
        == found["key"]
    )
    assert environment.key(found | {"cores": 99}) != found["key"]


def test_jemalloc_is_another_environment():
    """Those of the system have no part in a key."""
    keys = [environment.key(HEALTHY | {"allocator": name}) for name in ("glibc", "system")]
    assert keys[0] == keys[1] != environment.key(HEALTHY)
