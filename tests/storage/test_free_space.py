"""Free memory: what is refused, and where the numbers come from."""

from types import SimpleNamespace

import pytest

from ncfbench.errors import UsageError
from ncfbench.storage import free_space


def test_what_cannot_fit_is_refused(monkeypatch):
    monkeypatch.setattr(free_space, "available_memory", lambda: 2**30)
    free_space.require_memory("x", 2**30)
    with pytest.raises(
        UsageError, match="seven links: making these takes about 2.0 GiB of memory, and 1.0 GiB are"
    ):
        free_space.require_memory("seven links", 2**31)


def test_a_control_group_limits_the_memory(tmp_path, monkeypatch):
    machine = SimpleNamespace(available=600, total=2000)
    monkeypatch.setattr(free_space, "CONTROL_GROUP", tmp_path)
    monkeypatch.setattr(free_space.psutil, "virtual_memory", lambda: machine)
    assert free_space.available_memory() == 600
    for name, text in (
        ("memory.max", "1000\n"),
        ("memory.current", "700\n"),
        ("memory.stat", "anon 1\ninactive_file 200\n"),
    ):
        (tmp_path / name).write_text(text)
    assert free_space.available_memory() == 1000 - 700 + 200
    assert free_space.memory_limit() == 1000
    machine.available = 400
    assert free_space.available_memory() == 400
    machine.available = 600
    (tmp_path / "memory.max").write_text("max\n")
    assert free_space.available_memory() == 600
    assert free_space.memory_limit() == machine.total
