"""The process that starts itself again with other memory settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ncfbench.timing import allocator

AWARE = allocator.tunables({}) is not None
CHILD = """
import json, os, sys
from ncfbench.timing import allocator
before = os.getpid()
allocator.reexec_with_tunables()
print(json.dumps([before, sys.argv[1:], os.environ.get("GLIBC_TUNABLES")]))
"""


def run(script: Path, *arguments: str, **environment: str) -> list[object]:
    base = {name: value for name, value in os.environ.items() if name != allocator.VARIABLE}
    base["PYTHONPATH"] = str(Path(allocator.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-X", "utf8", str(script), *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=base | environment,
    )
    found: list[object] = json.loads(done.stdout)
    return found


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "child.py"
    path.write_text(CHILD, encoding="utf-8")
    return path


@pytest.mark.skipif(not AWARE, reason="another C library, or an older one")
def test_it_starts_again_once_with_the_same_arguments(script: Path) -> None:
    _, arguments, tunables = run(script, "run", "--loss", "a b", "ä")
    assert arguments == ["run", "--loss", "a b", "ä"]
    assert tunables == allocator.tunables({})


@pytest.mark.parametrize("value", ["", "glibc.malloc.mmap_max=7"])
def test_settings_of_the_user_stand(script: Path, value: str) -> None:
    assert run(script, "x", GLIBC_TUNABLES=value)[2] == value


def test_other_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("glibc 2.34", "musl 1.2", "", "glibc x"):
        monkeypatch.setattr(os, "confstr", lambda name, version=version: version)
        assert allocator.tunables({}) is None
    monkeypatch.setattr(os, "confstr", lambda name: "glibc 2.35")
    assert allocator.tunables({}) is not None
