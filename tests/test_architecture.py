"""Imports point one way, and what needs no JAX imports none."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path

import ncfbench

PACKAGE = Path(ncfbench.__file__).parent
ORDER = (
    "allocator", "simulation", "errors", "endings", "roll", "registry", "division", "config", "streams", "graph", "schemas",
    "tables", "datasets.text", "datasets.corpus", "datasets.lines", "datasets.published", "datasets.room",
    "datasets.content", "datasets.splits", "datasets.preparation", "datasets.store", "datasets.options", "datasets.libraries", "datasets.citeulike", "datasets.citeulike_t",
    "datasets.names", "datasets.members", "datasets.mind", "datasets.pieces", "datasets.rows", "datasets.columns", "datasets.guesses",
    "datasets.plan", "datasets.custom", "datasets.synthetic", "datasets", "batch", "partition", "samplers.noise",
    "samplers.positives", "samplers.protocol", "samplers.listed", "samplers.shared", "samplers.local",
    "samplers.spread", "samplers", "distribution", "occupancy", "description", "xray", "expectation", "conformance",
    "environment", "compilation", "doctor", "runs", "schedule", "analysis", "seeds", "paper", "paper.printed", "bias",
    "costmodel", "traffic", "ledger", "interrupts", "records", "prefetch", "progress", "report", "report.comparison",
    "sweeps", "survey", "slurm", "queued", "tuning", "overview", "report.sweep", "report.targets", "report.described",
    "report.repetition", "report.verdicts", "report.marks", "report.sheets", "report.markup", "report.longform",
    "report.console", "report.description", "report.audit", "report.traffic", "report.costs", "report.catalogue",
    "report.figures", "report.results", "report.expected", "report.recomputed", "report.verification",
    "report.regression", "report.checks", "report.page", "dropout", "device", "precision", "encoders",
    "encoders.protocol", "encoders.cudnn", "encoders.mf", "encoders.pooling", "encoders.cnn", "encoders.recurrence",
    "encoders.lstm", "model", "losses", "objective", "team", "processes", "collectives", "parallel", "step", "embedding", "probe",
    "exact", "gradients", "evaluation", "evaluators", "timing", "exchange", "parts", "limits", "costing", "profiling",
    "points", "audit", "checkpoint", "recommendation", "openrun", "training", "following", "sweeping", "forecast", "stages",
    "cli.options", "cli.output", "cli.prepare", "cli.custom", "cli.describe", "cli.run", "cli.launch", "cli.sweep", "cli.audit",
    "cli.profile", "cli.doctor", "cli.catalogue", "cli.report", "cli", "__main__",
)  # fmt: skip
"""Every module; each imports only what stands before it."""
FIRST_WITH_JAX = ORDER.index("dropout")


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> set[str]:
    """Modules of the package that a module imports when it is imported; and outside packages by their first name."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_every_module_imports_only_what_stands_above_it() -> None:
    modules = {name_of(path): path for path in PACKAGE.rglob("*.py")}
    modules.pop("")
    assert set(modules) == set(ORDER)
    for name, path in modules.items():
        for imported in imports_of(path):
            if imported.startswith("ncfbench."):
                inner = imported.removeprefix("ncfbench.")
                target = max((m for m in ORDER if inner == m or inner.startswith(m + ".")), key=len, default=None)
                if target is not None:
                    assert ORDER.index(target) < ORDER.index(name), f"{name} imports {target}, which stands below it"
            elif imported.split(".")[0] in ("jax", "flax", "optax", "orbax"):
                assert ORDER.index(name) >= FIRST_WITH_JAX, f"{name} imports {imported}"


def test_no_jax_before_a_command_needs_it() -> None:
    """Everything that does not compute, in a fresh interpreter."""
    names = ["cli", *ORDER[:FIRST_WITH_JAX]]
    script = "import sys\n" + "".join(f"import ncfbench.{name}\n" for name in names)
    script += "print([m for m in ('jax', 'flax', 'optax', 'orbax') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    script = (
        "import sys; sys.argv = ['ncfbench', '--help']\n"
        "from ncfbench.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('jax', 'numpy', 'pyarrow', 'requests') if m in sys.modules], file=sys.stderr)"
    )
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        seconds.append(time.perf_counter() - begin)
        assert done.stderr == "[]\n"
        assert "prepare" in done.stdout
    assert min(seconds) < 0.7
