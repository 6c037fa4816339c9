"""Imports and when they happen: nothing heavy for help, and JAX only where something computes."""

import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ncfbench

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]
(WITHOUT_JAX,) = [
    rule["source_modules"] for rule in CONTRACTS if "jax" in rule.get("forbidden_modules", ())
]
"""Rooms that import no JAX; ``make check`` holds that they import no room that does."""


def test_rooms_that_need_no_jax_import_none():
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


def test_without_pytorch_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("ncfbench.torch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install '.*\[torch\]'$") as caught:
        import ncfbench.torch  # noqa: F401
    assert caught.value.name == "torch"


def test_help_imports_nothing_heavy():
    """No package and few modules beyond what a Typer program of two commands needs.

    The options of ``run`` are those of classes whose modules import NumPy and JAX; a source of data
    is imported for its own command.
    """
    small = "import typer\nmain = typer.Typer()\nmain.command('two')(lambda: None)\n"
    small += "@main.command()\ndef one(word: str = ''): pass"
    needed = modules_of_help(small, "one", shown="--word")
    ours = "import sys; sys.argv[0] = 'ncfbench'\nfrom ncfbench.cli import main"
    for shown, *words in (["prepare"], ["--batch-size", "run"], ["synthetic", "prepare"]):
        imported = modules_of_help(ours, *words, shown=shown)
        assert packages(imported) - packages(needed) == {"ncfbench"}, words
        assert len(imported - needed) < 100


def packages(modules):
    return {name.split(".")[0] for name in modules} - sys.stdlib_module_names


def modules_of_help(script, *words, shown):
    """Return the modules that a fresh interpreter has imported once it has shown a help."""
    script += "\ntry: main()\nexcept SystemExit: import sys; print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", script, *words, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown in done.stdout
    return set(done.stderr.split())
