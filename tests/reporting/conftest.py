"""Modules of benchmarks/, which is no package, by their names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
pytest.register_assert_rewrite("claims_readme", "claims_results")
