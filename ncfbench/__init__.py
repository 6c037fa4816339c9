"""Benchmark of mini-batch samplers for two-tower and content-based recommenders.

The functions here are the program's commands as Python functions. Arguments are named as the
command's flags and mean the same (``ncfbench run --help``). ``ncfbench settings`` lists what
``settings`` may hold; ``lambda`` is written ``lambda_``. ``say`` receives messages, a line each;
``progress`` shows the work, by default nothing. All raise the exceptions of
:mod:`ncfbench.errors`: a DataError where a data set is not prepared or a folder cannot be written,
a UsageError for unknown settings and those that cannot work. ``import ncfbench`` imports neither
JAX nor NumPy: a function imports what it needs when it is called.

The commands restart themselves with jemalloc where it is installed. A function cannot do that to
the program that calls it; ``ncfbench doctor`` prints the words to put before ``python``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ncfbench.advice.pipeline import advise
    from ncfbench.auditing.audit import audit_samplers as audit
    from ncfbench.data.store import open_dataset
    from ncfbench.data.store import prepare_dataset as prepare
    from ncfbench.floors.floor import floor
    from ncfbench.profiling.profile import profile
    from ncfbench.racing.metric import log_metric
    from ncfbench.racing.pipeline import race
    from ncfbench.reporting.results import collect as report
    from ncfbench.sweeps.sweep import sweep
    from ncfbench.training.export import export_vectors
    from ncfbench.training.run import train as run

__all__ = [
    "advise",
    "audit",
    "export_vectors",
    "floor",
    "log_metric",
    "open_dataset",
    "prepare",
    "profile",
    "race",
    "report",
    "run",
    "sweep",
]
__version__ = "0.1.0"

_FUNCTIONS = {
    "advise": ("advice.pipeline", "advise"),
    "audit": ("auditing.audit", "audit_samplers"),
    "export_vectors": ("training.export", "export_vectors"),
    "floor": ("floors.floor", "floor"),
    "log_metric": ("racing.metric", "log_metric"),
    "open_dataset": ("data.store", "open_dataset"),
    "prepare": ("data.store", "prepare_dataset"),
    "profile": ("profiling.profile", "profile"),
    "race": ("racing.pipeline", "race"),
    "report": ("reporting.results", "collect"),
    "run": ("training.run", "train"),
    "sweep": ("sweeps.sweep", "sweep"),
}
"""By name: the module of a function, and its name there."""


def __getattr__(name: str) -> Any:
    """Import a function when it is first asked for."""
    if name not in _FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, function = _FUNCTIONS[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), function)


def __dir__() -> list[str]:
    """Return the names of the module, those of the functions too."""
    return sorted({*globals(), *__all__})
