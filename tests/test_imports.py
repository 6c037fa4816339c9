"""Imports and when they happen: nothing heavy for help, and JAX only where something computes."""

from __future__ import annotations

import pkgutil
import resource
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ncfbench

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]
(WITHOUT_JAX,) = [
    each["source_modules"] for each in CONTRACTS if "jax" in each.get("forbidden_modules", ())
]
"""Rooms that import no JAX; ``make check`` holds that they import no room that does."""


def test_rooms_that_need_no_jax_import_none() -> None:
    """In a fresh interpreter, every module of these rooms; ``import ncfbench`` is light."""
    names = [
        module.name
        for module in pkgutil.walk_packages(ncfbench.__path__, "ncfbench.")
        if ".".join(module.name.split(".")[:2]) in [*WITHOUT_JAX, "ncfbench.cli"]
        and not module.name.startswith("ncfbench.torch")  # needs an extra
    ]
    assert len(names) > 60
    script = "import sys, ncfbench\n"
    script += "print([m for m in ('jax', 'numpy', 'pyarrow') if m in sys.modules])\n"
    script += "".join(f"import {name}\n" for name in names)
    script += "print([m for m in ('jax', 'flax', 'optax', 'orbax') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n[]\n", "")


def test_without_pytorch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("ncfbench.torch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install '.*\[torch\]'$") as caught:
        import ncfbench.torch  # noqa: F401
    assert caught.value.name == "torch"


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    """Within 3.5 times the processor seconds that a Typer program of two commands needs.

    Both are slow on a slow machine, or beside other work. The options of ``run`` are those of
    classes whose modules import NumPy and JAX; a source of data is imported for its own command.
    """
    small = (
        "import typer\n"
        "program = typer.Typer()\n"
        "program.command('one')(lambda: None)\n"
        "program.command('two')(lambda: None)\n"
        "program()"
    )
    script = (
        "import sys; sys.argv[0] = 'ncfbench'\n"
        "from ncfbench.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in sys.modules if m in ('jax', 'numpy', 'pyarrow', 'requests')"
        " or m.startswith('ncfbench.data.sources.')], file=sys.stderr)"
    )
    small_seconds, help_seconds = [], []
    helps = {"prepare": ["--help"], "--lstm-units": ["run", "--help"]}
    for shown, words in (helps | {"synthetic": ["prepare", "--help"]}).items():
        seconds, done = processor_seconds(small, "--help")
        small_seconds.append(seconds)
        assert "two" in done.stdout
        seconds, done = processor_seconds(script, *words)
        help_seconds.append(seconds)
        assert done.stderr == "[]\n"
        assert shown in done.stdout
    assert min(help_seconds) < 3.5 * min(small_seconds)


def processor_seconds(script: str, *words: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    """How many seconds of a processor a fresh interpreter takes for a script, and what it said."""
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True
    )
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime, done
