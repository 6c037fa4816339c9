"""Import a class by its path."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from ncfbench.errors import UsageError, nearest, reason


def load(path: str) -> Any:
    """Import ``package.module:object``; modules of the current folder count as installed.

    Raises:
        UsageError: it cannot be imported, for whatever reason its own code gives.
    """
    module, _, attribute = path.partition(":")
    folder = str(Path.cwd())
    if not module.startswith("ncfbench.") and folder not in sys.path:
        sys.path.append(folder)
    try:
        found = vars(importlib.import_module(module))
    except Exception as error:
        raise UsageError(
            f"Cannot import {path!r}: {type(error).__name__}: {reason(error)}. Run from the folder"
            " that holds the module, or install it."
        ) from error
    if attribute not in found:
        names = [key for key in found if not key.startswith("_")]
        raise UsageError(f"Module {module!r} has no {attribute!r}{nearest(attribute, names)}")
    return found[attribute]
