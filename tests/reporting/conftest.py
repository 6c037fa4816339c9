"""Modules of claims, whose asserts say what differs."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("claims_readme")
